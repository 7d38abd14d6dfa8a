// Relayout against the map itself: each coordinate's bits, found with layout::locate() on both sides, one by one.
#include "kernels/relayout/relayout.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>

#include "kernels/relayout/nest.hpp"
#include "layout/template.hpp"

namespace kvcts::kernels::relayout {
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
  for (const int threads : {1, 2}) {
    Bytes found = before;
    relayout(from_bytes, from.plane, found, to.plane, threads);
    RC_ASSERT(found == expected);
  }
}

RC_GTEST_PROP(Relayout, ExtractTakesAPartAsTheMapSays, (unsigned seed)) {
  Random random{std::mt19937(seed)};
  const Dtype dtype = dtypes[random.below(5)];
  const Extents extents = random_extents(random);
  const Coord origin = random_origin(random);
  Extents part = extents;
  Coord part_origin = origin;
  for (const Axis axis : {Axis::head, Axis::block, Axis::layer, Axis::channel}) {
    part[at(axis)] = 1 + random.below(extents[at(axis)]);
    part_origin[axis] += random.below(extents[at(axis)] - part[at(axis)] + 1);
  }
  const Placed from = place(random, dtype, extents, origin), to = place(random, dtype, part, part_origin);
  const Bytes from_bytes = noise(from.bytes, seed);
  const Bytes before = noise(to.bytes, seed + 1);
  Bytes found = before;
  extract(from_bytes, from.plane, found, to.plane, 2);
  RC_ASSERT(found == by_map(from_bytes, from.plane, before, to.plane, part, part_origin));
}

/// Rows as scatter() takes them: consecutive codes.
layout::Location in_rows(std::int64_t token, std::int64_t head, std::int64_t channel, const Extents& extents, int width) {
  const std::int64_t index = (token * extents[at(Axis::head)] + head) * extents[at(Axis::channel)] + channel;
  return {0, index * width, width};
}

RC_GTEST_PROP(Relayout, ScatterAndGatherBySlotsAsTheMapSays, (unsigned seed)) {
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

  // Some whole blocks in any order, then some remaining slots, with some tokens that go nowhere.
  std::vector<std::int64_t> order(static_cast<std::size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random.engine);
  std::vector<std::int64_t> mapping;
  const std::int64_t whole = random.below(blocks + 1);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first = order[static_cast<std::size_t>(b)] * size;
    for (std::int64_t s = 0; s < size; ++s) {
      if (b < whole || random.one_in(2)) mapping.push_back(first + s);
      if (b >= whole && random.one_in(4)) mapping.push_back(-1);
    }
  }
  const auto tokens = static_cast<std::int64_t>(mapping.size());
  const Bytes rows = noise(static_cast<std::size_t>(row_bytes(pool.plane, tokens)), seed);
  Bytes found = noise(pool.bytes, seed + 1), expected = found;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t slot = mapping[static_cast<std::size_t>(t)];
    if (slot < 0) continue;
    for (std::int64_t h = 0; h < extents[at(Axis::head)]; ++h) {
      for (std::int64_t c = 0; c < extents[at(Axis::channel)]; ++c) {
        Coord coord{{part.layer, part.kv, slot / size, slot % size, origin[Axis::head] + h, origin[Axis::channel] + c}};
        write(expected, *locate(pool.plane, coord), read(rows, in_rows(t, h, c, extents, width)));
      }
    }
  }
  scatter(rows, found, pool.plane, part, mapping, 2);
  RC_ASSERT(found == expected);

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
  gather(found, pool.plane, part, order, context, read_back, 2);
  RC_ASSERT(read_back == wanted);
}

RC_GTEST_PROP(Nest, LoopsReachTheirPairsAndNoOthers, (unsigned seed)) {
  Random random{std::mt19937(seed)};
  Pairs pairs;
  // Products of digits with their own strides, then some of them moved away.
  pairs.from = {0};
  pairs.to = {0};
  for (int digits = static_cast<int>(random.below(4)); digits > 0; --digits) {
    const std::int64_t n = 1 + random.below(6), from = random.below(9) * 8, to = 8 * (1 + random.below(9));
    Pairs next;
    for (std::int64_t d = 0; d < n; ++d) {
      for (std::size_t i = 0; i < pairs.from.size(); ++i) {
        next.from.push_back(pairs.from[i] + d * from);
        next.to.push_back(pairs.to[i] + d * to);
      }
    }
    pairs = std::move(next);
  }
  if (random.one_in(3)) pairs.to[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(pairs.to.size())))] += 1000;
  std::vector<std::pair<std::int64_t, std::int64_t>> expected, found{{pairs.from[0], pairs.to[0]}};
  for (std::size_t i = 0; i < pairs.from.size(); ++i) expected.emplace_back(pairs.from[i], pairs.to[i]);
  for (const Loop& loop : loops_of(pairs)) {
    std::vector<std::pair<std::int64_t, std::int64_t>> next;
    for (std::int64_t d = 0; d < loop.count; ++d) {
      for (const auto& [from, to] : found) {
        const auto i = static_cast<std::size_t>(d);
        next.emplace_back(from + (loop.is_list() ? loop.list.from[i] : d * loop.from),
                          to + (loop.is_list() ? loop.list.to[i] : d * loop.to));
      }
    }
    found = std::move(next);
  }
  RC_ASSERT(found == expected);
}

