#include "kernels/generate.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "kernels/poison.hpp"
#include "kernels/testing/reference.hpp"
#include "kernels/walk.hpp"

namespace kvcts::kernels {
namespace {

// More cases than RapidCheck's hundred, unless the environment says otherwise.
[[maybe_unused]] const int more_cases = setenv("RC_PARAMS", "max_success=2000", 0);

using layout::Axis;
using layout::Component;
using layout::Dtype;
using layout::Mode;
using layout::Plane;

/// Generates twice, by the kernel and by the reference, over the same noise, and returns whether all bytes agree: those of
/// the plane and every other bit.
bool agrees(const Plane& plane, std::size_t bytes, const std::vector<BlockContent>& content, const TagKey& key,
            std::uint32_t generation, std::vector<std::uint8_t>* made = nullptr) {
  std::vector<std::uint8_t> ours(bytes);
  fill_poison(key.seed, 0, ours);
  auto expected = ours;
  generate(ours, plane, content, key, generation);
  reference::generate(expected, plane, content, key, generation);
  if (made != nullptr) *made = ours;
  return ours == expected;
}

std::string text(const Plane& plane) {
  std::ostringstream out;
  out << "component " << int(plane.component) << " dtype " << int(plane.dtype) << (plane.high_nibble_first ? " hi" : "")
      << " offset " << plane.offset << " origin";
  for (const auto v : plane.origin.v) out << ' ' << v;
  for (const Mode& m : plane.modes)
    out << "; " << layout::letter(m.axis) << ' ' << m.extent << '*' << m.stride << '@' << m.step;
  return out.str();
}

/// A plane with random modes, one-to-one, and the bytes that it needs.
struct Drawn {
  Plane plane;
  std::size_t bytes{0};
  std::vector<BlockContent> content;
};

Drawn draw() {
  Drawn out;
  Plane& plane = out.plane;
  plane.dtype = *rc::gen::elementOf(reference::dtypes());
  plane.component = *rc::gen::element(Component::data, Component::data, Component::scale, Component::global_scale);
  plane.high_nibble_first = *rc::gen::arbitrary<bool>();
  const int width = reference::width(plane.dtype);

  // Axes: none, one, two or three digits each; the innermost digit's step may leave gaps.
  std::vector<Mode> modes;
  for (const Axis axis : layout::all_axes) {
    if (*rc::gen::inRange(0, 6) == 0) continue;
    const bool channel = axis == Axis::channel;
    const int digits = *rc::gen::weightedElement<int>({{6, 1}, {3, 2}, {1, 3}});
    std::int64_t step = *rc::gen::weightedElement<std::int64_t>({{6, 1}, {1, 2}, {1, 40}});
    for (int d = 0; d < digits; ++d) {
      const std::int64_t extent = channel && d == 0 ? *rc::gen::element<std::int64_t>(1, 2, 3, 4, 8, 16, 20, 33)
                                                    : *rc::gen::inRange<std::int64_t>(1, axis == Axis::slot ? 6 : 4);
      modes.push_back({axis, extent, 0, step});
      step *= extent;
    }
    plane.origin[axis] = axis == Axis::kv ? *rc::gen::inRange(0, 2) : *rc::gen::element<std::int64_t>(0, 0, 1, 2, 5, 64);
  }
  std::int64_t most_kv = plane.origin[Axis::kv];  // kv has four bits
  for (const Mode& mode : modes) most_kv += mode.axis == Axis::kv ? (mode.extent - 1) * mode.step : 0;
  if (most_kv >= 16) std::erase_if(modes, [](const Mode& m) { return m.axis == Axis::kv; });

  // Places: packed from the innermost on in a random order (channel innermost half of the time), with random padding;
  // negative strides by starting at the far end.
  const bool channel_inner = *rc::gen::arbitrary<bool>();
  std::vector<std::uint32_t> weights =
      *rc::gen::container<std::vector<std::uint32_t>>(modes.size(), rc::gen::arbitrary<std::uint32_t>());
  std::vector<std::size_t> order(modes.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool ca = modes[a].axis == Axis::channel, cb = modes[b].axis == Axis::channel;
    if (channel_inner && ca != cb) return ca;
    if (channel_inner && ca) return a < b;
    return weights[a] < weights[b];
  });
  const bool nibbles = plane.high_nibble_first && width == 4;
  const std::int64_t grain =
      *rc::gen::weightedElement<std::int64_t>({{4, 8}, {2, std::min(width, 8)}, {nibbles ? 0 : 1, 1}});
  const auto padding = [&](int one_in) { return *rc::gen::inRange(0, one_in) == 0 ? grain * *rc::gen::inRange(1, 9) : 0; };
  std::int64_t at = width, offset = padding(2);
  for (const std::size_t k : order) {
    Mode& mode = modes[k];
    mode.stride = at + padding(4);
    at = mode.stride * mode.extent;
    if (*rc::gen::inRange(0, 8) == 0) {
      offset += mode.stride * (mode.extent - 1);
      mode.stride = -mode.stride;
    }
  }
  RC_PRE(at < 400000);
  plane.offset = offset;
  plane.modes = modes;
  out.bytes = std::size_t((offset + at + 7) / 8) + std::size_t(*rc::gen::inRange(0, 5));

