#include "matrix/enumerate.hpp"

#include <xxhash.h>

#include <limits>

#include "case/catalogue/nearest.hpp"

namespace kvcts::matrix {

std::int64_t EnumerationBlock::product() const {
  std::int64_t n = 1;
  for (const auto& list : values)
    if (__builtin_mul_overflow(n, static_cast<std::int64_t>(list.size()), &n))
      return std::numeric_limits<std::int64_t>::max();
  return n;
}

EnumerationBlock resolve_block(Space& space, const catalogue::MatrixBlock& block, const std::string& where_from) {
  try {
    EnumerationBlock out;
    out.title = block.title;
    out.cover = static_cast<int>(block.cover);
    out.sample = block.sample;
    for (const auto& [name, patterns] : block.axes) {
      const Axis* a = find_axis(name);
      if (!a) throw Error("expected the name of an axis, found '" + name + "'" + catalogue::suggestion(name, axis_names()));
      out.values[static_cast<std::size_t>(a->id)] = space.select(a->id, patterns);
      if (out.values[static_cast<std::size_t>(a->id)].empty()) {
        throw Error("expected at least one value of axis '" + name + "', found none; the '!' globs removed everything");
      }
    }
    for (const auto& a : axes()) {
      auto& list = out.values[static_cast<std::size_t>(a.id)];
      if (!list.empty()) continue;
      if (a.fallback.empty())
        throw Error("expected axis '" + std::string(a.name) + "', which has no default, found none; add it");
      list.push_back(at(space.origin(), a.id));
    }
    if (!block.where.empty()) out.where.emplace(block.where, space);
    return out;
  } catch (const Error& error) {
    throw Error(where_from + ": " + error.what());
  }
}

void each_point(const Space& space, Constraints& constraints, const EnumerationBlock& block,
                const std::function<void(const Point&, int constraint)>& visit) {
  if (block.product() > max_product) {
    throw Error("expected a product of at most " + std::to_string(max_product) + " points, found " +
                std::to_string(block.product()) + " in block '" + block.title + "'; name fewer values, or give cover: 2");
  }
  std::array<std::size_t, axis_count> digit{};
  Point point{};
  for (std::size_t a = 0; a < axis_count; ++a) point[a] = block.values[a][0];
  while (true) {
    const Point canonical = space.canonical(point);
    if (!block.where || (*block.where)(canonical)) visit(canonical, constraints.check(canonical));
    std::size_t a = axis_count;
    while (a > 0) {
      --a;
      if (++digit[a] < block.values[a].size()) {
        point[a] = block.values[a][digit[a]];
        break;
      }
      digit[a] = 0;
      point[a] = block.values[a][0];
      if (a == 0) return;
    }
  }
}

void draw_points(const Space& space, Constraints& constraints, const std::vector<EnumerationBlock>& blocks,
                 std::uint64_t seed, std::int64_t n, const std::function<bool(std::size_t block, const Point&)>& visit) {
  constexpr int patience = 100'000;  // consecutive draws without a new point
  struct Turn {
    std::uint64_t drawn{0};
    int in_vain{0};
  };
  std::vector<Turn> turns(blocks.size());
  const auto draw = [&](std::size_t b) {
    const std::array<std::uint64_t, 2> place{b, turns[b].drawn++};
    std::uint64_t state = XXH3_64bits_withSeed(place.data(), sizeof(place), seed);
    Point point{};
    for (std::size_t a = 0; a < axis_count; ++a) {
      state = XXH3_64bits_withSeed(&state, sizeof(state), a);
      point[a] = blocks[b].values[a][state % blocks[b].values[a].size()];
    }
    return space.canonical(point);
  };
  for (bool any = true; any && n > 0;) {
    any = false;
    for (std::size_t b = 0; b < blocks.size() && n > 0; ++b) {
      while (turns[b].in_vain < patience) {
        const Point point = draw(b);
        if ((!blocks[b].where || (*blocks[b].where)(point)) && constraints.check(point) == 0 && visit(b, point)) {
          turns[b].in_vain = 0, any = true, --n;
          break;
        }
        ++turns[b].in_vain;
      }
    }
  }
}

}  // namespace kvcts::matrix
