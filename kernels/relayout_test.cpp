// Relayout against the map itself: each coordinate's bits, found with layout::locate() on both sides, one by one.
#include "kernels/relayout.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>

#include "layout/template.hpp"

namespace kvcts::kernels {
namespace {

using layout::all_axes;
using layout::Axis;
using layout::Coord;
using layout::Dtype;
using layout::Plane;
using Bytes = std::vector<std::uint8_t>;

std::size_t at(Axis axis) { return static_cast<std::size_t>(axis); }

struct Random {
  std::mt19937 engine;
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n)); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
};

Bytes noise(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
  return bytes;
}

using Extents = std::array<std::int64_t, layout::axis_count>;

/// A plane that holds [origin, origin + extent) of each axis, each axis cut into random digits, modes in any order, with
/// gaps and sometimes a negative stride. 4-bit codes need not align to bytes.
struct Placed {
  Plane plane;
  std::size_t bytes{0};
};
Placed place(Random& random, Dtype dtype, const Extents& extents, const Coord& origin) {
  Plane plane;
  plane.dtype = dtype;
  plane.origin = origin;
  plane.high_nibble_first = layout::bits(dtype) == 4 && random.one_in(2);
  for (const Axis axis : all_axes) {
    std::int64_t rest = extents[at(axis)], step = 1;
    while (rest > 1) {
      std::int64_t digit = rest;
      if (random.one_in(2)) {
        for (std::int64_t d = 2; d < rest; ++d) {
          if (rest % d == 0 && random.one_in(2)) digit = d;
        }
      }
      plane.modes.push_back({axis, digit, 0, step});
      step *= digit;
      rest /= digit;
    }
  }
  std::shuffle(plane.modes.begin(), plane.modes.end(), random.engine);
  // Often as in real layouts: channels innermost.
  if (random.one_in(2))
    std::stable_partition(plane.modes.begin(), plane.modes.end(), [](const auto& m) { return m.axis == Axis::channel; });
  const std::int64_t unit = std::min(layout::bits(dtype), 8);
  std::int64_t size = layout::bits(dtype);
  for (layout::Mode& mode : plane.modes) {  // innermost first
    if (random.one_in(6)) size += unit * random.below(5);
    mode.stride = size;
    size *= mode.extent;
  }
  plane.offset = unit * random.below(4);
  for (layout::Mode& mode : plane.modes) {
    if (!random.one_in(8)) continue;
    plane.offset += (mode.extent - 1) * mode.stride;
    mode.stride = -mode.stride;
  }
  return {plane, static_cast<std::size_t>(layout::bounds(plane).end + random.below(3))};
}

Extents random_extents(Random& random) {
  Extents extents{};
  const std::int64_t sizes[]{1, 2, 3, 4, 6, 8, 16};
  for (auto& extent : extents) extent = sizes[random.below(5)];
  extents[at(Axis::slot)] = sizes[random.below(7)];
  extents[at(Axis::channel)] = sizes[random.below(7)] * (random.one_in(3) ? 4 : 1);
  return extents;
}

Coord random_origin(Random& random) {
  Coord origin;
  for (const Axis axis : all_axes) origin[axis] = random.one_in(3) ? random.below(5) : 0;
  return origin;
}

std::uint32_t read(const Bytes& bytes, const layout::Location& where) {
  std::uint32_t code = 0;
  for (int b = 0; b < where.width; ++b) {
    const auto bit = static_cast<std::size_t>(where.bit + b);
    code |= ((bytes.at(bit / 8) >> (bit % 8)) & 1u) << b;
  }
  return code;
}
void write(Bytes& bytes, const layout::Location& where, std::uint32_t code) {
  for (int b = 0; b < where.width; ++b) {
    const auto bit = static_cast<std::size_t>(where.bit + b);
    auto& byte = bytes.at(bit / 8);
    byte = static_cast<std::uint8_t>((byte & ~(1u << (bit % 8))) | (((code >> b) & 1u) << (bit % 8)));
  }
}

/// Calls what for every coordinate of [origin, origin + extent).
template <typename What>
void each(const Extents& extents, const Coord& origin, What what) {
  std::int64_t n = 1;
  for (const std::int64_t extent : extents) n *= extent;
  for (std::int64_t i = 0; i < n; ++i) {
    Coord coord = origin;
    std::int64_t rest = i;
    for (const Axis axis : all_axes) {
      coord[axis] += rest % extents[at(axis)];
      rest /= extents[at(axis)];
    }
    what(coord);
  }
}

Bytes by_map(const Bytes& from_bytes, const Plane& from, Bytes to_bytes, const Plane& to, const Extents& extents,
             const Coord& origin) {
  each(extents, origin,
       [&](const Coord& coord) { write(to_bytes, *locate(to, coord), read(from_bytes, *locate(from, coord))); });
  return to_bytes;
}

const Dtype dtypes[]{Dtype::bf16, Dtype::e4m3fn, Dtype::fp32, Dtype::int4, Dtype::e2m1};

