// The blocks of a transfer, from the producer's word that they are free until the memory is compared: the next request has
// them at once. So bytes that are read after that word are another request's, and not right by luck.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "case/case.hpp"

namespace kvcts::checker {

class Reuse {
 public:
  /// Whole memory files of the producer, in the order of regions().
  using Files = std::vector<std::span<std::uint8_t>>;

  /// `resolved` must outlive this.
  explicit Reuse(const ResolvedCase& resolved);

  /// Writes the next request's content over that of the requests that were transferred. Blocks that a request which stays
  /// holds, too, are not free.
  void begin(int pass, Files files);
  /// Puts back what was there. Bytes that something else has written since then stay: they are a changed source.
  void end();
  bool began() const { return began_; }
  void forget() { began_ = false; }

  std::uint32_t generation() const { return generation_; }  ///< the next request's
  /// The case as if the next request's content had been transferred.
  ResolvedCase transferred_late() const;

 private:
  void write(const RegionRef& region, std::span<std::uint8_t> file) const;

  const ResolvedCase& case_;
  std::uint32_t generation_{1};
  int pass_{0};
  Files files_;
  std::vector<std::vector<std::uint8_t>> before_;
  bool began_{false};
};

}  // namespace kvcts::checker