// ---- real layouts --------------------------------------------------------------------------------------------------

layout::Scheme plain(Dtype dtype) { return {"plain", dtype, {}, {}}; }
const layout::Geometry small{.layers = 2, .blocks = 300, .block_size = 16, .heads = 8, .head_dim = 64};

/// A whole cache and back, large enough that targets are written past the caches.
void there_and_back(const char* a, const char* b, Dtype dtype, const layout::Geometry& geometry = small) {
  const layout::Cache from = layout::instantiate(a, geometry, plain(dtype)),
                      to = layout::instantiate(b, geometry, plain(dtype));
  const auto memory = [](const layout::Cache& cache, unsigned seed) {
    std::vector<Bytes> all;
    for (const auto& allocation : cache.allocations)
      all.push_back(noise(static_cast<std::size_t>(allocation.bytes), seed++));
    return all;
  };
  std::vector<Bytes> first = memory(from, 1), second = memory(to, 50), third = memory(from, 99);
  const auto readable = [](const std::vector<Bytes>& m) {
    return std::vector<std::span<const std::uint8_t>>(m.begin(), m.end());
  };
  const auto writable = [](std::vector<Bytes>& m) { return std::vector<std::span<std::uint8_t>>(m.begin(), m.end()); };
  relayout(from, readable(first), to, writable(second), 2);
  relayout(to, readable(second), from, writable(third), 1);
  EXPECT_EQ(first, third) << a << " -> " << b;
  // The forward copy, at some coordinates.
  Random random{std::mt19937(7)};
  for (int i = 0; i < 2000; ++i) {
    const Coord coord{{random.below(geometry.layers), random.below(geometry.kv), random.below(geometry.blocks),
                       random.below(geometry.block_size), random.below(geometry.heads), random.below(geometry.head_dim)}};
    const auto here = locate(from, layout::Component::data, coord), there = locate(to, layout::Component::data, coord);
    ASSERT_TRUE(here && there);
    ASSERT_EQ(read(first[static_cast<std::size_t>(here->allocation)], *here),
              read(second[static_cast<std::size_t>(there->allocation)], *there));
  }
}

TEST(Relayout, LayoutsThatEngineersKnow) {
  const char* const nhd = "L x K B N H C";
  there_and_back(nhd, "L x K B H N C", Dtype::bf16);
  there_and_back(nhd, "L x { K=0 B H C/x N C%x ; K=1 B H C N }", Dtype::bf16);
  there_and_back(nhd, "L x { K=0 B H C/x N C%x ; K=1 B H C N }", Dtype::e4m3fn);
  there_and_back(nhd, "L x { K=0 B H C/x N C%x ; K=1 B H C N }", Dtype::fp32);
  there_and_back(nhd, "L x B N H K C", Dtype::bf16);
  there_and_back(nhd, "B L K H N C", Dtype::bf16);
  there_and_back(nhd, "L x K x B H C N", Dtype::int8);
  there_and_back("L x K B C N H", "L x K C B N H", Dtype::bf16);
  there_and_back("K L H C B N", "L x K B N H C", Dtype::bf16);
  there_and_back(nhd, nhd, Dtype::bf16);
}

TEST(Relayout, HeadSlicesOfARank) {
  layout::Geometry half = small;
  half.heads = 4;
  half.first_head = 4;
  const layout::Cache all = layout::instantiate("L x K B N H C", small, plain(Dtype::bf16));
  const layout::Cache rank = layout::instantiate("L x K B N H C", half, plain(Dtype::bf16));
  const Bytes from = noise(static_cast<std::size_t>(all.allocations[0].bytes), 1);
  Bytes to(static_cast<std::size_t>(rank.allocations[0].bytes));
  extract(from, all.planes[0], to, rank.planes[0]);
  const Coord coord{{0, 1, 5, 3, 6, 10}};
  EXPECT_EQ(read(to, *locate(rank.planes[0], coord)), read(from, *locate(all.planes[0], coord)));
  EXPECT_THROW(extract(to, rank.planes[0], to, all.planes[0]), layout::Error);
}