  // Content: some blocks, some not in the plane, partial at both ends.
  const int blocks = *rc::gen::inRange(0, 6);
  for (int b = 0; b < blocks; ++b) {
    out.content.push_back({plane.origin[Axis::block] + *rc::gen::inRange<std::int64_t>(-1, 6),
                           *rc::gen::arbitrary<std::uint32_t>(), *rc::gen::element<std::int64_t>(0, 1, 77, 100000),
                           plane.origin[Axis::slot] + *rc::gen::inRange<std::int64_t>(0, 4),
                           *rc::gen::inRange<std::int64_t>(0, 9)});
  }
  // The same block twice with slots in common: the later wins in both implementations only if both walk content in order per
  // slot; the contract does not say, so it is not drawn.
  std::sort(out.content.begin(), out.content.end(), [](auto& a, auto& b) { return a.block < b.block; });
  out.content.erase(std::unique(out.content.begin(), out.content.end(), [](auto& a, auto& b) { return a.block == b.block; }),
                    out.content.end());
  return out;
}

RC_GTEST_PROP(Generate, EqualsTheBruteForceMap, ()) {
  const Drawn drawn = draw();
  const TagKey key{*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::inRange<std::uint32_t>(0, 4),
                   *rc::gen::inRange<std::uint32_t>(0, 3)};
  RC_LOG() << text(drawn.plane) << '\n';
  RC_ASSERT(agrees(drawn.plane, drawn.bytes, drawn.content, key, *rc::gen::arbitrary<std::uint32_t>()));
}

RC_GTEST_PROP(Generate, IsTheSameOnAnyNumberOfThreads, ()) {
  const Drawn drawn = draw();
  const TagKey key{*rc::gen::arbitrary<std::uint64_t>(), 0, 0};
  RC_LOG() << text(drawn.plane) << '\n';
  std::vector<std::uint8_t> one(drawn.bytes, 0x5a);
  generate(one, drawn.plane, drawn.content, key, 9);
  for (const int threads : {0, 2, 3, 7}) {
    std::vector<std::uint8_t> many(drawn.bytes, 0x5a);
    generate(many, drawn.plane, drawn.content, key, 9, threads);
    RC_ASSERT(many == one);
  }
}

/// What check() must say: bytes of a copy that the reference changes.
Difference expected_difference(const std::vector<std::uint8_t>& memory, const Drawn& drawn, const TagKey& key,
                               std::size_t limit) {
  auto right = memory;
  reference::generate(right, drawn.plane, drawn.content, key, 9);
  Difference out;
  for (std::size_t k = 0; k < right.size(); ++k) {
    if (right[k] == memory[k]) continue;
    ++out.wrong_bytes;
    if (out.first.size() < limit) out.first.push_back(std::int64_t(k));
  }
  return out;
}

RC_GTEST_PROP(Check, FindsWhatTheReferenceWouldChange, ()) {
  const Drawn drawn = draw();
  const TagKey key{*rc::gen::arbitrary<std::uint64_t>(), 2, 1};
  RC_LOG() << text(drawn.plane) << '\n';
  std::vector<std::uint8_t> memory(drawn.bytes);
  fill_poison(key.seed, 0, memory);
  const auto limit = *rc::gen::element<std::size_t>(0, 1, 5, 16);
  const auto agree = [&] {
    const Difference expected = expected_difference(memory, drawn, key, limit);
    for (const int threads : {1, 2, 5}) {
      if (!(check(memory, drawn.plane, drawn.content, key, 9, limit, threads) == expected)) return false;
    }
    return true;
  };
  RC_ASSERT(agree());  // nothing has been written yet
  generate(memory, drawn.plane, drawn.content, key, 9);
  RC_ASSERT(check(memory, drawn.plane, drawn.content, key, 9).wrong_bytes == 0);
  const int wrong = *rc::gen::inRange(1, 6);
  for (int k = 0; k < wrong; ++k) {
    memory[*rc::gen::inRange<std::size_t>(0, memory.size())] ^= *rc::gen::inRange<std::uint8_t>(1, 255);
  }
  RC_ASSERT(agree());
}

/// The kernel walks the modes itself; layout's locate() is an independent reading of the same map.
RC_GTEST_PROP(Generate, EveryCodeLiesWhereLocateSays, ()) {
  const Drawn drawn = draw();
  const Plane& plane = drawn.plane;
  const TagKey key{*rc::gen::arbitrary<std::uint64_t>(), 1, 0};
  std::vector<std::uint8_t> made(drawn.bytes);
  generate(made, plane, drawn.content, key, 3);
  const layout::Box box = layout::domain(plane);
  RC_LOG() << text(plane) << '\n';
  const auto holds = [&](layout::Coord at, std::uint32_t generation, std::int64_t token) {
    const RowId id{plane.component, at[Axis::kv], at[Axis::layer], at[Axis::head], token, generation};
    const std::uint64_t row = row_key(key, id);
    for (at[Axis::channel] = box.lo[Axis::channel]; at[Axis::channel] < box.hi[Axis::channel]; ++at[Axis::channel]) {
      const auto place = layout::locate(plane, at);
      if (!place) continue;  // a step leaves gaps
      std::uint32_t found = 0;
      for (int b = 0; b < place->width; ++b) {
        const auto bit = static_cast<std::size_t>(place->bit + b);
        found |= ((made[bit / 8] >> (bit % 8)) & 1u) << b;
      }
      RC_ASSERT(found == tag_code(row, id, plane.dtype, at[Axis::channel]));
    }
  };
  const bool unblocked = std::none_of(plane.modes.begin(), plane.modes.end(),
                                      [](const Mode& m) { return m.axis == Axis::block || m.axis == Axis::slot; });
  layout::Coord at = box.lo;
  for (at[Axis::head] = box.lo[Axis::head]; at[Axis::head] < box.hi[Axis::head]; ++at[Axis::head]) {
    for (at[Axis::kv] = box.lo[Axis::kv]; at[Axis::kv] < box.hi[Axis::kv]; ++at[Axis::kv]) {
      if (unblocked) holds(at, 3, 0);
      for (const BlockContent& block : drawn.content) {
        for (std::int64_t t = 0; !unblocked && t < block.tokens; ++t) {
          at[Axis::block] = block.block;
          at[Axis::slot] = block.first_slot + t;
          holds(at, block.generation, block.first_token + t);
        }
      }
    }
  }
}

std::vector<BlockContent> whole_blocks(std::int64_t blocks, std::int64_t tokens) {
  std::vector<BlockContent> out;
  for (std::int64_t b = 0; b < blocks; ++b) out.push_back({b, 4, (blocks - 1 - b) * tokens, 0, tokens});
  return out;
}

/// Packed strides for modes written outermost first.
Plane packed(Dtype dtype, std::vector<Mode> modes, std::int64_t offset = 0) {
  Plane plane;
  plane.dtype = dtype;
  plane.offset = offset;
  std::int64_t stride = reference::width(dtype);
  for (auto mode = modes.rbegin(); mode != modes.rend(); ++mode) {
    mode->stride = stride;
    stride *= mode->extent;
  }
  plane.modes = std::move(modes);
  return plane;
}

std::vector<Plane> common_planes(Dtype dtype, std::int64_t d) {
  std::vector<Plane> planes{
      packed(dtype,
             {{Axis::layer, 2}, {Axis::kv, 2}, {Axis::block, 3}, {Axis::slot, 4}, {Axis::head, 3}, {Axis::channel, d}}),
      packed(dtype,
             {{Axis::block, 3}, {Axis::kv, 2}, {Axis::head, 3}, {Axis::slot, 4}, {Axis::layer, 2}, {Axis::channel, d}}),
      packed(dtype, {{Axis::block, 3}, {Axis::head, 2}, {Axis::channel, d}, {Axis::slot, 4}}),
  };
  if (d % 8 == 0)
    planes.push_back(packed(
        dtype, {{Axis::block, 3}, {Axis::head, 2}, {Axis::channel, d / 8, 0, 8}, {Axis::slot, 4}, {Axis::channel, 8}}));
  return planes;
}

void expect_agrees_and_finds_a_wrong_byte(const Plane& plane) {
  std::int64_t bits = reference::width(plane.dtype);
  for (const Mode& mode : plane.modes) bits *= mode.extent;
  const auto bytes = static_cast<std::size_t>((plane.offset + bits + 7) / 8);
  std::vector<std::uint8_t> made;
  ASSERT_TRUE(agrees(plane, bytes, whole_blocks(3, 4), {6, 1, 0}, 0, &made)) << text(plane);
  ASSERT_EQ(check(made, plane, whole_blocks(3, 4), {6, 1, 0}, 0), Difference{}) << text(plane);
  made[bytes / 2] ^= 0x11;  // codes of every dtype have bit 0
  ASSERT_EQ(check(made, plane, whole_blocks(3, 4), {6, 1, 0}, 0), (Difference{1, {static_cast<std::int64_t>(bytes / 2)}}))
      << text(plane);
}

/// Real layouts, at sizes that reach every way of writing rows: batches of more than 64 rows, whole rows, x-packed rows,
/// transposed rows, odd widths, rows that start in the middle of a word.
TEST(Generate, MatchesTheReferenceForCommonLayoutsOfEveryDtype) {
  for (const Dtype dtype : reference::dtypes())
    for (const std::int64_t d : {1, 2, 3, 7, 40, 128})
      for (Plane plane : common_planes(dtype, d))
        for (const std::int64_t first : {0, 1, 3, 448})
          for (const bool high : {false, true})
            for (const Component component : {Component::data, Component::scale})
              for (const std::int64_t offset : {0, 16}) {
                plane.high_nibble_first = high;
                plane.component = component;
                plane.offset = offset;
                plane.origin[Axis::channel] = first;
                expect_agrees_and_finds_a_wrong_byte(plane);
                if (HasFatalFailure()) return;
              }
}

TEST(Generate, KeepsNibblesThatShareBytesAcrossRunsAndRows) {
  // Pairs of channels that start in the middle of a byte (12-bit pitch), and rows of an odd number of nibbles.
  Plane pairs;
  pairs.dtype = Dtype::int4;
  pairs.modes = {{Axis::block, 2, 480}, {Axis::slot, 4, 120}, {Axis::channel, 10, 12, 2}, {Axis::channel, 2, 4}};
  const Plane odd = packed(Dtype::e2m1, {{Axis::block, 2}, {Axis::slot, 4}, {Axis::head, 3}, {Axis::channel, 5}}, 4);
  for (Plane plane : {pairs, odd}) {
    for (const bool high : {false, true}) {
      plane.high_nibble_first = high;
      EXPECT_TRUE(agrees(plane, 121, whole_blocks(2, 4), {}, 0)) << text(plane);
      EXPECT_TRUE(agrees(plane, 121, {{1, 2, 3, 1, 2}}, {}, 0)) << text(plane);
    }
  }
}

TEST(Generate, WritesARowAsTagRowDoes) {
  const Plane plane = packed(Dtype::bf16, {{Axis::block, 2}, {Axis::slot, 2}, {Axis::head, 2}, {Axis::channel, 128}});
  std::vector<std::uint8_t> memory(2 * 2 * 2 * 256), row(256);
  generate(memory, plane, std::vector<BlockContent>{{1, 9, 30, 0, 2}}, {3, 2, 1}, 0);
  const RowId id{Component::data, 0, 0, 1, 31, 9};
  tag_row(row_key({3, 2, 1}, id), id, Dtype::bf16, 0, 128, row);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), memory.end() - 256));
  EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + 1024, [](std::uint8_t b) { return b == 0; }));  // block 0 is free
}

