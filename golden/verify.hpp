// Checks that the golden tensors are unchanged, and that the C++ suite makes the same bytes.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "golden/golden.hpp"

namespace kvcts::golden {

enum class GoldenCheck { pass, fail, skipped };
std::string_view name(GoldenCheck check);

struct VerifyItem {
  std::string what;  ///< "layout/dtype", "layout.h5", "generate.py --check"
  GoldenCheck check{GoldenCheck::pass};
  std::string detail;  ///< one sentence; empty on a pass
};

struct VerifyReport {
  std::vector<VerifyItem> items;
  int count(GoldenCheck check) const;
  bool ok() const { return count(GoldenCheck::fail) == 0; }
};

struct GoldenVerifyOptions {
  LoadOptions load;
  std::vector<std::string> layouts;  ///< empty: all in the manifest
  bool cpp{true};                    ///< make every tensor again with kvcts_layout and kvcts_kernels
  std::filesystem::path python;      ///< interpreter of the virtual environment; empty: generate.py is SKIPPED
  std::filesystem::path generator;   ///< generate.py; empty: the one in the folder
  std::filesystem::path cases;       ///< the catalogue; empty: generate.py's own default
  std::chrono::milliseconds python_deadline{std::chrono::minutes(5)};
};

/// A sentence that says where the C++ bytes of this tensor first differ, in logical coordinates; nullopt when all are equal.
std::optional<std::string> differs_from_cpp(const GoldenTensor& tensor);

/// Checks the manifest and SHA-256 of every file, unknown files in the folder, every tensor against the C++, and (with
/// Python) every file against fresh NumPy content. Never throws for what the folder holds: faults become items.
VerifyReport verify(const std::filesystem::path& folder, const GoldenVerifyOptions& options = {});

}  // namespace kvcts::golden