TEST(Relayout, PiecesAreThoseOfTheMap) {
  const layout::Cache nhd = layout::instantiate("L x K B N H C", small, plain(Dtype::bf16));
  const layout::Cache hnd = layout::instantiate("L x K B H N C", small, plain(Dtype::bf16));
  const Pieces same = pieces(nhd.planes[0], nhd.planes[0]), other = pieces(nhd.planes[0], hnd.planes[0]);
  EXPECT_EQ(same.runs, 1);
  EXPECT_EQ(same.run_bits, nhd.allocations[0].bytes * 8);
  EXPECT_EQ(other.run_bits, 64 * 16);
  EXPECT_EQ(other.runs * other.run_bits, nhd.allocations[0].bytes * 8);
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

TEST(Refusals, ComeBeforeAByteIsWritten) {
  const layout::Cache cache = layout::instantiate(
      "L x K B N H C", {.layers = 1, .blocks = 4, .block_size = 16, .heads = 2, .head_dim = 8}, plain(Dtype::bf16));
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
  refused("convert first", [&] { relayout(from, other, to, plane); });
  other = plane;
  other.component = layout::Component::scale;
  refused("planes of one component", [&] { relayout(from, other, to, plane); });
  other = plane;
  other.origin[Axis::head] = 1;
  refused("expected the same", [&] { relayout(from, other, to, plane); });
  other = plane;
  other.modes[0].stride = 0;  // K and V at the same place
  refused("two coordinates at bit", [&] { relayout(from, plane, to, other); });
  refused("expected all of the target's", [&] {
    Plane fewer = plane;
    fewer.modes[1].extent = 3;
    extract(from, fewer, to, plane);
  });

  const Bytes rows = noise(static_cast<std::size_t>(row_bytes(plane, 3)), 3);
  const auto scattered = [&](std::vector<std::int64_t> mapping, Part part = {}) {
    return [&, mapping = std::move(mapping), part] { scatter(rows, to, plane, part, mapping); };
  };
  refused("slot 64", scattered({0, 1, 64}));
  refused("slot -2", scattered({0, 1, -2}));
  refused("named twice", scattered({5, 1, 5}));
  refused("packed [tokens, heads, channels]", scattered({0, 1}));
  refused("no layer 1", scattered({0, 1, 2}, {1, 0}));
  refused("no kv 2", scattered({0, 1, 2}, {0, 2}));

  Bytes out = noise(static_cast<std::size_t>(row_bytes(plane, 20)), 4);
  const Bytes out_before = out;
  const auto gathered = [&](std::vector<std::int64_t> table, std::int64_t tokens) {
    return [&, table = std::move(table), tokens] { gather(from, plane, {}, table, tokens, out); };
  };
  refused("block 4", gathered({1, 4}, 20));
  refused("block -1", gathered({1, -1}, 20));
  refused("need a block table of 2 blocks", gathered({1}, 20));
  refused("packed [tokens, heads, channels]", gathered({1, 2}, 19));
  EXPECT_EQ(out, out_before);
}

TEST(Refusals, CachesOfOtherGeometryOrScheme) {
  layout::Geometry geometry{.layers = 2, .blocks = 3, .block_size = 4, .heads = 2, .head_dim = 8};
  const layout::Cache from = layout::instantiate("L x K B N H C", geometry, plain(Dtype::bf16));
  geometry.blocks = 4;
  const layout::Cache more = layout::instantiate("L x K B H N C", geometry, plain(Dtype::bf16));
  const auto call = [](const layout::Cache& a, const layout::Cache& b) {
    return [&a, &b] {
      std::vector<Bytes> source, target;
      for (const auto& x : a.allocations) source.emplace_back(static_cast<std::size_t>(x.bytes));
      for (const auto& x : b.allocations) target.emplace_back(static_cast<std::size_t>(x.bytes));
      const std::vector<std::span<const std::uint8_t>> readable(source.begin(), source.end());
      const std::vector<std::span<std::uint8_t>> writable(target.begin(), target.end());
      relayout(a, readable, b, writable);
    };
  };
  EXPECT_NE(refusal(call(from, more)).find("expected all; the caches must have the same geometry"), std::string::npos);
  EXPECT_NE(refusal(call(more, from)).find("expected all; the caches must have the same geometry"), std::string::npos);
  layout::Cache twice = from;
  twice.planes.push_back(twice.planes[0]);
  EXPECT_NE(refusal(call(twice, from)).find("in two of its planes"), std::string::npos);
  EXPECT_EQ(refusal(call(from, from)), "not refused");
}

}  // namespace
}  // namespace kvcts::kernels::relayout