TEST(Generate, OriginsLocateTheShardOfARankInTheModel) {
  Plane whole =
      packed(Dtype::fp16, {{Axis::layer, 4}, {Axis::block, 2}, {Axis::slot, 4}, {Axis::head, 8}, {Axis::channel, 16}});
  Plane shard =
      packed(Dtype::fp16, {{Axis::layer, 2}, {Axis::block, 2}, {Axis::slot, 4}, {Axis::head, 4}, {Axis::channel, 16}});
  shard.origin[Axis::layer] = 2;
  shard.origin[Axis::head] = 4;
  std::vector<std::uint8_t> all(4 * 2 * 4 * 8 * 32), part(2 * 2 * 4 * 4 * 32);
  generate(all, whole, whole_blocks(2, 4), {}, 0);
  generate(part, shard, whole_blocks(2, 4), {}, 0);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (std::size_t token = 0; token < 8; ++token) {
      const auto* from = all.data() + (((layer + 2) * 8 + token) * 8 + 4) * 32;
      ASSERT_TRUE(std::equal(from, from + 128, part.data() + (layer * 8 + token) * 128));
    }
  }
}

TEST(Generate, WritesPlanesWithoutBlocksOnce) {
  Plane plane = packed(Dtype::fp32, {{Axis::layer, 3}, {Axis::kv, 2}});
  plane.component = Component::global_scale;
  std::vector<std::uint8_t> made;
  EXPECT_TRUE(agrees(plane, 24, {}, {1, 0, 0}, 5, &made));
  EXPECT_TRUE(agrees(plane, 24, whole_blocks(3, 4), {1, 0, 0}, 5));
  const RowId id{Component::global_scale, 1, 2, 0, 0, 5};
  const std::uint32_t last = made[20] | made[21] << 8 | made[22] << 16 | std::uint32_t(made[23]) << 24;
  EXPECT_EQ(last, tag_code(row_key({1, 0, 0}, id), id, Dtype::fp32, 0));
}

