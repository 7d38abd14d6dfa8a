// Properties of the layout algebra over random mode lists, against the brute-force map of brute.hpp.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "layout/template.hpp"
#include "layout/testing/brute.hpp"

namespace kvcts::layout::testing {
namespace {

// RapidCheck reads its parameters once; the environment wins (RC_PARAMS="seed=... max_success=...").
const int parameters = setenv("RC_PARAMS", "max_success=1000", 0);

std::int64_t pick(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }
bool chance(int percent) { return pick(1, 100) <= percent; }

/// Modes that give each coordinate one place: random axes split into random digits, sometimes with gaps in the steps.
/// Strides are packed in a random order (sometimes padded), or arbitrary: zero, negative, overlapping.
Plane random_plane(bool free_strides, bool may_flip = true) {
  static const std::vector<Dtype> dtypes(all_dtypes().begin(), all_dtypes().end());
  Plane plane;
  plane.dtype = *rc::gen::elementOf(dtypes);
  plane.component = static_cast<Component>(pick(0, 2));
  plane.high_nibble_first = may_flip && chance(40);
  const std::int64_t unit = std::min(bits(plane.dtype), 8);
  std::int64_t elements = 1;
  for (Axis axis : all_axes) {
    plane.origin[axis] = chance(30) ? pick(0, 5) : 0;
    std::int64_t step = 1;
    for (std::int64_t n = pick(0, 2); n > 0; --n) {
      const std::int64_t extent = pick(1, 4);
      if (elements * extent > 600) break;
      elements *= extent;
      plane.modes.push_back({axis, extent, 0, step});
      step = step * extent + (chance(20) ? pick(0, 2) : 0);
    }
  }
  const auto order = *rc::gen::container<std::vector<int>>(plane.modes.size(), rc::gen::inRange(0, 1000));
  std::vector<std::size_t> by(plane.modes.size());
  for (std::size_t i = 0; i < by.size(); ++i) by[i] = i;
  std::sort(by.begin(), by.end(), [&](auto a, auto b) { return order[a] < order[b]; });
  std::int64_t stride = bits(plane.dtype);
  for (std::size_t i : by) {
    plane.modes[i].stride = free_strides ? unit * pick(-12, 24) : stride;
    stride *= plane.modes[i].extent;
    if (chance(15)) stride += 8 * pick(0, 3);
    if (stride % 8 != 0 && plane.modes[i].extent > 1) stride += 4;
  }
  std::vector<Mode> shuffled;
  for (std::size_t i : by) shuffled.push_back(plane.modes[i]);
  plane.modes = shuffled;
  plane.offset = unit * pick(0, 20);
  const ByteRange range = bounds(plane);
  if (range.begin < 0) plane.offset += -8 * range.begin;
  RC_LOG() << to_text(plane) << '\n';
  return plane;
}

Cache holding(std::vector<Plane> planes) {
  std::int64_t end = 0;
  for (const Plane& p : planes) end = std::max(end, bounds(p).end);
  return {{{"memory", end + pick(0, 3)}}, std::move(planes), {}};
}

Box random_box(const Plane& plane) {
  const Box all = domain(plane);
  Box box;
  for (Axis a : all_axes) {
    box.lo[a] = pick(all.lo[a] - 1, all.hi[a]);
    box.hi[a] = pick(box.lo[a], all.hi[a] + 1);
    if (chance(50)) {
      box.lo[a] = all.lo[a];
      box.hi[a] = all.hi[a];
    }
  }
  return box;
}

RC_GTEST_PROP(Property, RandomPlanesValidate, ()) {
  const Plane plane = random_plane(chance(50));
  validate(holding({plane}));
}

RC_GTEST_PROP(Property, LocateIsTheBruteForceMap, ()) {
  const Plane plane = random_plane(chance(50));
  std::map<Coord, std::int64_t> truth;
  for (const Point& p : points(plane)) RC_ASSERT(truth.emplace(p.coord, p.bit).second);
  const Box box = domain(plane);
  for (const auto& [coord, bit] : truth) RC_ASSERT(inside(coord, box));
  // Every coordinate of the domain, gaps included, and its border.
  std::int64_t visited = 0;
  Coord c = box.lo;
  for (bool more = true; more && visited < 4000; ++visited) {
    const auto found = locate(plane, c);
    const auto it = truth.find(c);
    RC_ASSERT(found.has_value() == (it != truth.end()));
    if (found) RC_ASSERT(*found == (Location{plane.allocation, it->second, bits(plane.dtype)}));
    more = false;
    for (Axis a : all_axes) {
      if (++c[a] < box.hi[a]) {
        more = true;
        break;
      }
      c[a] = box.lo[a];
    }
  }
  for (Axis a : all_axes) {
    Coord out = box.lo;
    out[a] = box.lo[a] - 1;
    RC_ASSERT(!locate(plane, out));
    out[a] = box.hi[a];
    RC_ASSERT(!locate(plane, out));
  }
  RC_ASSERT(element_count(plane) == static_cast<std::int64_t>(truth.size()));
}

RC_GTEST_PROP(Property, InverseIsTheInverseOfLocate, ()) {
  const Plane plane = random_plane(chance(60));
  const auto truth = owners(plane);
  const ByteRange range = bounds(plane);
  for (std::int64_t bit = 8 * range.begin - 5; bit < 8 * range.end + 5; ++bit) {
    std::set<Coord> found;
    for (const Element& e : inverse(plane, bit)) RC_ASSERT(found.insert(e.coord).second);
    const auto it = truth.find(bit);
    RC_ASSERT(found == (it == truth.end() ? std::set<Coord>{} : it->second));
  }
}

RC_GTEST_PROP(Property, BoundsAreTight, ()) {
  const Plane plane = random_plane(chance(60));
  const auto truth = owners(plane);
  RC_ASSERT(bounds(plane).begin == truth.begin()->first / 8);
  RC_ASSERT(bounds(plane).end == truth.rbegin()->first / 8 + 1);
}

RC_GTEST_PROP(Property, RunsCoverExactlyTheBoxAndAreMaximal, ()) {
  const Plane plane = random_plane(chance(40));
  const Box box = random_box(plane);
  for (Axis a : all_axes) RC_LOG() << letter(a) << ' ' << box.lo[a] << ".." << box.hi[a] << '\n';
  std::set<std::int64_t> truth;
  for (const Point& p : points(plane)) {
    if (!inside(p.coord, box)) continue;
    for (int i = 0; i < bits(plane.dtype); ++i) truth.insert(p.bit + i);
  }
  std::int64_t end = INT64_MIN;
  std::size_t covered = 0;
  for (const Run& run : runs(plane, box)) {
    RC_ASSERT(run.bits > 0);
    RC_ASSERT(run.bit > end);  // ascending, apart, hence maximal
    end = run.bit + run.bits;
    for (std::int64_t b = run.bit; b < end; ++b) RC_ASSERT(truth.contains(b));
    covered += static_cast<std::size_t>(run.bits);
    RC_ASSERT(inside(run.first, box));
    RC_ASSERT(locate(plane, run.first)->bit == run.bit);
  }
  RC_ASSERT(covered == truth.size());
}

RC_GTEST_PROP(Property, OverlapsAreFoundWhereTheyAre, ()) {
  std::vector<Plane> planes;
  for (std::int64_t n = pick(1, 3); n > 0; --n) planes.push_back(random_plane(chance(50)));
  std::vector<std::map<std::int64_t, std::set<Coord>>> truth;
  for (const Plane& p : planes) truth.push_back(owners(p));
  std::map<std::pair<int, int>, std::int64_t> expected;
  for (std::size_t i = 0; i < planes.size(); ++i) {
    for (const auto& [bit, coords] : truth[i]) {
      if (coords.size() > 1) {
        expected.try_emplace({i, i}, bit);
      }
      for (std::size_t j = i + 1; j < planes.size(); ++j) {
        if (truth[j].contains(bit)) expected.try_emplace({i, j}, bit);
      }
    }
  }
  std::map<std::pair<int, int>, std::int64_t> found;
  for (const Overlap& o : overlaps(holding(planes), 0)) RC_ASSERT(found.try_emplace({o.plane_a, o.plane_b}, o.bit).second);
  RC_ASSERT(found.size() == expected.size());
  for (const auto& [pair, bit] : expected) {
    RC_ASSERT(found.contains(pair));
    // Within a plane whose nibbles are swapped, the first doubled bit is exact to the byte.
    const bool flipped = planes[static_cast<std::size_t>(pair.first)].high_nibble_first;
    RC_ASSERT((flipped ? found[pair] / 8 == bit / 8 : found[pair] == bit));
  }
}

RC_GTEST_PROP(Property, HolesAreTheUntouchedBytes, ()) {
  std::vector<Plane> planes;
  for (std::int64_t n = pick(1, 3); n > 0; --n) planes.push_back(random_plane(chance(40)));
  const Cache cache = holding(planes);
  std::set<std::int64_t> touched;
  for (const Plane& p : planes) {
    for (const auto& [bit, coords] : owners(p)) touched.insert(bit / 8);
  }
  std::int64_t last = -1;
  std::int64_t free = 0;
  for (const ByteRange& hole : holes(cache, 0)) {
    RC_ASSERT(hole.begin > last);
    RC_ASSERT(hole.end > hole.begin);
    last = hole.end;
    for (std::int64_t b = hole.begin; b < hole.end; ++b) RC_ASSERT(!touched.contains(b));
    free += hole.end - hole.begin;
  }
  RC_ASSERT(free + static_cast<std::int64_t>(touched.size()) == cache.allocations[0].bytes);
}

// ---- comparison --------------------------------------------------------------------------------------------------------

/// The same plane, written differently: modes split and shuffled, extents of one added, or cut in two planes along an axis.
std::vector<Plane> rewritten(const Plane& plane) {
  std::vector<Mode> modes;
  for (const Mode& m : plane.modes) {
    const std::int64_t inner = m.extent == 4 && chance(60) ? 2 : 1;
    if (inner == 1) {
      modes.push_back(m);
      continue;
    }
    modes.push_back({m.axis, m.extent / inner, m.stride * inner, m.step * inner});
    modes.push_back({m.axis, inner, m.stride, m.step});
  }
  if (chance(40))
    modes.push_back(
        {*rc::gen::elementOf(std::vector<Axis>(all_axes.begin(), all_axes.end())), 1, 8 * pick(0, 99), pick(1, 9)});
  Plane out = plane;
  out.modes.clear();
  while (!modes.empty()) {
    const auto i = pick(0, static_cast<std::int64_t>(modes.size()) - 1);
    out.modes.push_back(modes[static_cast<std::size_t>(i)]);
    modes.erase(modes.begin() + i);
  }
  for (std::size_t i = 0; i < out.modes.size(); ++i) {
    if (out.modes[i].extent < 2 || !chance(30)) continue;
    Plane rest = out;
    const Mode m = out.modes[i];
    const std::int64_t first = pick(1, m.extent - 1);
    out.modes[i].extent = first;
    rest.modes[i].extent = m.extent - first;
    rest.origin[m.axis] += first * m.step;
    rest.offset += first * m.stride;
    return {out, rest};
  }
  return {out};
}

RC_GTEST_PROP(Property, RewritingKeepsTheMap, ()) {
  std::vector<Plane> planes{random_plane(chance(50))};
  if (chance(50)) planes.push_back(random_plane(chance(50)));
  std::vector<Plane> other;
  for (const Plane& p : planes) {
    for (const Plane& q : rewritten(p)) other.push_back(q);
  }
  if (chance(50)) std::reverse(other.begin(), other.end());
  RC_ASSERT(same_map(holding(planes), holding(other)));
  RC_ASSERT(same_map(holding(other), holding(planes)));
  for (const Plane& p : planes) {
    RC_ASSERT(same_map(holding({p}), holding({normalised(p)})));
    RC_ASSERT(normalised(normalised(p)) == normalised(p));
    RC_ASSERT(!same_bytes_other_names(p, normalised(p)));
  }
}

/// same_map is true exactly when the brute-force maps are equal.
RC_GTEST_PROP(Property, SameMapAgreesWithBruteForce, ()) {
  const Plane a = random_plane(chance(50));
  auto list = rewritten(a);
  Plane& b = list.back();
  switch (pick(0, 5)) {
    case 0:
      b.offset += 8;
      break;
    case 1:
      if (!b.modes.empty())
        b.modes[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(b.modes.size()) - 1))].stride += 8 * pick(-1, 1);
      break;
    case 2:
      b.origin[Axis::slot] += pick(0, 1);
      break;
    case 3:
      if (b.modes.size() > 1) std::swap(b.modes[0].axis, b.modes[1].axis);
      break;
    case 4:
      if (b.modes.size() > 1) std::swap(b.modes[0].stride, b.modes[1].stride);
      break;
    default:
      break;
  }
  const auto sound = [](const Plane& p) {
    try {
      validate({{{"m", 1 << 30}}, {p}, {}});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (const Plane& p : list) RC_PRE(sound(p));
  std::multimap<Coord, std::int64_t> left;
  std::multimap<Coord, std::int64_t> right;
  for (const Point& p : points(a)) left.emplace(p.coord, p.bit);
  for (const Plane& p : list) {
    for (const Point& q : points(p)) right.emplace(q.coord, q.bit);
  }
  for (const Plane& p : list) RC_LOG() << "as " << to_text(p) << '\n';
  RC_PRE(right.size() == left.size());
  const bool equal = std::is_permutation(left.begin(), left.end(), right.begin());
  Cache one{{{"m", 1 << 30}}, {a}, {}};
  Cache two{{{"m", 1 << 30}}, list, {}};
  RC_ASSERT(same_map(one, two) == equal);
  RC_CLASSIFY(equal);
}

/// Detects and names an exchange of two axes' names.
RC_GTEST_PROP(Property, OtherNamesAreNamed, ()) {
  const Plane a = random_plane(false);
  const auto x = *rc::gen::elementOf(std::vector<Axis>(all_axes.begin(), all_axes.end()));
  const auto y = *rc::gen::elementOf(std::vector<Axis>(all_axes.begin(), all_axes.end()));
  RC_PRE(x != y);
  Plane b = a;
  std::set<Axis> present;
  for (Mode& m : b.modes) {
    if (m.extent > 1) present.insert(m.axis);
    m.axis = m.axis == x ? y : m.axis == y ? x : m.axis;
  }
  const auto words = same_bytes_other_names(a, b);
  RC_ASSERT(words.has_value() == (present.contains(x) || present.contains(y)));
  if (words && present.contains(x)) RC_ASSERT(words->find(name(y)) != std::string::npos);
}

// ---- text --------------------------------------------------------------------------------------------------------------

RC_GTEST_PROP(Property, PlaneTextRoundTrip, ()) {
  Plane plane = random_plane(chance(50));
  plane.allocation = static_cast<int>(pick(0, 9));
  if (chance(30)) plane.offset = *rc::gen::arbitrary<std::int64_t>();
  for (Mode& m : plane.modes) {
    if (chance(10)) m.stride = *rc::gen::arbitrary<std::int64_t>();
    if (chance(10)) m.step = pick(1, INT64_MAX - 1);
    if (chance(5)) m.extent = pick(1, INT64_MAX - 1);
  }
  RC_ASSERT(plane_from_text(to_text(plane)) == plane);
}

RC_GTEST_PROP(Property, CacheTextRoundTrip, ()) {
  Cache cache = holding({random_plane(false), random_plane(true)});
  cache.allocations.push_back({*rc::gen::string<std::string>(), pick(0, 1 << 20)});
  for (std::int64_t n = pick(0, 3); n > 0; --n) {
    TensorView t{*rc::gen::string<std::string>(), 0, pick(-9, 99), Dtype::bf16, Component::data, {{3, 0, 0, 0, -2, 0}}, {}};
    for (std::int64_t d = pick(0, 4); d > 0; --d)
      t.dims.push_back({pick(0, 99), pick(-99, 9999),
                        *rc::gen::elementOf(std::vector<std::string>{"NHC", "(NHC)", "1", "*", "", "K", "a b\"\\\n"})});
    cache.tensors.push_back(t);
  }
  RC_ASSERT(cache_from_text(to_text(cache)) == cache);
}

// ---- overflow ----------------------------------------------------------------------------------------------------------

/// Numbers near the ends of 64 bits: an Error or a right answer, never a wrap (which UBSan would report, too).
RC_GTEST_PROP(Property, OverflowIsAnErrorNeverAWrap, ()) {
  const auto big = [] {
    const std::int64_t base = *rc::gen::elementOf(
        std::vector<std::int64_t>{INT64_MAX, INT64_MIN, INT64_MAX / 2, 1LL << 40, 1LL << 20, 3, 1, 0, -1});
    return base == INT64_MIN ? base + pick(0, 3) : base - pick(0, 3);
  };
  Plane plane;
  plane.dtype = Dtype::uint8;
  plane.offset = big();
  for (Axis axis : all_axes) plane.origin[axis] = chance(20) ? big() : 0;
  for (std::int64_t n = pick(0, 3); n > 0; --n) {
    plane.modes.push_back({*rc::gen::elementOf(std::vector<Axis>(all_axes.begin(), all_axes.end())),
                           std::max<std::int64_t>(1, big()), big(), std::max<std::int64_t>(1, big())});
  }
  const auto attempt = [](const auto& call) {
    try {
      call();
    } catch (const Error&) {
    }
  };
  attempt([&] { validate({{{"m", INT64_MAX}}, {plane}, {}}); });
  attempt([&] { (void)element_count(plane); });
  attempt([&] { RC_ASSERT(plane_from_text(to_text(plane)) == plane); });
  attempt([&] { (void)inverse(plane, big() / 2); });
  attempt([&] { (void)normalised(plane); });
  attempt([&] {
    const Box box = domain(plane);
    for (Axis a : all_axes) RC_ASSERT(box.hi[a] > box.lo[a]);
  });
  attempt([&] {
    // The place of the last digits, in 128 bits.
    __extension__ using Wide = __int128;
    Coord last = plane.origin;
    Wide wide = plane.offset;
    for (const Mode& m : plane.modes) {
      wide += Wide{m.extent - 1} * m.stride;
      if (__builtin_mul_overflow(m.extent - 1, m.step, &last[m.axis]) ||
          __builtin_add_overflow(last[m.axis], plane.origin[m.axis], &last[m.axis]))
        return;
    }
    if (plane.modes.size() > 1) return;  // several modes may share an axis; one is enough for the sum
    if (const auto found = locate(plane, last)) RC_ASSERT(Wide{found->bit} == wide);
  });
}

// ---- templates ---------------------------------------------------------------------------------------------------------

Geometry random_geometry() {
  return {.layers = pick(1, 3),
          .blocks = pick(1, 4),
          .block_size = pick(1, 4),
          .heads = pick(1, 3),
          .head_dim = 2 * pick(1, 4),
          .v_head_dim = 0,
          .kv = 2,
          .first_layer = pick(0, 3),
          .first_head = pick(0, 3)};
}

/// A plain template in any order is a packed array in that order.
RC_GTEST_PROP(Property, PlainTemplatesArePackedArrays, ()) {
  std::string letters = "LKBNHC";
  for (std::size_t i = letters.size(); i-- > 1;)
    std::swap(letters[i], letters[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(i)))]);
  std::int64_t lists = pick(0, 2);
  while (lists > 0 && letters.substr(0, static_cast<std::size_t>(lists)).find('C') != std::string::npos) --lists;
  std::string text;
  for (std::size_t i = 0; i < letters.size(); ++i)
    text += std::string(1, letters[i]) + (static_cast<std::int64_t>(i) < lists ? " x " : " ");
  const Geometry g = random_geometry();
  RC_LOG() << text << " L=" << g.layers << " B=" << g.blocks << " N=" << g.block_size << " H=" << g.heads
           << " D=" << g.head_dim << '\n';
  const Cache cache = instantiate(text, g, {"fp16", Dtype::fp16, {}, {}});
  const auto extent = [&](Axis a) {
    return std::array<std::int64_t, 6>{
        g.layers, g.kv, g.blocks, g.block_size, g.heads, g.head_dim}[static_cast<std::size_t>(a)];
  };
  for (int n = 0; n < 20; ++n) {
    Coord digits;
    for (Axis a : all_axes) digits[a] = pick(0, extent(a) - 1);
    std::int64_t allocation = 0;
    std::int64_t index = 0;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const Axis a = *axis_from_letter(letters[i]);
      std::int64_t& into = static_cast<std::int64_t>(i) < lists ? allocation : index;
      into = into * extent(a) + digits[a];
    }
    Coord coord = digits;
    coord[Axis::layer] += g.first_layer;
    coord[Axis::head] += g.first_head;
    RC_ASSERT(locate(cache, Component::data, coord) == (Location{static_cast<int>(allocation), 16 * index, 16}));
  }
  const Names names = names_of(text);
  for (const std::string& name : {names.vllm, names.lmcache, names.kvbm}) {
    if (name.empty()) continue;
    if (name == names.vllm && lists == 0 && letters.front() == 'L')
      continue;  // vLLM's names do not say how layers are allocated
    RC_ASSERT(same_map(instantiate(template_from_name(name), g, {"fp16", Dtype::fp16, {}, {}}), cache));
  }
}

