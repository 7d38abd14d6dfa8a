// Contents other than tags: special numbers, and the emulated fills of other harnesses.
#include "run/checker/content.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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

ResolvedCase resolved(const std::string& content, const std::string& harness = "") {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  CaseSpec spec;
  spec.id = "content";
  spec.producer.layout = "vllm-fa-nhd";
  spec.consumer.layout = "vllm-xformers";
  spec.dtype = "bf16";
  ResolvedCase c = resolve(spec, catalogue);
  c.content.kind = content, c.content.producer = harness;
  return c;
}

std::vector<std::uint8_t> file_of(const ResolvedCase& c, const RegionRef& region) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(oracle::file_shape(c, region.bytes).size));
}

/// Codes of the transferred elements by (layer, kv, token, head, channel).
using Codes = std::map<std::array<std::int64_t, 5>, std::uint32_t>;

Codes codes(const ResolvedCase& c, const Content& content, Side side) {
  Codes out;
  for (const auto& region : regions(c, side)) {
    auto file = file_of(c, region);
    if (side == Side::producer)
      content.write_initial(region, 0, file);
    else
      content.write_expected(region, 0, file);
    each_element(c, region, true, [&](const Element& e) {
      out[{e.at[Axis::layer], e.at[Axis::kv], e.token, e.at[Axis::head], e.at[Axis::channel]}] =
          read_code(file, e.bit, e.width);
    });
  }
  return out;
}

TEST(Specials, EveryKindOfNumberIsThereAndIsExpectedWhereItCameFrom) {
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

TEST(Specials, NothingButTheElementsOfRequestsIsChanged) {
  const auto c = resolved("specials");
  const auto content = make_content(c);
  for (const auto& region : regions(c, Side::consumer)) {
    auto file = file_of(c, region), tags = file, inside = file;
    content->write_expected(region, 0, file);
    oracle::write_expected(c, region, 0, tags);
    each_element(c, region, true, [&](const Element& e) { write_code(inside, e.bit, e.width, ~0u); });
    for (std::size_t i = 0; i < file.size(); ++i) {
      if (inside[i] == 0) {
        ASSERT_EQ(file[i], tags[i]) << region.name << " " << i;
      }
    }
  }
}

class EmulatedHarness : public testing::TestWithParam<const char*> {};

TEST_P(EmulatedHarness, LooksAtTheBytesThatHadToArriveAndAtNothingElse) {
  const auto c = resolved("emulated", GetParam());
  const auto content = make_content(c);
  EXPECT_EQ(codes(c, *content, Side::producer), codes(c, *content, Side::consumer));
  EXPECT_FALSE(content->looks_at_everything());
  for (const auto side : {Side::producer, Side::consumer}) {
    for (const auto& region : regions(c, side)) {
      auto expected = file_of(c, region), found = expected;
      content->write_expected(region, 0, expected);
      for (std::size_t i = 0; i < found.size(); ++i)
        found[i] = static_cast<std::uint8_t>(expected[i] ^ 0xff);  // everything is wrong
      content->forgive(region, found, expected);
      std::vector<std::uint8_t> inside(found.size());
      if (side == Side::consumer)
        each_element(c, region, true, [&](const Element& e) { write_code(inside, e.bit, e.width, ~0u); });
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_EQ(found[i] != expected[i], inside[i] != 0) << region.name << " " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Content, EmulatedHarness,
                         testing::Values("benchdnn", "ucx-pattern", "ucx-random", "nvbandwidth", "nccl-tests"),
                         [](const auto& harness) {
                           std::string name = harness.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The versions and places are in emulated.cpp.
TEST(Emulated, FillsHaveTheBlindSpotsOfTheirOriginals) {
  const auto source = [](const char* harness) {
    const auto c = resolved("emulated", harness);
    const auto region = regions(c, Side::producer).at(0);
    auto file = file_of(c, region);
    make_content(c)->write_initial(region, 0, file);
    const auto shape = oracle::file_shape(c, region.bytes);
    return std::vector<std::uint8_t>(file.begin() + shape.base, file.begin() + shape.base + shape.bytes);
  };
  const auto pattern = source("ucx-pattern"), random = source("ucx-random"), hash = source("nccl-tests");
  ASSERT_GT(pattern.size(), 2u * 15624u);
  EXPECT_TRUE(std::equal(pattern.begin(), pattern.begin() + 15624, pattern.begin() + 15624)) << "a period of 1953 words";
  EXPECT_TRUE(std::equal(random.begin() + 504, random.end() - 8, random.begin() + 512)) << "one word from 504 bytes on";
  EXPECT_FALSE(std::equal(random.begin(), random.begin() + 496, random.begin() + 8));
  EXPECT_FALSE(std::equal(hash.begin(), hash.begin() + 15624, hash.begin() + 15624));
}

TEST(Content, AnUnknownOneIsAnErrorThatNamesIt) {
  EXPECT_THROW(make_content(resolved("noise")), std::runtime_error);
  EXPECT_THROW(make_content(resolved("emulated", "no-such-harness")), std::runtime_error);
}

}  // namespace
}  // namespace kvcts::checker