/// Larger than the assumed caches: whole lines and their ends go past them, and no other byte.
TEST(Generate, WritesLargeAllocationsPastTheCaches) {
  const std::size_t bytes = (std::size_t{33} << 20) + 77;
  for (const Dtype dtype : {Dtype::bf16, Dtype::e4m3fn}) {
    const std::int64_t width = reference::width(dtype);
    // Rows with a gap, at odd bytes; x-packed; channel by channel.
    const std::int64_t d = 72, row = d * width + 24;
    Plane gaps;
    gaps.dtype = dtype;
    gaps.offset = 8;
    gaps.modes = {
        {Axis::block, 1000, row * 32 + 8}, {Axis::slot, 16, row * 2}, {Axis::head, 2, row}, {Axis::channel, d, width}};
    const std::vector<Plane> planes{
        gaps,
        packed(dtype,
               {{Axis::block, 1000}, {Axis::head, 2}, {Axis::channel, d / 8, 0, 8}, {Axis::slot, 16}, {Axis::channel, 8}},
               24),
        packed(dtype, {{Axis::block, 1000}, {Axis::head, 2}, {Axis::channel, d}, {Axis::slot, 16}}, 24)};
    for (const Plane& plane : planes) {
      std::vector<std::uint8_t> large(bytes, 0x5a), small(std::size_t{16} << 20, 0x5a);
      generate(large, plane, whole_blocks(1000, 16), {}, 0, 2);
      generate(small, plane, whole_blocks(1000, 16), {}, 0);
      ASSERT_TRUE(std::equal(small.begin(), small.end(), large.begin())) << text(plane);
      ASSERT_TRUE(std::all_of(large.begin() + std::ptrdiff_t(small.size()), large.end(), [](auto b) { return b == 0x5a; }));
      ASSERT_EQ(check(large, plane, whole_blocks(1000, 16), {}, 0, 16, 2), Difference{});
    }
  }
}