// ---- bad input ---------------------------------------------------------------------------------------------------------

/// Some characters exchanged, removed, doubled or inserted, from the grammars' alphabet.
std::string mutated(std::string text) {
  static const std::string alphabet = "LKBNHCDVxG0123456789{}[];&:=./%*+-@, \tabdehilopst_\"\\\n\x80";
  for (std::int64_t n = pick(1, 4); n > 0; --n) {
    const auto at = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(text.size())));
    const char c = alphabet[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(alphabet.size()) - 1))];
    switch (pick(0, 4)) {
      case 0:
        text.insert(at, 1, c);
        break;
      case 1:
        if (at < text.size()) text.erase(at, static_cast<std::size_t>(pick(1, 4)));
        break;
      case 2:
        if (at < text.size()) text[at] = c;
        break;
      case 3:
        text.insert(at, text.substr(text.size() / 3, static_cast<std::size_t>(pick(1, 12))));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

const std::vector<std::string> sound_texts{
    "L x K B N H C",
    "L x { K=0 B H C/x N C%x ; K=1 B H C N }",
    "L x B { N { C=0..448 :e4m3fn ; C=448..512 :bf16 } ; N { scale C=0..7 :e8m0 ; pad 1 } }",
    "L x K=0 B H N C & L x K=1 B H C N & L x scale K=0 B H N C & L x scale K=1 B H C=0..D N/16",
    "L x B N { pad H*D*16/x ; K H C }",
    "K L B N H C :int4.hi & gscale L K :fp32",
    "NL_X_TWO_NB_BS_NH_HS",
    "LBHNC",
    "FullyContiguous/OperationalNHD",
    "data e2m1 hi a3-4b {L=3,C=512} [C=2:64@96 N=16:0 C=32:4b]",
    "data bf16 a0+0 [K=2:57344 B=7:8192 N=16:512 H=4:128 C=64:2]",
    "allocation kv.L0 86016\ndata fp16 a0+0 [K=2:43008]\ntensor \"k \\\"0\" data fp16 a0+0 {L=1} [K=2:43008 "
    "NHC=3072:2]\n"};

struct Attempts {
  void operator()(const std::string& text, const std::function<void()>& call) {
    try {
      call();
      ++accepted;
    } catch (const Error& e) {
      ++refused;
      const std::string what = e.what();
      RC_ASSERT(what.size() > 10);
      RC_ASSERT(what.find('\n') == std::string::npos || text.find('\n') != std::string::npos);
    }
  }
  int accepted{0}, refused{0};
};

const Geometry small{.layers = 2, .blocks = 2, .block_size = 16, .heads = 2, .head_dim = 64, .kv = 2};
const Scheme scaled{"nvfp4", Dtype::e2m1, ScaleSpec{Dtype::e4m3fn, 16}, Dtype::fp32};

void expect_round_trips(const std::string& text) {
  const std::string canonical = template_from_name(text);
  RC_ASSERT(template_from_name(canonical) == canonical);
  (void)names_of(canonical);
  const Cache cache = instantiate(canonical, small, scaled);
  validate(cache);
  RC_ASSERT(cache_from_text(to_text(cache)) == cache);
}

TEST(BadInput, MutatedTextsParseOrGiveOneError) {
  Attempts attempt;
  EXPECT_TRUE(rc::check("mutations", [&] {
    const std::string text = mutated(*rc::gen::elementOf(sound_texts));
    attempt(text, [&] { expect_round_trips(text); });
    attempt(text, [&] { check_template(text); });
    attempt(text, [&] {
      const Plane plane = plane_from_text(text);
      RC_ASSERT(plane_from_text(to_text(plane)) == plane);
    });
    attempt(text, [&] {
      const Cache cache = cache_from_text(text);
      RC_ASSERT(cache_from_text(to_text(cache)) == cache);
      validate(cache);
    });
  }));
  EXPECT_GT(attempt.accepted, 20);
  EXPECT_GT(attempt.refused, 20);
}

TEST(BadInput, MutatedViewsInstantiateOrGiveOneError) {
  Attempts attempt;
  EXPECT_TRUE(rc::check("mutations", [&] {
    const std::string shape =
        mutated(*rc::gen::elementOf(std::vector<std::string>{"K B N H C", "B (NHC)", "B 1 N *", "BN H C", ""}));
    const std::string list = mutated(*rc::gen::elementOf(std::vector<std::string>{"L", "K L", ""}));
    attempt(shape, [&] { validate(instantiate("L x K B N H C", small, scaled, {list, shape})); });
  }));
  EXPECT_GT(attempt.accepted, 20);
  EXPECT_GT(attempt.refused, 20);
}

/// Deep nesting and long lists end in an Error, not on the stack.
TEST(BadInput, DeepNestingAndLongListsGiveAnError) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{ ";
  EXPECT_THROW(check_template(deep), Error);
  std::string many = "data fp16 a0+0 [";
  for (int i = 0; i < 100; ++i) many += "C=1:2 ";
  const Plane plane = plane_from_text(many + "]");
  EXPECT_THROW(validate({{{"m", 100}}, {plane}, {}}), Error);
  EXPECT_THROW((void)inverse(plane, 0), Error);
}

}  // namespace
}  // namespace kvcts::layout::testing
