// Generate and check in place, by the device kernels' bodies, against the bit-by-bit reference.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/testing/twin.hpp"
#include "kernels/poison.hpp"
#include "kernels/testing/reference.hpp"

namespace kvcts::cuda {
namespace {

using kernels::BlockContent;
using kernels::TagKey;
using layout::Axis;
using layout::Component;
using layout::Dtype;
using layout::Mode;
using layout::Plane;
using testing::launch;
using testing::Memory;
using testing::packed;
using testing::Watch;

i64 bytes_of(const Plane& plane) {
  i64 bits = kernels::reference::width(plane.dtype);
  for (const Mode& mode : plane.modes) bits = std::max(bits, mode.stride * mode.extent);
  return (plane.offset + bits + 7) / 8;
}

std::vector<BlockContent> whole_blocks(i64 blocks, i64 tokens) {
  std::vector<BlockContent> out;
  for (i64 b = 0; b < blocks; ++b) out.push_back({b, 4, (blocks - 1 - b) * tokens, 0, tokens});
  return out;
}

/// The state of a memory with an allocation at `base`: poison, then tags; by the twin and by the reference.
struct Scene {
  Scene(const Plane& p, std::vector<BlockContent> c, u64 at, i64 bytes, TagKey k = {6, 1, 0})
      : plane(p),
        content(std::move(c)),
        base(at),
        size(at + static_cast<u64>(bytes) + 64),
        key(k),
        memory(size),
        expected(size) {
    kernels::fill_poison(poison, 0, expected);
    const auto allocation = std::span(expected).subspan(base, static_cast<std::size_t>(bytes));
    kernels::reference::generate(allocation, plane, content, key, 9);
    const std::vector<Range> all{{0, size}};
    const PoisonPlan fill = plan_poison(all, poison, size);
    launch("kvcts_write_poison", bind(fill, memory.data(), fill.tables.bytes().data()), fill.blocks());
    rows = plan_rows(content, plane, key, 9, base, size);
    launch(rows.by_code ? "kvcts_generate_codes" : "kvcts_generate_rows",
           bind(rows, memory.data(), rows.tables.bytes().data()), rows.blocks());
  }
  bool agrees() { return std::equal(expected.begin(), expected.end(), memory.data()); }

  /// Checks tags and poison in place.
  Watch check() {
    Watch watch;
    launch("kvcts_check_rows", bind(rows, memory.data(), rows.tables.bytes().data(), watch.probe), rows.blocks());
    const std::vector<Range> free = unwritten(size, base, {&plane, 1}, content);
    const PoisonPlan rest = plan_poison(free, poison, size);
    launch("kvcts_check_poison", bind(rest, memory.data(), rest.tables.bytes().data(), watch.probe), rest.blocks());
    return watch;
  }