TEST(Generate, SplitsALongBlockBetweenThreads) {
  Plane plane = packed(Dtype::bf16, {{Axis::head, 2}, {Axis::slot, 9001}, {Axis::channel, 8}});
  const std::vector<BlockContent> content{{0, 3, 5, 2, 8990}};
  std::vector<std::uint8_t> one(2 * 9001 * 16, 1), many = one;
  auto expected = one;
  generate(one, plane, content, {}, 0);
  generate(many, plane, content, {}, 0, 3);
  reference::generate(expected, plane, content, {}, 0);
  EXPECT_EQ(one, expected);
  EXPECT_EQ(many, expected);
  EXPECT_EQ(check(many, plane, content, {}, 0, 16, 3), Difference{});
}

/// Shared work must not depend on which thread is first: entries of a slot named twice stay together, and so do nibbles.
TEST(Generate, KeepsRunsThatShareBytesInOneThread) {
  const Plane bytes = packed(Dtype::bf16, {{Axis::block, 3}, {Axis::slot, 4}, {Axis::channel, 8}});
  const Plane nibbles = packed(Dtype::int4, {{Axis::block, 3}, {Axis::channel, 8}, {Axis::slot, 4}});
  const std::vector<BlockContent> twice{{1, 4, 0, 0, 3}, {1, 5, 0, 2, 2}}, apart{{1, 4, 0, 0, 3}, {1, 5, 0, 3, 1}};
  const auto cuts = [](const Plane& plane, const std::vector<BlockContent>& content) {
    const TagKey key;
    const Map map(1000, plane, content, key);
    const Map* const maps[]{&map};
    return Cuts(maps, content, 4).all().size();
  };
  EXPECT_EQ(cuts(bytes, apart), 2u);
  EXPECT_EQ(cuts(bytes, twice), 1u);
  EXPECT_EQ(cuts(nibbles, apart), 1u);
}

