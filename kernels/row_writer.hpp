// Between rows of channels and the inner loops: masks and the kind of loop for one dtype, component and nibble order.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/code_rule.hpp"
#include "kernels/isa.hpp"
#include "kernels/tag_math.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels {

class RowWriter {
 public:
  RowWriter(layout::Dtype dtype, layout::Component component, bool high_nibble_first)
      : rule_(code_rule(dtype)), scale_(component != layout::Component::data), or_mask_(repeat(rule_.or_mask, rule_.width)) {
    std::uint32_t mask = rule_.and_mask;
    if (scale_) mask &= ~scale_digit_mask;
    and_mask_ = repeat(mask, rule_.width);
    if (scale_ && rule_.width == 16) kind_ = LaneKind::digit16;
    if (scale_ && rule_.width == 32) kind_ = LaneKind::digit32;
    if (rule_.width == 4 && high_nibble_first) kind_ = LaneKind::swapped;
    write_ = best_isa().rows(kind_);
  }

  int width() const { return rule_.width; }
  bool scale() const { return scale_; }

  /// One row that starts at `out`. `digit` is scale_digit() of the row; it counts for scales only.
  LaneRow row(std::uint64_t key, std::uint32_t digit, std::uint8_t* out) const {
    LaneRow lane{key, out, or_mask_, digit};
    if (scale_ && rule_.width <= 8) lane.or_mask |= scale_digits(rule_.width, 0, digit);
    return lane;
  }

  /// `bytes` bytes of each row, from word `first_word` of its stream on.
  void write(std::span<const LaneRow> rows, std::uint32_t first_word, std::size_t bytes) const {
    write_(rows, {first_word, bytes, and_mask_});
  }

  /// Word i of a row, low nibble first: for the odd bytes at the start of a row.
  std::uint32_t word_at(std::uint64_t key, std::uint32_t digit, std::uint32_t i) const {
    const std::uint32_t digits = scale_ ? scale_digits(rule_.width, i, digit) : 0u;
    return (word(key, i) & and_mask_) | or_mask_ | digits;
  }

  std::uint32_t code(std::uint64_t key, std::uint32_t digit, std::uint64_t channel) const {
    return code_of(rule_, key, channel, scale_, digit);
  }

 private:
  CodeRule rule_;
  bool scale_;
  std::uint32_t or_mask_, and_mask_{0};
  LaneKind kind_{LaneKind::plain};
  WriteRows write_{};
};

}  // namespace kvcts::kernels
