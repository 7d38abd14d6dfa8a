// Relayout, scatter and gather by the device kernels' bodies against plain loops over coordinates.
#include <numeric>

#include "kernels/cuda/testing/twin.hpp"
#include "kernels/generate.hpp"
#include "kernels/poison.hpp"

namespace kvcts::cuda {
namespace {

using layout::Axis;
using layout::Dtype;
using layout::Mode;
using layout::Plane;
using testing::launch;
using testing::Memory;
using testing::packed;

constexpr i64 L = 2, K = 2, H = 3, B = 5;
Plane nhd(Dtype t, i64 n, i64 d) {
  return packed(t,
                {{Axis::layer, L}, {Axis::kv, K}, {Axis::block, B}, {Axis::slot, n}, {Axis::head, H}, {Axis::channel, d}});
}
Plane hnd(Dtype t, i64 n, i64 d) {
  return packed(t,
                {{Axis::block, B}, {Axis::layer, L}, {Axis::kv, K}, {Axis::head, H}, {Axis::slot, n}, {Axis::channel, d}});
}
Plane x_packed(Dtype t, i64 n, i64 d) {
  return packed(t, {{Axis::layer, L},
                    {Axis::kv, K},
                    {Axis::block, B},
                    {Axis::head, H},
                    {Axis::channel, d / 8, 0, 8},
                    {Axis::slot, n},
                    {Axis::channel, 8}});
}
Plane transposed(Dtype t, i64 n, i64 d) {
  return packed(t,
                {{Axis::layer, L}, {Axis::kv, K}, {Axis::block, B}, {Axis::head, H}, {Axis::channel, d}, {Axis::slot, n}});
}

/// Block ids of position 0, 1, ... of a request on each side.
std::vector<TokenMove> moves(std::vector<i64> from_ids, i64 from_n, std::vector<i64> to_ids, i64 to_n, i64 tokens) {
  std::vector<TokenMove> out;
  for (i64 t = 0; t < tokens; ++t) {
    out.push_back(
        {from_ids[static_cast<std::size_t>(t / from_n)], t % from_n, to_ids[static_cast<std::size_t>(t / to_n)], t % to_n});
  }
  return out;
}

void check_pair(const Plane& from, i64 from_n, const Plane& to, i64 to_n, u64 from_base, u64 to_base, i64 tokens) {
  const auto list = moves({4, 0, 2, 1}, from_n, {1, 3, 0, 2}, to_n, tokens);
  std::vector<kernels::BlockContent> from_content, to_content;
  for (const TokenMove& t : list) {
    const i64 number = &t - list.data();
    from_content.push_back({t.from_block, 1, number, t.from_slot, 1});
    to_content.push_back({t.to_block, 1, number, t.to_slot, 1});
  }
  const std::size_t size = 300000;
  Memory source(size), seen(size);
  std::vector<u8> wanted(size);
  kernels::fill_poison(1, 0, source.bytes());
  kernels::fill_poison(2, 0, seen.bytes());
  kernels::fill_poison(2, 0, wanted);
  kernels::generate(source.bytes().subspan(from_base), from, from_content, {}, 0);
  kernels::generate(std::span(wanted).subspan(to_base), to, to_content, {}, 0);
  const RelayoutPlan plan = plan_relayout(from, from_base, to, to_base, list);
  launch("kvcts_relayout", bind(plan, source.data(), seen.data(), plan.tables.bytes().data()), plan.blocks());
  ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), seen.data()))
      << layout::to_text(from) << " -> " << layout::to_text(to);
  i64 d = 1;
  for (const Mode& mode : from.modes) d *= mode.axis == Axis::channel ? mode.extent : 1;
  EXPECT_EQ(plan.bytes * 8, static_cast<u64>(tokens * L * K * H * d * layout::bits(from.dtype)));
}

TEST(DeviceRelayout, MovesAnyLayoutToAnyOther) {
  for (const Dtype t : {Dtype::fp16, Dtype::fp32, Dtype::e4m3fn}) {
    for (const i64 d : {8, 24, 64}) {
      const std::vector<Plane> from{nhd(t, 16, d), hnd(t, 16, d), x_packed(t, 16, d), transposed(t, 16, d)};
      const std::vector<Plane> to{nhd(t, 8, d), hnd(t, 8, d), x_packed(t, 8, d), transposed(t, 8, d)};
      for (const Plane& a : from) {
        for (const Plane& b : to) {
          check_pair(a, 16, b, 8, 0, 0, 29);
          check_pair(b, 8, a, 16, 16, 0, 29);
          check_pair(a, 16, b, 8, 4, 8, 29);
        }
      }
    }
  }
}

TEST(DeviceRelayout, UsesTheWidestAccessBothSidesAllow) {
  const Dtype t = Dtype::fp16;
  const auto list = moves({0}, 16, {1}, 16, 16);
  EXPECT_EQ(plan_relayout(nhd(t, 16, 64), 0, hnd(t, 16, 64), 0, list).args.access, 16U);
  EXPECT_EQ(plan_relayout(nhd(t, 16, 64), 0, x_packed(t, 16, 64), 0, list).args.access, 16U);
  EXPECT_EQ(plan_relayout(nhd(t, 16, 64), 0, hnd(t, 16, 64), 4, list).args.access, 4U);
  EXPECT_EQ(plan_relayout(nhd(t, 16, 64), 0, transposed(t, 16, 64), 0, list).args.access, 2U);
}

