// Digests of a case's memory, before and after: what a certificate shows and what a second party computes again.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "case/case.hpp"
#include "case/result.hpp"

namespace kvcts::checker {

/// Folds the digests of a case's files, region by region and pass by pass, into two for each side.
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

/// The digests of a case that transfers as it must, and of one that is refused before any byte moves (after = before, in one
/// pass): from the oracle or the golden tensors alone. Throws golden::Error.
Digests expected_digests(const ResolvedCase& resolved, bool transferred);

}  // namespace kvcts::checker