RC_GTEST_PROP(Relayout, AnyPlaneToAnyOtherAsTheMapSays, (unsigned seed)) {
  Random random{std::mt19937(seed)};
  const Dtype dtype = dtypes[random.below(5)];
  const Extents extents = random_extents(random);
  const Coord origin = random_origin(random);
  const Placed from = place(random, dtype, extents, origin), to = place(random, dtype, extents, origin);
  const Bytes from_bytes = noise(from.bytes, seed);
  const Bytes before = noise(to.bytes, seed + 1);
  const Bytes expected = by_map(from_bytes, from.plane, before, to.plane, extents, origin);
  Bytes found = before;
  relayout(from_bytes, from.plane, found, to.plane);
  RC_ASSERT(found == expected);
}

/// Rows as gather() writes them: consecutive codes.
layout::Location in_rows(std::int64_t token, std::int64_t head, std::int64_t channel, const Extents& extents, int width) {
  const std::int64_t index = (token * extents[at(Axis::head)] + head) * extents[at(Axis::channel)] + channel;
  return {0, index * width, width};
}

RC_GTEST_PROP(Relayout, GatherReadsRowsAsTheMapSays, (unsigned seed)) {
  Random random{std::mt19937(seed)};
  const Dtype dtype = dtypes[random.below(5)];
  const Extents extents = random_extents(random);
  Coord origin = random_origin(random);
  origin[Axis::block] = origin[Axis::slot] = 0;
  const Placed pool = place(random, dtype, extents, origin);
  const int width = layout::bits(dtype);
  const Part part{origin[Axis::layer] + random.below(extents[at(Axis::layer)]),
                  origin[Axis::kv] + random.below(extents[at(Axis::kv)])};
  const std::int64_t size = extents[at(Axis::slot)], blocks = extents[at(Axis::block)];
  std::vector<std::int64_t> order(static_cast<std::size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random.engine);
  const Bytes found = noise(pool.bytes, seed + 1);
  const std::int64_t context = random.below(blocks * size + 1);
  Bytes read_back = noise(static_cast<std::size_t>(row_bytes(pool.plane, context)), seed + 2), wanted = read_back;
  for (std::int64_t t = 0; t < context; ++t) {
    for (std::int64_t h = 0; h < extents[at(Axis::head)]; ++h) {
      for (std::int64_t c = 0; c < extents[at(Axis::channel)]; ++c) {
        Coord coord{{part.layer, part.kv, order[static_cast<std::size_t>(t / size)], t % size, origin[Axis::head] + h,
                     origin[Axis::channel] + c}};
        write(wanted, in_rows(t, h, c, extents, width), read(found, *locate(pool.plane, coord)));
      }
    }
  }
  gather(found, pool.plane, part, order, context, read_back);
  RC_ASSERT(read_back == wanted);
}

// ---- refusals ------------------------------------------------------------------------------------------------------

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const layout::Error& e) {
    return e.what();
  }
  return "not refused";
}

TEST(Refusals, PrecedeAnyWrite) {
  const layout::Cache cache =
      layout::instantiate("L x K B N H C", {.layers = 1, .blocks = 4, .block_size = 16, .heads = 2, .head_dim = 8},
                          {"plain", Dtype::bf16, {}, {}});
  const Plane plane = cache.planes[0];
  const auto bytes = static_cast<std::size_t>(cache.allocations[0].bytes);
  const Bytes from = noise(bytes, 1), before = noise(bytes, 2);
  Bytes to = before;
  const auto refused = [&](const std::string& why, const std::function<void()>& call) {
    EXPECT_NE(refusal(call).find(why), std::string::npos) << refusal(call);
    EXPECT_EQ(to, before);
  };
  refused("reaches bytes", [&] { relayout(from, plane, std::span(to).first(bytes - 1), plane); });
  refused("reaches bytes", [&] { relayout(std::span(from).first(bytes - 1), plane, to, plane); });
  Plane other = plane;
  other.dtype = Dtype::fp16;
  refused("one dtype and component", [&] { relayout(from, other, to, plane); });
  other = plane;
  other.component = layout::Component::scale;
  refused("one dtype and component", [&] { relayout(from, other, to, plane); });
  other = plane;
  other.origin[Axis::head] = 1;
  refused("expected a head of 2 from 1 on, found 0", [&] { relayout(from, other, to, plane); });
  other = plane;
  other.modes[1].extent = 3;
  refused("expected the same coordinates", [&] { relayout(from, plane, to, other); });

  Bytes out = noise(static_cast<std::size_t>(row_bytes(plane, 20)), 4);
  const Bytes out_before = out;
  const auto gathered = [&](std::vector<std::int64_t> table, std::int64_t tokens, Part part = {}) {
    return [&, table = std::move(table), tokens, part] { gather(from, plane, part, table, tokens, out); };
  };
  refused("entry 1 of the block table: expected a block of 4 from 0 on, found 4", gathered({1, 4}, 20));
  refused("found -1", gathered({1, -1}, 20));
  refused("need a block table of 2 blocks", gathered({1}, 20));
  refused("packed [tokens, heads, channels]", gathered({1, 2}, 19));
  refused("expected a layer of 1", gathered({1, 2}, 20, {1, 0}));
  refused("expected a kv of 2", gathered({1, 2}, 20, {0, 2}));
  EXPECT_EQ(out, out_before);
}

}  // namespace
}  // namespace kvcts::kernels
