#include <algorithm>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

namespace {

using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

template <class F>
bool every(const Pairs& table, F&& holds) {
  return std::ranges::all_of(table, [&](const auto& pair) { return holds(pair.first, pair.second); });
}

/// The one number by which a division leaves every pair as it is; 0: none does.
template <class F>
std::int64_t divisor_of(const Pairs& table, F&& result) {
  std::int64_t most = 0;
  for (const auto& [x, y] : table) most = std::max({most, x, y});
  // What differs bounds it: x mod m and x rounded down to m are x itself below m.
  for (std::int64_t m = 2; m <= std::min<std::int64_t>(most, 4096); ++m)
    if (every(table, [&](std::int64_t x, std::int64_t y) { return x >= 0 && y == result(x, m); })) return m;
  return 0;
}

bool is_exchange(const Pairs& table) {
  return every(table, [&](std::int64_t x, std::int64_t y) {
    const auto other = std::lower_bound(table.begin(), table.end(), std::pair(y, std::int64_t{INT64_MIN}));
    return other != table.end() && other->first == y && other->second == x;
  });
}

}  // namespace

AxisMap map_of(const Pairs& pairs) {
  Pairs table = pairs;
  std::ranges::sort(table);
  table.erase(std::unique(table.begin(), table.end()), table.end());
  AxisMap out;
  if (table.empty() || every(table, [](std::int64_t x, std::int64_t y) { return x == y; })) return out;
  const auto same_place = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(table.begin(), table.end(), same_place) != table.end()) {
    out.kind = AxisMap::Kind::tangle;
    return out;
  }
  const auto [x0, y0] = table.front();
  const auto is = [&](AxisMap::Kind kind, std::int64_t by) {
    out.kind = kind, out.by = by;
    return out;
  };
  if (every(table, [&](std::int64_t, std::int64_t y) { return y == y0; })) return is(AxisMap::Kind::always, y0);
  if (every(table, [&](std::int64_t x, std::int64_t y) { return y - x == y0 - x0; }))
    return is(AxisMap::Kind::shift, y0 - x0);
  const auto [x1, y1] = table.back();
  if (x1 != 0 && y1 % x1 == 0 && y1 / x1 > 1 &&
      every(table, [&](std::int64_t x, std::int64_t y) { return y == y1 / x1 * x; }))
    return is(AxisMap::Kind::multiple, y1 / x1);
  if (const std::int64_t m = divisor_of(table, [](std::int64_t x, std::int64_t of) { return x % of; }))
    return is(AxisMap::Kind::remainder, m);
  if (const std::int64_t m = divisor_of(table, [](std::int64_t x, std::int64_t of) { return x - x % of; }))
    return is(AxisMap::Kind::rounded, m);
  out.table = table;
  if (is_exchange(table)) {
    const bool reversed = every(table, [&](std::int64_t x, std::int64_t y) { return x + y == x0 + y0; });
    if (reversed && table.size() > 2) return is(AxisMap::Kind::reversed, x0 + y0);
    return is(AxisMap::Kind::exchange, 0);
  }
  return is(AxisMap::Kind::table, 0);
}

}  // namespace kvcts::findings