  Plane plane;
  std::vector<BlockContent> content;
  u64 base, size, poison{77};
  TagKey key;
  Memory memory;
  std::vector<u8> expected;
  RowsPlan rows;
};

std::vector<Plane> common_planes(Dtype dtype, i64 d) {
  const auto axes = [](auto... modes) { return std::vector<Mode>{modes...}; };
  std::vector<Plane> planes{
      packed(dtype, axes(Mode{Axis::layer, 2}, Mode{Axis::kv, 2}, Mode{Axis::block, 3}, Mode{Axis::slot, 4},
                         Mode{Axis::head, 3}, Mode{Axis::channel, d})),
      packed(dtype, axes(Mode{Axis::block, 3}, Mode{Axis::kv, 2}, Mode{Axis::head, 3}, Mode{Axis::slot, 4},
                         Mode{Axis::layer, 2}, Mode{Axis::channel, d})),
      packed(dtype, axes(Mode{Axis::block, 3}, Mode{Axis::head, 2}, Mode{Axis::channel, d}, Mode{Axis::slot, 4})),
  };
  if (d % 8 == 0) {
    planes.push_back(packed(dtype, axes(Mode{Axis::block, 3}, Mode{Axis::head, 2}, Mode{Axis::channel, d / 8, 0, 8},
                                        Mode{Axis::slot, 4}, Mode{Axis::channel, 8})));
  }
  return planes;
}

TEST(DeviceRows, GenerateCommonLayoutsOfEveryDtypeAtAnyAlignment) {
  for (const Dtype dtype : kernels::reference::dtypes()) {
    for (const i64 d : {1, 2, 3, 7, 40, 128}) {
      for (Plane plane : common_planes(dtype, d)) {
        for (const bool high : {false, true}) {
          for (const Component component : {Component::data, Component::scale}) {
            for (const u64 base : {0, 16, 4, 7}) {
              plane.high_nibble_first = high;
              plane.component = component;
              Scene scene(plane, whole_blocks(3, 4), base, bytes_of(plane));
              ASSERT_TRUE(scene.agrees()) << layout::to_text(plane) << " base " << base;
              if (scene.rows.by_code) continue;
              ASSERT_EQ(scene.check().found.wrong_bytes, 0U) << layout::to_text(plane) << " base " << base;
            }
          }
        }
      }
    }
  }
}

TEST(DeviceRows, TakeTheFastPathForWholeAlignedRows) {
  const Plane plane = packed(Dtype::fp16, {{Axis::block, 40}, {Axis::slot, 16}, {Axis::head, 2}, {Axis::channel, 64}});
  Scene scene(plane, whole_blocks(40, 16), 4096, bytes_of(plane));
  EXPECT_EQ(scene.rows.args.whole, 1U);
  EXPECT_EQ(scene.rows.args.row_vectors.divisor, 8U);
  EXPECT_TRUE(scene.agrees());
  const Plane split = packed(
      Dtype::fp16, {{Axis::block, 40}, {Axis::head, 2}, {Axis::channel, 8, 0, 8}, {Axis::slot, 16}, {Axis::channel, 8}});
  Scene packed_x(split, whole_blocks(40, 16), 4096, bytes_of(split));
  EXPECT_EQ(packed_x.rows.args.whole, 1U);
  EXPECT_EQ(packed_x.rows.args.rows_fastest, 1U);
  EXPECT_TRUE(packed_x.agrees());
}

TEST(DeviceRows, HandlePartialAndMissingBlocks) {
  const Plane plane =
      packed(Dtype::bf16, {{Axis::block, 9}, {Axis::kv, 2}, {Axis::slot, 16}, {Axis::head, 2}, {Axis::channel, 24}});
  for (const u64 base : {0, 2, 48}) {
    Scene scene(plane,
                {{6, 1, 0, 0, 16}, {0, 1, 16, 0, 16}, {4, 1, 32, 0, 8}, {2, 2, 0, 5, 3}, {77, 3, 0, 0, 16}, {5, 4, 0, 0, 0}},
                base, bytes_of(plane));
    EXPECT_TRUE(scene.agrees());
    EXPECT_EQ(scene.check().found.wrong_bytes, 0U);
  }
}

TEST(DeviceRows, CountAndLocateEveryWrongByte) {
  const Plane plane = packed(Dtype::bf16, {{Axis::block, 5}, {Axis::slot, 8}, {Axis::head, 2}, {Axis::channel, 20}});
  for (const u64 base : {16, 30}) {
    Scene scene(plane, {{1, 1, 0, 0, 8}, {3, 1, 8, 2, 3}}, base, bytes_of(plane));
    for (u64 at = 0; at < scene.size; ++at) {
      scene.memory.data()[at] ^= 0x40;
      Watch watch = scene.check();
      ASSERT_EQ(watch.found.wrong_bytes, 1U) << at;
      ASSERT_EQ(watch.found.first, at);
      ASSERT_EQ(watch.listed(), std::vector<u64>{at});
      scene.memory.data()[at] ^= 0x40;
    }
    for (auto& byte : scene.memory.bytes()) byte ^= 0x81;
    EXPECT_EQ(scene.check().found.wrong_bytes, scene.size);
  }
}

TEST(DeviceRows, ListTheWrongBytesInAWindow) {
  const Plane plane = packed(Dtype::fp16, {{Axis::block, 4}, {Axis::slot, 16}, {Axis::channel, 64}});
  Scene scene(plane, whole_blocks(4, 16), 0, bytes_of(plane));
  for (const u64 at : {5, 100, 101, 3000}) scene.memory.data()[at] ^= 1;
  Watch watch(6, 2000);
  launch("kvcts_check_rows", bind(scene.rows, scene.memory.data(), scene.rows.tables.bytes().data(), watch.probe),
         scene.rows.blocks());
  EXPECT_EQ(watch.found.wrong_bytes, 4U);
  EXPECT_EQ(watch.found.first, 100U);
  EXPECT_EQ(watch.listed(), (std::vector<u64>{100, 101}));
  Watch small(0, ~u64{0}, 2);
  launch("kvcts_check_rows", bind(scene.rows, scene.memory.data(), scene.rows.tables.bytes().data(), small.probe),
         scene.rows.blocks());
  EXPECT_EQ(small.found.listed, 4U);
}

TEST(DeviceRows, WritePlanesWithoutBlocksOnce) {
  Plane plane = packed(Dtype::fp32, {{Axis::layer, 3}, {Axis::kv, 2}});
  plane.component = Component::global_scale;
  Scene scene(plane, whole_blocks(3, 4), 8, bytes_of(plane));
  EXPECT_TRUE(scene.agrees());
  EXPECT_EQ(scene.check().found.wrong_bytes, 0U);
}

TEST(DeviceRows, RefuseAnInvalidPlane) {
  const Plane good = packed(Dtype::bf16, {{Axis::block, 2}, {Axis::slot, 2}, {Axis::channel, 8}});
  const auto content = whole_blocks(2, 2);
  EXPECT_NO_THROW(plan_rows(content, good, {}, 0, 0, 64));
  EXPECT_THROW(plan_rows(content, good, {}, 0, 0, 63), layout::Error);
  EXPECT_THROW(plan_rows(content, good, {}, 0, 1, 64), layout::Error);
  EXPECT_THROW(plan_rows(content, good, {}, 0, 65, 64), layout::Error);
  Plane odd = good;
  odd.offset = 4;
  EXPECT_THROW(plan_rows(content, odd, {}, 0, 0, 128), layout::Error);
}

TEST(DeviceRows, CountIn64Bits) {
  // A pool of 6 GiB that is only planned: its last block, and so the addresses of its rows, are beyond 4 GiB.
  const Plane plane =
      packed(Dtype::fp16, {{Axis::block, i64{3} << 14}, {Axis::slot, 16}, {Axis::head, 8}, {Axis::channel, 512}});
  const i64 last = (i64{3} << 14) - 1;
  const std::vector<BlockContent> content{{last, 1, 0, 15, 1}};
  const u64 size = u64{6} << 30;
  const RowsPlan rows = plan_rows(content, plane, {}, 0, 0, size);
  Row row;
  load_row(bind(rows, nullptr, rows.tables.bytes().data()), 15 * 8 + 7, row);
  EXPECT_EQ(row.bit, static_cast<i64>((size - 1024) * 8));
  const std::vector<Range> free = unwritten(size, 0, {&plane, 1}, content);
  ASSERT_EQ(free.size(), 1U);
  EXPECT_EQ(free.front().end, size - 8 * 1024);
}

RC_GTEST_PROP(DeviceDivider, IsExact, ()) {
  const u64 limit = *rc::gen::inRange<u64>(1, u64{1} << 50), divisor = *rc::gen::inRange<u64>(1, u64{1} << 40);
  const Divider by = divider(divisor, limit);
  for (int k = 0; k < 20; ++k) {
    const u64 value = *rc::gen::inRange<u64>(0, limit + 1);
    RC_ASSERT(quotient(by, value) == value / divisor);
  }
  RC_ASSERT(quotient(by, limit) == limit / divisor);
  const u64 edge = limit / divisor * divisor;
  RC_ASSERT(quotient(by, edge) == edge / divisor);
  RC_ASSERT(edge == 0 || quotient(by, edge - 1) == (edge - 1) / divisor);
}

RC_GTEST_PROP(DeviceDivider, IsExactForSmallOnes, ()) {
  const u32 divisor = *rc::gen::inRange<u32>(1, 1 << 20);
  const SmallDivider by = small_divider(divisor, "anything");
  const u32 value = *rc::gen::inRange<u32>(0, 0x7fffffffu);
  RC_ASSERT(quotient(by, value) == value / divisor);
  RC_ASSERT(quotient(by, value / divisor * divisor) == value / divisor);
  RC_ASSERT(quotient(by, 0x7fffffffu) == 0x7fffffffu / divisor);
}

}  // namespace
}  // namespace kvcts::cuda
