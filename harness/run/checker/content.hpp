// What a case's memory holds before and after: the oracle's tags, or golden tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "case/case.hpp"

namespace kvcts::checker {

class CaseContent {
 public:
  virtual ~CaseContent() = default;
  /// Whole memory files, guards included.
  virtual void write_initial(const RegionRef& region, int pass, std::span<std::uint8_t> file) const = 0;
  virtual void write_expected(const RegionRef& region, int pass, std::span<std::uint8_t> file) const = 0;
  /// True if the file holds what write_expected() would write. False may also mean that only a full image can tell.
  virtual bool holds_expected(const RegionRef&, int, std::span<const std::uint8_t>) const { return false; }
  /// Whether free slots of a request's last block may hold the producer's bytes instead (oracle/tail.hpp).
  virtual bool tail_is_unused() const = 0;
};

/// `resolved` must outlive the content. Throws golden::Error when a golden tensor cannot be read.
std::unique_ptr<CaseContent> make_content(const ResolvedCase& resolved);
std::unique_ptr<CaseContent> make_specials(const ResolvedCase& resolved);  ///< specials.cpp

}  // namespace kvcts::checker
