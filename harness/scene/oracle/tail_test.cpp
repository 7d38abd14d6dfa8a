// The tail rule over random caches: it forgives what correct code may leave, for any ranks, block sizes and codes; an
// overrun it does not.
#include "scene/oracle/tail.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

namespace kvcts::oracle {
namespace {

using layout::Axis;
using layout::Coord;
using layout::Dtype;
using layout::Plane;

// RapidCheck reads its parameters at the first property; the environment's value wins.
const int parameters = setenv("RC_PARAMS", "max_success=1000", 0);

std::int64_t pick(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }

// Block ids in any order, as many as the tokens need and sometimes one more.
std::vector<std::int64_t> draw_blocks(std::int64_t tokens, std::int64_t block_size, std::int64_t pool) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < pool; ++i) ids.push_back(i);
  const auto order = *rc::gen::container<std::vector<int>>(ids.size(), rc::gen::inRange(0, 1000));
  std::stable_sort(ids.begin(), ids.end(),
                   [&](auto a, auto b) { return order[static_cast<std::size_t>(a)] < order[static_cast<std::size_t>(b)]; });
  ids.resize(static_cast<std::size_t>((tokens + block_size - 1) / block_size + pick(0, 1)));
  return ids;
}

/// `ranks` of one side that share `heads`: each has its part, or several have the same one.
SideCache draw_side(const std::string& text, const layout::Scheme& scheme, layout::Geometry g, std::int64_t ranks) {
  SideCache side{"(template)", text, scheme, {}};
  const std::int64_t heads = g.heads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    g.heads = std::max<std::int64_t>(1, heads / ranks);
    g.first_head = rank * heads / ranks;
    RankCache cache{g, layout::instantiate(text, g, scheme), {}};
    cache.claim = cache.truth;
    side.ranks.push_back(cache);
  }
  return side;
}

ResolvedCase draw_case() {
  static const std::vector<std::string> templates{"L x K B N H C", "L x K B H N C",
                                                  "L x K B H C N", "L x { K=0 B H C/x N C%x ; K=1 B H C N }",
                                                  "B L K N H C",   "L x K B H C N"};
  ResolvedCase c;
  c.guard_bytes = 64;
  c.misalign = pick(0, 1) * 32;
  c.connector.kind = "reference";
  const layout::Scheme scheme{
      "s", *rc::gen::elementOf(std::vector<Dtype>{Dtype::int4, Dtype::int4, Dtype::e5m2, Dtype::fp16}), {}, {}};
  layout::Geometry g{.layers = 2, .blocks = 6, .block_size = 4, .heads = 2, .head_dim = 32};
  const std::string producer = *rc::gen::elementOf(templates), drawn = *rc::gen::elementOf(templates);
  const std::string consumer =
      pick(0, 1) == 0 ? producer : drawn;  // codes that share a byte do so on both sides, or cannot move
  Group group;
  const std::int64_t least = layout::bits(scheme.data) < 8 ? 1 : 0;  // blocks of whole bytes
  g.block_size = 1 << pick(least, 3);
  group.producer = draw_side(producer, scheme, g, 1 << pick(0, 2));
  const std::int64_t producer_size = g.block_size;
  g.block_size = 1 << pick(least, 3);
  group.consumer = draw_side(consumer, scheme, g, 1 << pick(0, 2));
  const std::int64_t tokens = pick(1, 4 * std::min(producer_size, g.block_size));
  group.requests = {{1, tokens, true, draw_blocks(tokens, producer_size, 6), draw_blocks(tokens, g.block_size, 6)}};
  c.groups = {group};
  RC_LOG() << producer << " with " << group.producer.ranks.size() << " ranks, blocks of " << producer_size << " -> "
           << consumer << " with " << group.consumer.ranks.size() << " ranks, blocks of " << g.block_size << "; "
           << layout::bits(scheme.data) << " bits, " << tokens << " tokens\n";
  return c;
}

/// One element of a position of the request on the consumer, and where producer ranks have it: (file, bit), bits in files.
struct Element {
  std::int64_t position{0};
  Coord coord;  ///< block and slot are the consumer's
  std::int64_t bit{0};
  std::vector<std::pair<std::size_t, std::int64_t>> holders;
};