/// Two coordinates at one place cannot both be there: check() accepts what generate() leaves.
TEST(Check, AcceptsOverlapsAsGenerateLeavesThem) {
  Plane plane = packed(Dtype::fp16, {{Axis::block, 3}, {Axis::slot, 4}, {Axis::channel, 8}});
  plane.modes.push_back({Axis::kv, 2, 0});
  std::vector<std::uint8_t> memory(3 * 4 * 16);
  generate(memory, plane, whole_blocks(3, 4), {}, 0);
  EXPECT_EQ(check(memory, plane, whole_blocks(3, 4), {}, 0), Difference{});
  memory[7] ^= 1;
  EXPECT_EQ(check(memory, plane, whole_blocks(3, 4), {}, 0), (Difference{1, {7}}));
  // A slot that two requests name: the later one's.
  const Plane plain = packed(Dtype::fp16, {{Axis::block, 3}, {Axis::slot, 4}, {Axis::channel, 8}});
  const std::vector<BlockContent> twice{{1, 4, 0, 0, 3}, {1, 5, 0, 2, 2}};
  for (const int threads : {1, 3}) {
    generate(memory, plain, twice, {}, 0, threads);
    EXPECT_EQ(check(memory, plain, twice, {}, 0, 16, threads), Difference{});
    EXPECT_EQ(check(memory, plain, std::vector<BlockContent>{{1, 5, 0, 2, 2}}, {}, 0), Difference{});
  }
}

