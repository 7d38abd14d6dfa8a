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

TEST(DeviceScatterAndGather, FollowSlotMappingAndBlockTable) {
  constexpr i64 heads = 3, d = 40, n = 8, blocks = 9, tokens = 21;
  constexpr u64 element = 2, row = d * element;
  for (const u64 x : {std::uint64_t{d}, std::uint64_t{8}}) {  // all channels together, or x of them
    const u64 run_bytes = x * element, runs = d / static_cast<i64>(x);
    // [block, head, D/x, slot, x]
    const Paged paged{heads * n * row, run_bytes, n * row, n * run_bytes};
    Memory rows(tokens * heads * row), cache(blocks * heads * n * row, 0xee);
    std::iota(rows.data(), rows.data() + rows.bytes().size(), u8{1});
    std::vector<i64> slots;
    for (i64 t = 0; t < tokens; ++t) slots.push_back(t == 5 ? -1 : (t * 11 + 3) % (blocks * n));
    ScatterArgs scatter;
    scatter.rows = rows.data();
    scatter.token_stride = heads * row;
    scatter.head_stride = row;
    scatter.cache = cache.data();
    scatter.slot_mapping = slots.data();
    scatter.tokens = tokens;
    scatter.heads = divider(heads, tokens * heads);
    scatter.block_size = divider(n, blocks * n);
    scatter.paged = paged;
    const std::vector<u64> strides{paged.block, paged.slot,           paged.head,
                                   paged.run,   scatter.token_stride, scatter.head_stride};
    shape_copy(scatter, run_bytes, static_cast<u64>(runs), strides);
    std::vector<u8> wanted(cache.bytes().begin(), cache.bytes().end());
    for (i64 t = 0; t < tokens; ++t) {
      if (slots[static_cast<std::size_t>(t)] < 0) continue;
      const i64 block = slots[static_cast<std::size_t>(t)] / n, slot = slots[static_cast<std::size_t>(t)] % n;
      for (i64 h = 0; h < heads; ++h) {
        for (i64 c = 0; c < d; ++c) {
          const i64 xi = static_cast<i64>(x);
          const i64 to = (((block * heads + h) * (d / xi) + c / xi) * n + slot) * xi + c % xi;
          const i64 from = (t * heads + h) * d + c;
          for (i64 b = 0; b < 2; ++b) wanted[static_cast<std::size_t>(to * 2 + b)] = rows.data()[from * 2 + b];
        }
      }
    }
    launch("kvcts_scatter", scatter, 3);
    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), cache.data())) << x;

    // Requests of 13, 7 and 4 tokens; the last one has no block: its rows are not written.
    const std::vector<std::int32_t> table{8, 0, -1, 3, 7, -1, -1, 2, 2};
    const std::vector<u64> first{0, 13, 20, 24};
    Memory out(24 * heads * row, 0x11);
    GatherArgs gather;
    gather.cache = cache.data();
    gather.rows = out.data();
    gather.block_table = table.data();
    gather.first_token = first.data();
    gather.requests = 3;
    gather.table_stride = 3;
    gather.tokens = 24;
    gather.heads = divider(heads, 24 * heads);
    gather.block_size = divider(n, 24);
    gather.paged = paged;
    shape_copy(gather, run_bytes, static_cast<u64>(runs), strides);
    launch("kvcts_gather", gather, 3);
    const auto rest = out.bytes().subspan(20 * heads * row);
    EXPECT_TRUE(std::all_of(rest.begin(), rest.end(), [](u8 byte) { return byte == 0x11; }));
    for (i64 t = 0; t < 20; ++t) {
      const i64 request = t < 13 ? 0 : 1, position = t - (t < 13 ? 0 : 13);
      const i64 block = table[static_cast<std::size_t>(request * 3 + position / n)], slot = position % n;
      for (i64 h = 0; h < heads; ++h) {
        for (i64 c = 0; c < d; ++c) {
          const i64 xi = static_cast<i64>(x);
          const i64 from = (((block * heads + h) * (d / xi) + c / xi) * n + slot) * xi + c % xi,
                    to = (t * heads + h) * d + c;
          ASSERT_EQ(out.data()[to * 2], cache.data()[from * 2]) << t << ' ' << h << ' ' << c;
          ASSERT_EQ(out.data()[to * 2 + 1], cache.data()[from * 2 + 1]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcts::cuda
