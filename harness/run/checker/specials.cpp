// Content "specials": tag/1 is never NaN, infinite, zero or subnormal in all its bits, to be distinguishable. Code
// that changes just those numbers in transit passes every tag. Here one code in three is such a number, chosen by the
// tag itself: the same element has the same code on both sides, in any layout.
#include "run/checker/content.hpp"
#include "run/checker/elements.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

namespace {

/// Exponent bits of the formats; formats without (integers, 4-bit codes) get separate patterns from other fields.
int exponent_bits(layout::Dtype dtype) {
  using layout::Dtype;
  switch (dtype) {
    case Dtype::fp16:
      return 5;
    case Dtype::fp32:
    case Dtype::bf16:
      return 8;
    case Dtype::e4m3fn:
    case Dtype::e4m3fnuz:
      return 4;
    case Dtype::e5m2:
    case Dtype::e5m2fnuz:
      return 5;
    default:
      return layout::bits(dtype) / 2;
  }
}

std::uint32_t special(std::uint32_t code, layout::Dtype dtype) {
  const int width = layout::bits(dtype), mantissa = width - 1 - exponent_bits(dtype);
  const std::uint32_t sign = 1u << (width - 1), top = sign - 1 - ((1u << mantissa) - 1), all = sign | (sign - 1);
  switch ((code * 0x9e3779b1u >> 20) % 16) {
    case 0:
      return sign;  // -0
    case 1:
      return 0;  // +0
    case 2:
      return (code | top) & all;  // NaN, sign and payload of the tag
    case 3:
      return (code & sign) | top;  // infinity, or NaN where the format has none
    case 4:
      return code & ~top & all;  // subnormal
    case 5:
      return all;  // NaN with every bit
    default:
      return code;
  }
}

class Specials final : public CaseContent {
 public:
  explicit Specials(const ResolvedCase& resolved) : case_(resolved) {}
  void write_initial(const RegionRef& region, int pass, std::span<std::uint8_t> file) const override {
    oracle::write_initial(case_, region, pass, file);
    if (region.side == Side::producer || case_.connector.kind == "none") change(region, region.side == Side::consumer, file);
  }
  void write_expected(const RegionRef& region, int pass, std::span<std::uint8_t> file) const override {
    oracle::write_expected(case_, region, pass, file);
    change(region, region.side == Side::consumer, file);
  }
  bool tail_is_unused() const override { return true; }

 private:
  void change(const RegionRef& region, bool transferred, std::span<std::uint8_t> file) const {
    each_element(case_, region, transferred, [&](const CheckedElement& e) {
      if (e.plane->component != layout::Component::data) return;
      write_code(file, e.bit, e.width, special(read_code(file, e.bit, e.width), e.plane->dtype));
    });
  }
  const ResolvedCase& case_;
};

}  // namespace

std::unique_ptr<CaseContent> make_specials(const ResolvedCase& resolved) { return std::make_unique<Specials>(resolved); }

}  // namespace kvcts::checker
