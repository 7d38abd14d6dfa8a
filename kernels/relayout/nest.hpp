// A copy of many elements between two places as a nest of loops, derived from the offsets. A plane is separable: an
// element's bit is an offset plus one distance per axis. So a copy between two planes is, for each axis, a list of pairs of
// distances. Regular lists become loops with strides, whatever the modes are called on either side; irregular ones (blocks
// of a block table, slots of a slot mapping) stay lists. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/relayout/moves.hpp"

namespace kvcts::kernels::relayout {

/// One axis: element i is from[i] bits after the source's base and to[i] bits after the target's. Same length, not empty.
struct Pairs {
  std::vector<std::int64_t> from, to;
};

/// `count` steps of two strides, or the steps of a list.
struct Loop {
  std::int64_t count{1};
  std::int64_t from{0}, to{0};  ///< strides in bits; unused by lists
  Pairs list{};                 ///< not empty: a list
  bool is_list() const { return !list.from.empty(); }
};

/// The loops of one axis, innermost first: strides where the pairs are regular, then at most one list.
std::vector<Loop> loops_of(const Pairs& pairs);

class Nest {
 public:
  /// Codes of `width` bits. `from_high`, `to_high`: nibble order of 4-bit codes on either side.
  Nest(int width, bool from_high, bool to_high) : width_(width), from_high_(from_high), to_high_(to_high) {}

  /// Bits before everything else.
  void base(std::int64_t from, std::int64_t to) { from_ = from, to_ = to; }
  void add(const Pairs& pairs);
  /// Copies. All places must be inside the memory, and no two elements may share a place in the target.
  void run(std::span<const std::uint8_t> from, std::span<std::uint8_t> to, int threads) const;

  /// Bits that are contiguous on both sides: what one move can take.
  std::int64_t run_bits() const;
  /// The number of such moves.
  std::int64_t moves() const;

 private:
  int width_;
  bool from_high_, to_high_;
  std::int64_t from_{0}, to_{0};
  std::vector<Loop> loops_;
};

}  // namespace kvcts::kernels::relayout