TEST(Generate, RefusesAnInvalidPlaneBeforeWriting) {
  const Plane good = packed(Dtype::bf16, {{Axis::block, 2}, {Axis::slot, 2}, {Axis::channel, 8}});
  const auto content = whole_blocks(2, 2);
  std::vector<std::uint8_t> memory(64, 7);
  const auto refused = [&](auto change, std::size_t bytes = 64) {
    Plane plane = good;
    change(plane);
    EXPECT_THROW(generate(std::span(memory).first(bytes), plane, content, {}, 0), layout::Error) << text(plane);
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::uint8_t b) { return b == 7; }));
  };
  refused([](Plane&) {}, 63);
  refused([](Plane& p) { p.offset = 1; });
  refused([](Plane& p) { p.offset = -8; });
  refused([](Plane& p) { p.modes[0].stride = -p.modes[0].stride; });
  refused([](Plane& p) { p.modes[0].extent = 3; });
  refused([](Plane& p) { p.modes[0].extent = 0; });
  refused([](Plane& p) { p.modes[2].extent = 0; });
  refused([](Plane& p) { p.modes[0].step = 0; });
  refused([](Plane& p) { p.modes[0].stride = INT64_MAX; });
  refused([](Plane& p) { p.modes[0] = {Axis::block, INT64_MAX, 2, 1}; });
  refused([](Plane& p) { p.modes[0] = {Axis::block, INT64_MAX, 0, 1}; });
  refused([](Plane& p) { p.modes[0].step = INT64_MAX, p.origin[Axis::block] = 1; });
  refused([](Plane& p) { p.origin[Axis::kv] = 16; });
  refused([](Plane& p) { p.origin[Axis::layer] = 1 << 24; });
  refused([](Plane& p) { p.origin[Axis::head] = -1; });
  refused([](Plane& p) { p.origin[Axis::channel] = -1; });
  refused([](Plane& p) { p.dtype = Dtype::int4, p.high_nibble_first = true, p.modes[2].stride = 5; });
  refused([](Plane& p) { p.dtype = Dtype::int4, p.high_nibble_first = true, p.offset = 2; });
  for (const BlockContent wrong : {BlockContent{0, 0, -1, 0, 2}, BlockContent{0, 0, 0, -1, 2}, BlockContent{0, 0, 0, 0, -1},
                                   BlockContent{0, 0, (std::int64_t{1} << 44) - 1, 0, 2},
                                   BlockContent{0, 0, 0, INT64_MAX, 2}, BlockContent{0, 0, INT64_MAX, 0, INT64_MAX}}) {
    EXPECT_THROW(generate(memory, good, std::vector{wrong}, {}, 0), layout::Error);
  }
  EXPECT_NO_THROW(generate(memory, good, content, {}, 0));
}

}  // namespace
}  // namespace kvcts::kernels
