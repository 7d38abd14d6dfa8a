// Contents other than tags: special numbers.
#include "run/checker/content.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "case/catalogue/catalogue.hpp"
#include "case/resolve/resolve.hpp"
#include "run/checker/elements.hpp"
#include "scene/oracle/oracle.hpp"
#include "testing/checkout.hpp"

namespace kvcts::checker {
namespace {

using layout::Axis;

ResolvedCase resolved(const std::string& content) {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  CaseSpec spec;
  spec.id = "content";
  spec.producer.layout = "vllm-fa-nhd";
  spec.consumer.layout = "vllm-xformers";
  spec.dtype = "bf16";
  ResolvedCase c = resolve(spec, catalogue);
  c.content.kind = content;
  return c;
}

std::vector<std::uint8_t> file_of(const ResolvedCase& c, const RegionRef& region) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(oracle::file_shape(c, region.bytes).size));
}

/// Codes of the transferred elements by (layer, kv, token, head, channel).
using Codes = std::map<std::array<std::int64_t, 5>, std::uint32_t>;

Codes codes(const ResolvedCase& c, const CaseContent& content, Side side) {
  Codes out;
  for (const auto& region : regions(c, side)) {
    auto file = file_of(c, region);
    if (side == Side::producer)
      content.write_initial(region, 0, file);
    else
      content.write_expected(region, 0, file);
    each_element(c, region, true, [&](const CheckedElement& e) {
      out[{e.at[Axis::layer], e.at[Axis::kv], e.token, e.at[Axis::head], e.at[Axis::channel]}] =
          read_code(file, e.bit, e.width);
    });
  }
  return out;
}

TEST(Specials, ContainEveryKindOfNumberOnBothSides) {
  const auto c = resolved("specials");
  const auto content = make_content(c);
  const Codes from = codes(c, *content, Side::producer);
  EXPECT_EQ(from, codes(c, *content, Side::consumer));
  std::map<std::string, std::size_t> kinds;
  std::set<std::uint32_t> payloads;
  for (const auto& [at, code] : from) {
    const bool top = (code & 0x7f80) == 0x7f80, bottom = (code & 0x7f80) == 0;
    if (top && (code & 0x7f) != 0) ++kinds["NaN"], payloads.insert(code);
    if (top && (code & 0x7f) == 0) ++kinds["infinity"];
    if (bottom && (code & 0x7f) != 0) ++kinds["subnormal"];
    if (code == 0x8000) ++kinds["-0"];
    if (code == 0) ++kinds["+0"];
  }
  for (const auto* kind : {"NaN", "infinity", "subnormal", "-0", "+0"})
    EXPECT_GT(kinds[kind] * 40, from.size()) << kind << " " << kinds[kind] << " of " << from.size();
  EXPECT_GT(payloads.size(), 50u);
  EXPECT_EQ(from, codes(resolved("specials"), *make_content(c), Side::producer));
}

TEST(Specials, ChangeOnlyElementsOfRequests) {
  const auto c = resolved("specials");
  const auto content = make_content(c);
  for (const auto& region : regions(c, Side::consumer)) {
    auto file = file_of(c, region), tags = file, inside = file;
    content->write_expected(region, 0, file);
    oracle::write_expected(c, region, 0, tags);
    each_element(c, region, true, [&](const CheckedElement& e) { write_code(inside, e.bit, e.width, ~0u); });
    for (std::size_t i = 0; i < file.size(); ++i) {
      if (inside[i] == 0) {
        ASSERT_EQ(file[i], tags[i]) << region.name << " " << i;
      }
    }
  }
}

TEST(CaseContent, RefusesAnUnknownNameAndRepeatsIt) { EXPECT_THROW(make_content(resolved("noise")), std::runtime_error); }

}  // namespace
}  // namespace kvcts::checker