struct Stage {
  explicit Stage(ResolvedCase drawn) : c(std::move(drawn)), region(*rc::gen::elementOf(regions(c, Side::consumer))) {
    for (const auto& r : regions(c, Side::producer)) {
      sources.emplace_back(static_cast<std::size_t>(file_shape(c, r.bytes).size));
      write_initial(c, r, 0, sources.back());
    }
    views.assign(sources.begin(), sources.end());
    expected.resize(static_cast<std::size_t>(file_shape(c, region.bytes).size));
    found = expected;
    write_expected(c, region, 0, expected);
    write_initial(c, region, 0, found);
    list();
  }

  // Every position that both sides' blocks reach, element by element.
  void list() {
    const auto& group = c.groups[0];
    const auto& request = group.requests[0];
    const auto from = regions(c, Side::producer);
    const std::int64_t in = group.producer.ranks[0].geometry.block_size, out = group.consumer.ranks[0].geometry.block_size;
    const auto reach = std::min(in * static_cast<std::int64_t>(request.producer_blocks.size()),
                                out * static_cast<std::int64_t>(request.consumer_blocks.size()));
    for (const Plane& plane : group.consumer.ranks[static_cast<std::size_t>(region.rank)].truth.planes) {
      if (plane.allocation != region.allocation) continue;
      width = layout::bits(plane.dtype);
      const auto box = layout::domain(plane);
      for (Coord at = box.lo; at[Axis::layer] < box.hi[Axis::layer]; ++at[Axis::layer])
        for (at[Axis::kv] = box.lo[Axis::kv]; at[Axis::kv] < box.hi[Axis::kv]; ++at[Axis::kv])
          for (at[Axis::head] = box.lo[Axis::head]; at[Axis::head] < box.hi[Axis::head]; ++at[Axis::head])
            for (at[Axis::channel] = box.lo[Axis::channel]; at[Axis::channel] < box.hi[Axis::channel]; ++at[Axis::channel])
              for (std::int64_t position = 0; position < reach; ++position) {
                Element e{position, at, 0, {}};
                e.coord[Axis::block] = request.consumer_blocks[static_cast<std::size_t>(position / out)],
                e.coord[Axis::slot] = position % out;
                e.bit = 8 * file_shape(c, region.bytes).base + layout::locate(plane, e.coord)->bit;
                Coord there = e.coord;
                there[Axis::block] = request.producer_blocks[static_cast<std::size_t>(position / in)],
                there[Axis::slot] = position % in;
                for (std::size_t p = 0; p < from.size(); ++p) {
                  const auto& truth = group.producer.ranks[static_cast<std::size_t>(from[p].rank)].truth;
                  const auto source = layout::locate(truth, layout::Component::data, there);
                  if (source && source->allocation == from[p].allocation)
                    e.holders.emplace_back(p, 8 * file_shape(c, from[p].bytes).base + source->bit);
                }
                by_bit[e.bit] = elements.size();
                elements.push_back(e);
              }
    }
  }
  bool is_tail(const Element& e) const { return e.position >= c.groups[0].requests[0].tokens; }
  const Element* beside(const Element& e) const {
    const auto at = width < 8 ? by_bit.find(e.bit ^ 4) : by_bit.end();
    return at == by_bit.end() ? nullptr : &elements[at->second];
  }
  bool shares_with_a_token(const Element& e) const { return beside(e) != nullptr && !is_tail(*beside(e)); }

  void copy(const Element& e, std::size_t holder) {
    const auto [file, bit] = e.holders[holder % e.holders.size()];
    for (int b = 0; b < width; ++b) {
      const bool one = sources[file][static_cast<std::size_t>((bit + b) / 8)] >> ((bit + b) % 8) & 1;
      auto& byte = found[static_cast<std::size_t>((e.bit + b) / 8)];
      byte = static_cast<std::uint8_t>((byte & ~(1 << ((e.bit + b) % 8))) | (one << ((e.bit + b) % 8)));
    }
  }
  /// A code and the content of its byte on both sides.
  void copy_byte(const Element& e, std::size_t holder) {
    copy(e, holder);
    const Element* other = beside(e);
    if (other == nullptr || other->holders.size() != e.holders.size()) return;
    const auto mine = e.holders[holder % e.holders.size()], its = other->holders[holder % e.holders.size()];
    if (mine.first == its.first && mine.second / 8 == its.second / 8) copy(*other, holder);
  }
  bool masked() const {
    Bytes must = expected;
    Tail(c, region).mask_tail(views, found, must);
    return must == found;
  }

