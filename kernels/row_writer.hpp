// Connects rows of channels to the inner loops: masks and the kind of loop for one dtype, component and nibble order.
#pragma once

#include <cstdint>

#include "kernels/code_rule.hpp"
#include "kernels/isa.hpp"
#include "kernels/tag_math.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels {

class RowWriter {
 public:
  RowWriter(layout::Dtype dtype, layout::Component component, bool high_nibble_first)
      : rule_(code_rule(dtype)),
        scale_(component != layout::Component::data),
        high_nibble_first_(rule_.width == 4 && high_nibble_first),
        or_mask_(repeat(rule_.or_mask, rule_.width)) {
    std::uint32_t mask = rule_.and_mask;
    if (scale_) mask &= ~scale_digit_mask;
    and_mask_ = repeat(mask, rule_.width);
    if (scale_ && rule_.width == 16) kind_ = LaneKind::digit16;
    if (scale_ && rule_.width == 32) kind_ = LaneKind::digit32;
    if (high_nibble_first_) kind_ = LaneKind::swapped;
    for (std::uint32_t digit = 0; digit < 4; ++digit) {
      or_masks_[digit] = or_mask_ | (scale_ ? scale_digits(rule_.width, 0, digit) : 0u);
    }
  }

  int width() const { return rule_.width; }
  bool scale() const { return scale_; }
  bool high_nibble_first() const { return high_nibble_first_; }

  /// The OR mask of a row: includes the digits of word 0 if it is a scale. `digit` is scale_digit() of the row.
  std::uint32_t or_mask(std::uint32_t digit) const { return or_masks_[digit & 3u]; }

  /// `bytes` bytes of each row, starting at word `first_word` of its stream, `pitch` bytes apart.
  void rows(const RowKeys& keys, std::uint32_t first_word, std::size_t bytes, std::ptrdiff_t pitch,
            std::uint8_t* out) const {
    rows(keys, {first_word, bytes, pitch}, out);
  }
  /// Sets the shape's AND mask.
  void rows(const RowKeys& keys, RowShape shape, std::uint8_t* out) const {
    shape.and_mask = and_mask_;
    isa_->write_rows(kind_)(keys, shape, out);
  }

  /// `words` words of each row, channel by channel.
  void columns(const RowKeys& keys, std::uint32_t first_word, std::size_t words, std::uint8_t* out) const {
    isa_->write_columns(kind_)(keys, {first_word, words, and_mask_, rule_.width, high_nibble_first_}, out);
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
  bool scale_, high_nibble_first_;
  std::uint32_t or_mask_, and_mask_{0}, or_masks_[4]{};
  LaneKind kind_{LaneKind::plain};
  const Isa* isa_{&best_isa()};
};

}  // namespace kvcts::kernels
