#include "kernels/tag.hpp"

#include <bit>
#include <string>
#include <utility>

#include "kernels/code_rule.hpp"
#include "kernels/row_writer.hpp"
#include "kernels/tag_math.hpp"

namespace kvcts::kernels {
namespace {

void require(std::int64_t value, std::int64_t end, const char* field) {
  if (value >= 0 && value < end) return;
  throw layout::Error(std::string("a tag's ") + field + " must be in [0, " + std::to_string(end) + "), found " +
                      std::to_string(value) + "; tag/1 has no bits for it");
}

std::uint32_t digit_of(const RowId& row) {
  return scale_digit(static_cast<std::uint64_t>(row.kv), static_cast<std::uint64_t>(row.layer),
                     static_cast<std::uint64_t>(row.head), static_cast<std::uint64_t>(row.token));
}

}  // namespace

std::uint64_t row_key(const TagKey& key, const RowId& row) {
  require(row.kv, std::int64_t{1} << 4, "kv");
  require(row.layer, std::int64_t{1} << 24, "layer");
  require(row.head, std::int64_t{1} << 20, "head");
  require(row.token, std::int64_t{1} << 44, "token");
  const std::uint64_t prefix = tag_prefix(key.seed, key.pass, key.origin, static_cast<std::uint64_t>(row.component),
                                          static_cast<std::uint64_t>(row.kv), static_cast<std::uint64_t>(row.layer));
  return tag_row_key(tag_base(prefix, row.generation), static_cast<std::uint64_t>(row.head),
                     static_cast<std::uint64_t>(row.token));
}

std::uint32_t tag_code(std::uint64_t key, const RowId& row, layout::Dtype dtype, std::int64_t channel) {
  return code_of(code_rule(dtype), key, static_cast<std::uint64_t>(channel), row.component != layout::Component::data,
                 digit_of(row));
}

void tag_row(std::uint64_t key, const RowId& row, layout::Dtype dtype, std::int64_t first, std::int64_t count,
             std::span<std::uint8_t> out) {
  const int width = code_rule(dtype).width;
  if (first < 0 || count < 0 || first * width % 8 != 0) {
    throw layout::Error("a row of tags must start at a whole byte and have no negative length, found channels [" +
                        std::to_string(first) + ", +" + std::to_string(count) + ") of " + std::to_string(width) + " bits");
  }
  const std::int64_t bytes = (count * width + 7) / 8;
  if (std::cmp_not_equal(out.size(), bytes)) {
    throw layout::Error("a row of " + std::to_string(count) + " codes of " + std::to_string(width) + " bits needs " +
                        std::to_string(bytes) + " bytes, found room for " + std::to_string(out.size()));
  }
  if (count == 0) return;

  const RowWriter writer(dtype, row.component, false);
  const std::int64_t start = first * width / 8;
  std::uint8_t* to = out.data();
  std::int64_t at = start;
  // Bytes before the first whole word.
  for (; at % 4 != 0 && at < start + bytes; ++at) {
    *to++ =
        static_cast<std::uint8_t>(writer.word_at(key, digit_of(row), static_cast<std::uint32_t>(at / 4)) >> (8 * (at % 4)));
  }
  const std::int64_t rest = start + bytes - at;
  if (rest > 0) {
    const auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
    const std::uint32_t or_mask = writer.or_mask(digit_of(row));
    writer.rows({&low, &high, &or_mask, 1}, static_cast<std::uint32_t>(at / 4), static_cast<std::size_t>(rest), rest, to);
  }
  if (count * width % 8 != 0) out.back() &= 0x0f;
}

int entropy_bits(layout::Dtype dtype, layout::Component component) {
  const CodeRule rule = code_rule(dtype);
  std::uint32_t free = rule.and_mask & ~rule.or_mask;
  if (component != layout::Component::data) free &= ~scale_digit_mask;
  return std::popcount(free);
}

int deciding_passes(layout::Dtype dtype, std::int64_t unit_elements, layout::Component component) {
  if (unit_elements < 1) {
    throw layout::Error("a unit must have at least 1 element, found " + std::to_string(unit_elements));
  }
  if (unit_elements >= 64) return 1;
  const std::int64_t bits = unit_elements * entropy_bits(dtype, component);
  return static_cast<int>((64 + bits - 1) / bits);
}

}  // namespace kvcts::kernels
