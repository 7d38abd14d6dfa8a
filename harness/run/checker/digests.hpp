// Digests of a case's memory, before and after: a certificate shows them, and a second party recomputes them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "case/case.hpp"
#include "case/result.hpp"

namespace kvcts::checker {

/// Folds the digests of a case's files, region by region and pass by pass, into two per side.
class DigestFold {
 public:
  void before(Side side, std::uint64_t file) { fold(before_, side, file); }
  void after(Side side, std::uint64_t file) { fold(after_, side, file); }
  Digests whole() const;

 private:
  using Sides = std::array<std::uint64_t, 2>;
  static void fold(Sides& into, Side side, std::uint64_t file);
  Sides before_{}, after_{};
};

/// The digests of a case that transfers correctly, or of one that is refused before any byte moves (after = before,
/// in one pass): from the oracle or the golden tensors alone. Throws golden::Error.
Digests expected_digests(const ResolvedCase& resolved, bool transferred);

}  // namespace kvcts::checker
