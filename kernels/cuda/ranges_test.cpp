// Poison, comparison and digest by the device kernels' bodies.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kernels/cuda/ranges.hpp"
#include "kernels/cuda/testing/twin.hpp"
#include "kernels/poison.hpp"

namespace kvcts::cuda {
namespace {

using testing::launch;
using testing::Memory;
using testing::Watch;

void poison(Memory& memory, std::span<const Range> ranges, u64 key, u64 offset = 0) {
  const PoisonPlan plan = plan_poison(ranges, key, memory.bytes().size());
  PoisonArgs args = bind(plan, memory.data(), plan.tables.bytes().data());
  args.offset = offset;
  launch("kvcts_write_poison", args, plan.blocks());
}

TEST(DevicePoison, MatchesTheHostInAnyRanges) {
  const std::vector<std::vector<Range>> all{
      {{0, 100000}}, {{3, 50000}, {50001, 99999}}, {{1, 2}, {15, 17}, {32, 33}, {40, 40}, {64, 4000}}};
  for (const auto& ranges : all) {
    Memory memory(100000, 0xff);
    poison(memory, ranges, 1234);
    std::vector<u8> expected(100000, 0xff);
    for (const Range& r : ranges)
      kernels::fill_poison(1234, static_cast<i64>(r.begin), std::span(expected).subspan(r.begin, r.end - r.begin));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory.data()));
  }
}

TEST(DevicePoison, ContinuesAcrossAKeyBoundary) {
  const u64 border = u64{1} << 34;  // where poison_row() changes
  Memory memory(64);
  const std::vector<Range> all{{0, 64}};
  poison(memory, all, 5, border - 32);
  std::vector<u8> expected(64);
  kernels::fill_poison(5, static_cast<i64>(border - 32), expected);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory.data()));
}

RC_GTEST_PROP(DevicePoison, ManyShortRangesAreWrittenAndChecked, ()) {
  std::vector<Range> ranges;
  u64 at = 0;
  const int count = *rc::gen::inRange(1, 200);
  for (int k = 0; k < count; ++k) {
    const u64 begin = at + *rc::gen::inRange<u64>(0, 40);
    at = begin + *rc::gen::element<u64>(0, 1, 7, 16, 100);
    ranges.push_back({begin, at});
  }
  Memory memory(at + 1, 0xff);
  poison(memory, ranges, 9);
  std::vector<u8> expected(at + 1, 0xff);
  for (const Range& r : ranges)
    kernels::fill_poison(9, static_cast<i64>(r.begin), std::span(expected).subspan(r.begin, r.end - r.begin));
  RC_ASSERT(std::equal(expected.begin(), expected.end(), memory.data()));

  const PoisonPlan plan = plan_poison(ranges, 9, at + 1);
  const u64 hit = *rc::gen::inRange<u64>(0, at + 1);
  const bool inside =
      std::any_of(ranges.begin(), ranges.end(), [&](const Range& r) { return r.begin <= hit && hit < r.end; });
  memory.data()[hit] ^= 4;
  Watch watch;
  launch("kvcts_check_poison", bind(plan, memory.data(), plan.tables.bytes().data(), watch.probe), plan.blocks());
  RC_ASSERT(watch.found.wrong_bytes == (inside ? 1U : 0U));
  RC_ASSERT(watch.listed() == (inside ? std::vector<u64>{hit} : std::vector<u64>{}));
}

TEST(DevicePoison, RefusesRangesOutsideTheBuffer) {
  EXPECT_THROW(plan_poison(std::vector<Range>{{0, 65}}, 1, 64), layout::Error);
  EXPECT_THROW(plan_poison(std::vector<Range>{{8, 16}, {12, 20}}, 1, 64), layout::Error);
}

TEST(DeviceCompare, FindsEveryDifference) {
  for (const std::size_t bytes : {1, 15, 16, 17, 40000}) {
    Memory a(bytes, 3), b(bytes, 3);
    Watch same;
    launch("kvcts_compare", CompareArgs{a.data(), b.data(), bytes, same.probe}, 4);
    EXPECT_EQ(same.found.wrong_bytes, 0U);
    a.data()[bytes - 1] = 4;
    a.data()[0] = 4;
    a.data()[bytes] = 9;  // beyond the end: unowned
    Watch two;
    launch("kvcts_compare", CompareArgs{a.data(), b.data(), bytes, two.probe}, 4);
    EXPECT_EQ(two.found.wrong_bytes, bytes == 1 ? 1U : 2U);
    EXPECT_EQ(two.listed().back(), bytes - 1);
    EXPECT_EQ(two.found.first, 0U);
  }
}

/// digest/1 from its contract.
u64 digest(std::span<const u8> bytes) {
  u64 sum = kernels::mix(bytes.size());
  for (std::size_t i = 0; i * 8 < bytes.size(); ++i) {
    u64 word = 0;
    for (std::size_t k = 0; k < 8 && i * 8 + k < bytes.size(); ++k) word |= u64{bytes[i * 8 + k]} << (8 * k);
    sum += kernels::mix(word + (i + 1) * 0x9e3779b97f4a7c15u);
  }
  return sum;
}

TEST(DeviceDigest, MatchesTheSumOfTheContract) {
  for (const std::size_t bytes : {1, 7, 8, 9, 16, 17, 24, 16384, 50001}) {
    Memory memory(bytes);
    kernels::fill_poison(3, 0, memory.bytes());
    memory.data()[bytes] = 0xab;
    u64 sum = 0;
    launch("kvcts_digest", DigestArgs{memory.data(), bytes, &sum}, 5);
    EXPECT_EQ(sum, digest(memory.bytes())) << bytes;
  }
}

TEST(DeviceRead, ReadsWithoutKeepingAnything) {
  Memory memory(70000, 5);
  u64 never = 0;
  launch("kvcts_read", ReadArgs{memory.data(), 70000, &never, u64{1} << 40}, 5);
  EXPECT_EQ(never, 0U);
}

}  // namespace
}  // namespace kvcts::cuda