  ResolvedCase c;
  RegionRef region;
  std::vector<Bytes> sources;
  std::vector<std::span<const std::uint8_t>> views;
  Bytes expected, found;
  int width{0};
  std::vector<Element> elements;
  std::map<std::int64_t, std::size_t> by_bit;
};

std::tuple<std::int64_t, std::int64_t, std::int64_t> row_of(const Element& e) {
  return {e.coord[Axis::layer], e.coord[Axis::kv], e.coord[Axis::head]};
}

// Correct code of three kinds: single codes, whole bytes, whole blocks; each row from any rank that has it.
enum class Habit : std::uint8_t { codes, bytes, blocks };

void move(Stage& stage, Habit habit, std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::size_t> holder) {
  for (const Element& e : stage.elements) {
    if (stage.is_tail(e) && habit != Habit::blocks) continue;
    if (habit == Habit::bytes)
      stage.copy_byte(e, holder[row_of(e)]);
    else
      stage.copy(e, holder[row_of(e)]);
  }
}

std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::size_t> draw_holders(const Stage& stage) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::size_t> out;
  for (const Element& e : stage.elements) {
    if (!out.contains(row_of(e))) out[row_of(e)] = static_cast<std::size_t>(pick(0, 3));
  }
  return out;
}

RC_GTEST_PROP(Tail, ForgivesWhatRightCodeLeaves, ()) {
  Stage stage(draw_case());
  const auto habit = *rc::gen::element(Habit::codes, Habit::bytes, Habit::blocks);
  move(stage, habit, draw_holders(stage));
  RC_ASSERT(stage.masked());
}

RC_GTEST_PROP(Tail, ForgivesNothingElse, ()) {
  Stage stage(draw_case());
  move(stage, *rc::gen::element(Habit::codes, Habit::bytes, Habit::blocks), draw_holders(stage));
  std::set<std::int64_t> tail;
  for (const Element& e : stage.elements) {
    for (int b = 0; stage.is_tail(e) && b < stage.width; ++b) tail.insert(e.bit + b);
  }
  const std::int64_t bit = pick(0, static_cast<std::int64_t>(stage.found.size()) * 8 - 1);
  RC_PRE(!tail.contains(bit));
  stage.found[static_cast<std::size_t>(bit / 8)] ^= static_cast<std::uint8_t>(1 << (bit % 8));
  RC_ASSERT(!stage.masked());
}

RC_GTEST_PROP(Tail, APartOfATailIsAnOverrun, ()) {
  Stage stage(draw_case());
  move(stage, Habit::codes, draw_holders(stage));
  // Tokens up to some position within the tail: free slots' bytes have distinct poison, so every code of 8 bits or more
  // shows it.
  std::int64_t reach = 0;
  for (const Element& e : stage.elements) reach = std::max(reach, e.position + 1);
  const auto tokens = stage.c.groups[0].requests[0].tokens;
  if (reach - tokens < 2 || stage.width < 8) return;  // no tail with parts
  const std::int64_t end = pick(tokens + 1, reach - 1);
  for (const Element& e : stage.elements) {
    if (stage.is_tail(e) && e.position < end) stage.copy(e, 0);
  }
  RC_ASSERT(!stage.masked());
}

RC_GTEST_PROP(Tail, BringsAlongWhatEachHolderHas, ()) {
  Stage stage(draw_case());
  const auto replica = static_cast<std::size_t>(pick(0, 3));
  for (const Element& e : stage.elements) stage.copy(e, replica);
  Bytes brought = stage.expected;
  Tail(stage.c, stage.region).bring_along(stage.views, brought, replica);
  RC_ASSERT(brought == stage.found);
}

}  // namespace
}  // namespace kvcts::oracle