TEST(DeviceRelayout, ConvertsTheNibbleOrder) {
  Plane low = nhd(Dtype::e2m1, 16, 32), high = hnd(Dtype::e2m1, 16, 32);
  high.high_nibble_first = true;
  check_pair(low, 16, high, 16, 0, 0, 30);
}

TEST(DeviceRelayout, RefusesIncompatiblePlanes) {
  const auto list = moves({0}, 16, {1}, 16, 16);
  EXPECT_THROW(plan_relayout(nhd(Dtype::fp16, 16, 64), 0, nhd(Dtype::bf16, 16, 64), 0, list), layout::Error);
  EXPECT_THROW(plan_relayout(nhd(Dtype::fp16, 16, 64), 0, nhd(Dtype::fp16, 16, 32), 0, list), layout::Error);
  EXPECT_THROW(plan_relayout(nhd(Dtype::fp16, 16, 64), 0, nhd(Dtype::fp16, 16, 64), 0, moves({9}, 16, {1}, 16, 4)),
               layout::Error);
  EXPECT_THROW(plan_relayout(nhd(Dtype::int4, 16, 8), 0, transposed(Dtype::int4, 16, 8), 0, list), layout::Error);
}

/// A paged cache [block, head, D/x, slot, x] of 9 blocks, and rows [token, head, D].
struct PagedCache {
  static constexpr i64 heads = 3, d = 40, n = 8, blocks = 9;
  static constexpr u64 element = 2, row = d * element;

  PagedCache(i64 together, i64 tokens)
      : x(together), rows(static_cast<u64>(tokens * heads) * row, 0x11), cache(blocks * heads * n * row, 0xee) {}

  i64 in_cache(i64 block, i64 slot, i64 head, i64 channel) const {
    return (((block * heads + head) * (d / x) + channel / x) * n + slot) * x + channel % x;
  }
  static i64 in_rows(i64 token, i64 head, i64 channel) { return (token * heads + head) * d + channel; }

  /// What the arguments of scatter and gather have in common.
  template <class Args>
  void describe(Args& args, i64 tokens) {
    const u64 run_bytes = static_cast<u64>(x) * element;
    args.rows = rows.data();
    args.cache = cache.data();
    args.heads = divider(heads, static_cast<u64>(tokens * heads));
    args.paged = {heads * n * row, run_bytes, n * row, n * run_bytes};
    const std::vector<u64> strides{args.paged.block, args.paged.slot, args.paged.head, args.paged.run, heads * row, row};
    shape_copy(args, run_bytes, static_cast<u64>(d / x), strides);
  }

  i64 x;  ///< channels together
  Memory rows, cache;
};

void count_up(Memory& memory) { std::iota(memory.data(), memory.data() + memory.bytes().size(), u8{1}); }

TEST(DeviceScatter, FollowsTheSlotMapping) {
  constexpr i64 tokens = 21;
  for (const i64 x : {PagedCache::d, i64{8}}) {
    PagedCache paged(x, tokens);
    count_up(paged.rows);
    std::vector<i64> slots;
    for (i64 t = 0; t < tokens; ++t) slots.push_back(t == 5 ? -1 : (t * 11 + 3) % (paged.blocks * paged.n));
    ScatterArgs args;
    paged.describe(args, tokens);
    args.token_stride = paged.heads * paged.row;
    args.head_stride = paged.row;
    args.slot_mapping = slots.data();
    args.tokens = tokens;
    args.block_size = divider(paged.n, paged.blocks * paged.n);
    std::vector<u8> wanted(paged.cache.bytes().begin(), paged.cache.bytes().end());
    for (i64 t = 0; t < tokens; ++t) {
      const i64 to = slots[static_cast<std::size_t>(t)];
      for (i64 h = 0; to >= 0 && h < paged.heads; ++h)
        for (i64 c = 0; c < paged.d; ++c)
          std::copy_n(paged.rows.data() + 2 * paged.in_rows(t, h, c), 2,
                      wanted.data() + 2 * paged.in_cache(to / paged.n, to % paged.n, h, c));
    }
    launch("kvcts_scatter", args, 3);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), paged.cache.data())) << x;
  }
}

// Requests of 13, 7 and 4 tokens; the last one has no block: its rows are not written.
TEST(DeviceGather, FollowsTheBlockTable) {
  constexpr i64 tokens = 24;
  const std::vector<std::int32_t> table{8, 0, -1, 3, 7, -1, -1, 2, 2};
  const std::vector<u64> first{0, 13, 20, 24};
  for (const i64 x : {PagedCache::d, i64{8}}) {
    PagedCache paged(x, tokens);
    count_up(paged.cache);
    std::vector<u8> wanted(paged.rows.bytes().begin(), paged.rows.bytes().end());
    for (i64 t = 0; t < 20; ++t) {
      const i64 request = t < 13 ? 0 : 1, position = t - (t < 13 ? 0 : 13);
      const i64 block = table[static_cast<std::size_t>(request * 3 + position / paged.n)];
      for (i64 h = 0; h < paged.heads; ++h)
        for (i64 c = 0; c < paged.d; ++c)
          std::copy_n(paged.cache.data() + 2 * paged.in_cache(block, position % paged.n, h, c), 2,
                      wanted.data() + 2 * paged.in_rows(t, h, c));
    }
    GatherArgs args;
    paged.describe(args, tokens);
    args.block_table = table.data();
    args.first_token = first.data();
    args.requests = 3;
    args.table_stride = 3;
    args.tokens = tokens;
    args.block_size = divider(paged.n, tokens);
    launch("kvcts_gather", args, 3);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), paged.rows.data())) << x;
  }
}

}  // namespace
}  // namespace kvcts::cuda
