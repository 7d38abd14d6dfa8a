// Random memories and tables. Compares the truth with bits moved one by one between lists of points
// (layout/testing/brute.hpp), and with the machine on the same sequence. They share no arithmetic, so agreement of both
// means no false alarm.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <numeric>

#include "kernels/poison.hpp"
#include "kernels/testing/reference.hpp"
#include "layout/testing/brute.hpp"
#include "scene/machine/copy_program.hpp"
#include "scene/machine/sequence.hpp"
#include "scene/testing/scenarios.hpp"

namespace kvcts::scenario::testing {
namespace {

using layout::Axis;
using layout::Coord;
using layout::Dtype;
using layout::Plane;

const int parameters = setenv("RC_PARAMS", "max_success=1000", 0);

std::int64_t pick(std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); }
bool chance(int percent) { return pick(1, 100) <= percent; }

std::vector<std::int64_t> shuffled(std::int64_t n) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  for (std::size_t i = out.size(); i > 1; --i)
    std::swap(out[i - 1], out[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(i) - 1))]);
  return out;
}

struct Extents {
  std::int64_t layers{1}, kv{1}, blocks{1}, slots{1}, heads{1}, channels{1};
};

// One plane over some extents: modes in any order, some axes split, with padding between them.
Plane random_plane(const Extents& e, Dtype dtype) {
  Plane plane;
  plane.dtype = dtype;
  plane.high_nibble_first = chance(40);
  std::vector<layout::Mode> modes;
  const auto axis = [&](Axis a, std::int64_t extent) {
    if (extent % 2 == 0 && chance(30)) {
      modes.push_back({a, extent / 2, 0, 2});
      modes.push_back({a, 2, 0, 1});
    } else {
      modes.push_back({a, extent, 0, 1});
    }
  };
  axis(Axis::layer, e.layers), axis(Axis::kv, e.kv), axis(Axis::block, e.blocks), axis(Axis::slot, e.slots);
  axis(Axis::head, e.heads), axis(Axis::channel, e.channels);
  std::int64_t stride = layout::bits(dtype);
  for (std::int64_t i : shuffled(static_cast<std::int64_t>(modes.size()))) {
    layout::Mode mode = modes[static_cast<std::size_t>(i)];
    mode.stride = stride;
    stride *= mode.extent;
    if (chance(20)) stride += 8 * pick(0, 3);
    if (chance(10) && stride % 8 == 0) {
      // Downwards: the plane begins at the other end.
      plane.offset += (mode.extent - 1) * mode.stride;
      mode.stride = -mode.stride;
    }
    plane.modes.push_back(mode);
  }
  if (plane.offset % 8 != 0) plane.offset += 4;
  plane.offset += 8 * pick(0, 5);
  return plane;
}

Memory random_memory(const Extents& e, Dtype dtype, const std::string& side) {
  layout::Cache cache;
  Extents half = e;
  const bool apart = e.kv == 2 && chance(40);  // K and V in separate planes, in one allocation or two
  const bool two = apart && chance(50);
  if (apart) half.kv = 1;
  for (int i = 0; i < (apart ? 2 : 1); ++i) {
    Plane plane = random_plane(half, dtype);
    plane.origin[Axis::kv] = i;
    if (i > 0 && !two) plane.offset += 8 * cache.allocations[0].bytes;
    if (i == 0 || two) {
      plane.allocation = i;
      cache.allocations.push_back({i == 0 ? "a" : "b", 0});
    }
    cache.planes.push_back(plane);
    cache.allocations.back().bytes = layout::bounds(plane).end + pick(0, 3);
  }
  Memory memory;
  memory.side = side;
  memory.view.cache = layout::to_text(cache);
  memory.guard_below = pick(0, 9);
  memory.guard_above = pick(0, 9);
  memory.holds = chance(20) ? "zero" : "poison";
  memory.pool = chance(30);
  memory.gap = memory.pool ? pick(0, 5) : 0;
  return memory;
}

// Where each element of a request is, found by scanning every point of every plane.
struct Found {
  int buffer;
  std::int64_t bit;
  int width;
};
struct Identity {
  std::int64_t kv, layer, token, head, channel;
  auto operator<=>(const Identity&) const = default;
};
using Elements = std::vector<std::pair<Identity, Found>>;  // in the order of the table

Elements brute_elements(const Scenario& s, const AddressSpace& space, const std::string& memory,
                        const ScenarioRequest& request) {
  View view;
  view.of = memory;
  const layout::Cache cache = layout::cache_from_text(s.memories.at(memory).view.cache);
  const auto places = space.addresses(view, cache);
  std::int64_t n = 1;
  for (const Plane& plane : cache.planes) n = std::max(n, layout::domain(plane).hi[Axis::slot]);
  std::vector<std::vector<layout::testing::Point>> points;
  for (const Plane& plane : cache.planes) points.push_back(layout::testing::points(plane));
  Elements out;
  const auto& ids = request.blocks.at(memory);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto positions = request.positions.find(memory);
    const std::int64_t position =
        positions == request.positions.end() ? static_cast<std::int64_t>(i) : positions->second.at(i);
    for (std::size_t p = 0; p < points.size(); ++p) {
      const BufferAddress place = places[static_cast<std::size_t>(cache.planes[p].allocation)];
      for (const auto& point : points[p]) {
        if (point.coord[Axis::block] != ids[i]) continue;
        const std::int64_t token = request.first_token + position * n + point.coord[Axis::slot];
        if (token < request.first_token || token >= request.first_token + request.tokens) continue;
        out.push_back(
            {{point.coord[Axis::kv], point.coord[Axis::layer], token, point.coord[Axis::head], point.coord[Axis::channel]},
             {place.buffer, place.offset * 8 + point.bit, layout::bits(cache.planes[p].dtype)}});
      }
    }
  }
  return out;
}

using Files = std::vector<std::vector<std::uint8_t>>;  // guards included

Files fresh_files(const AddressSpace& space, int pass) {
  Files out;
  for (const Buffer& b : space.buffers()) {
    std::vector<std::uint8_t> file(static_cast<std::size_t>(b.guard_below + b.bytes + b.guard_above));
    for (std::size_t i = 0; i < file.size(); ++i) {
      file[i] = kernels::reference::poison(poison_of(b, TruthBytes::seed, pass), i);
      const auto at = static_cast<std::int64_t>(i) - b.guard_below;
      if (b.zeroed && at >= 0 && at < b.bytes) file[i] = 0;
    }
    out.push_back(std::move(file));
  }
  return out;
}

bool bit_of(const Files& files, const AddressSpace& space, const Found& at, int bit) {
  const std::int64_t where = at.bit + bit + 8 * space.buffers()[static_cast<std::size_t>(at.buffer)].guard_below;
  return files[static_cast<std::size_t>(at.buffer)][static_cast<std::size_t>(where / 8)] >> (where % 8) & 1;
}

void put_bit(Files& files, const AddressSpace& space, const Found& at, int bit, bool value) {
  const std::int64_t where = at.bit + bit + 8 * space.buffers()[static_cast<std::size_t>(at.buffer)].guard_below;
  kernels::reference::put_bit(files[static_cast<std::size_t>(at.buffer)], where, value);
}

std::vector<std::int64_t> random_ids(std::int64_t blocks, std::int64_t count) {
  auto ids = shuffled(blocks);
  ids.resize(static_cast<std::size_t>(std::min(blocks, count)));
  for (auto& id : ids) {
    if (chance(10)) id = no_block;
  }
  return ids;
}

struct Axes {
  Picks StepSelection::* picks;
  std::int64_t Identity::* value;
};
const std::vector<Axes>& axes() {
  static const std::vector<Axes> all{{&StepSelection::kv, &Identity::kv},
                                     {&StepSelection::layers, &Identity::layer},
                                     {&StepSelection::tokens, &Identity::token},
                                     {&StepSelection::heads, &Identity::head},
                                     {&StepSelection::channels, &Identity::channel}};
  return all;
}

RC_GTEST_PROP(TruthProperty, WritesAndMovesAreTheBruteForceMap, ()) {
  const auto dtype = *rc::gen::elementOf(std::vector<Dtype>(layout::all_dtypes().begin(), layout::all_dtypes().end()));
  Extents from{pick(1, 2), pick(1, 2), pick(1, 4), pick(1, 4), pick(1, 3), pick(1, 5)};
  Extents to = from;
  if (chance(50)) to.slots = pick(1, 4);
  if (chance(30)) to.heads = pick(1, 3);
  if (chance(50)) to.blocks = pick(1, 5);
  Scenario s;
  s.memories["P"] = random_memory(from, dtype, "producer");
  s.memories["C"] = random_memory(to, dtype, "consumer");
  ScenarioRequest& r = s.requests["r"];
  r.first_token = chance(30) ? pick(0, 1000) : 0;
  r.generation = static_cast<std::uint32_t>(pick(1, 4));
  r.tokens = pick(1, std::min(from.blocks * from.slots, to.blocks * to.slots));
  const auto blocks_for = [&](std::int64_t slots) { return (r.tokens + slots - 1) / slots; };
  r.blocks["P"] = random_ids(from.blocks, blocks_for(from.slots));
  r.blocks["C"] = random_ids(to.blocks, blocks_for(to.slots));
  if (chance(30)) r.positions["C"] = shuffled(static_cast<std::int64_t>(r.blocks["C"].size()));
  for (const auto& [name, m] : s.memories) RC_LOG() << name << ' ' << m.view.cache << '\n';
  RC_LOG() << r.tokens << " tokens from " << r.first_token << '\n';

  add(s, write(s, "r", "P"));
  Action m = move(s, "r", "P", "C");
  const auto choose = [&](const Axes& a, std::int64_t n, std::int64_t begin) {
    if (!chance(25)) return;
    auto sources = shuffled(n), destinations = shuffled(n);
    const auto count = static_cast<std::size_t>(pick(1, n));
    sources.resize(count), destinations.resize(count);
    for (auto& v : sources) v += begin;
    for (auto& v : destinations) v += begin;
    m.pick.*a.picks = sources;
    if (chance(50)) m.pick_to.*a.picks = destinations;
  };
  choose(axes()[0], from.kv, 0);
  choose(axes()[1], from.layers, 0);
  choose(axes()[2], r.tokens, r.first_token);
  choose(axes()[3], std::min(from.heads, to.heads), 0);
  choose(axes()[4], from.channels, 0);
  add(s, m);
  const TruthBytes truth_bytes(s);

  for (int pass : {0, 1}) {
    Files files = fresh_files(truth_bytes.space, pass);
    std::map<Identity, Found> source;
    for (const auto& [symbol, at] : brute_elements(s, truth_bytes.space, "P", r)) {
      const kernels::RowId row{layout::Component::data, symbol.kv, symbol.layer, symbol.head, symbol.token, r.generation};
      const auto code = kernels::reference::code(kernels::reference::row({pass_seed(TruthBytes::seed, pass), 0, 0}, row),
                                                 row, dtype, symbol.channel);
      for (int b = 0; b < at.width; ++b) put_bit(files, truth_bytes.space, at, b, code >> b & 1);
      source.emplace(symbol, at);
    }
    for (const auto& [symbol, at] : brute_elements(s, truth_bytes.space, "C", r)) {
      Identity wanted = symbol;
      bool taken = true;
      for (const Axes& a : axes()) {
        const Picks &picks = m.pick.*a.picks, &picks_to = m.pick_to.*a.picks;
        if (!picks) continue;
        const auto& places = picks_to ? *picks_to : *picks;
        const auto place = std::find(places.begin(), places.end(), symbol.*a.value);
        taken = taken && place != places.end();
        if (taken) wanted.*a.value = (*picks)[static_cast<std::size_t>(place - places.begin())];
      }
      const auto found = source.find(wanted);
      if (!taken || found == source.end()) continue;
      for (int b = 0; b < at.width; ++b)
        put_bit(files, truth_bytes.space, at, b, bit_of(files, truth_bytes.space, found->second, b));
    }
    for (std::size_t b = 0; b < files.size(); ++b) RC_ASSERT(truth_bytes.bytes(static_cast<int>(b), pass) == files[b]);
  }
}

// ---- against the machine -------------------------------------------------------------------------------------------

struct Kind {
  layout::Scheme scheme;
  std::vector<std::string> templates;
};
const std::vector<Kind>& kinds() {
  const std::vector<std::string> plain_templates{"L x K B N H C",   "L x B H K N C",
                                                 "K x L x B N H C", "B L H N K C",
                                                 "L x B N H K C",   "L x { K=0 B H C/4 N C%4 ; K=1 B H C N }"};
  static const std::vector<Kind> all{
      {plain(Dtype::bf16), plain_templates},
      {plain(Dtype::e4m3fn), plain_templates},
      {plain(Dtype::int4), {"L x K B N H C", "L x K B H C N", "L x B H K N C", "L x K B H N C :int4.hi", "B L H N K C"}},
      {{"rows", Dtype::int8, layout::ScaleSpec{Dtype::fp32, 0}, {}}, plain_templates},
      {{"mx", Dtype::e5m2, layout::ScaleSpec{Dtype::e8m0, 4}, {}},
       {"L x K B N H C", "L x B H K N C", "L x B { K N H C ; scale K N H C }"}},
      {{"mixed", Dtype::e4m3fn, layout::ScaleSpec{Dtype::e8m0, 4}, {}},
       {"L x B K N H { C=0..4 :e4m3fn ; C=4..8 :bf16 ; scale C=0..1 }",
        "L x K H B { N { C=4..8 :bf16 ; C=0..4 :e4m3fn } ; scale N C=0..1 }"}},
      {{"nv", Dtype::e2m1, layout::ScaleSpec{Dtype::e4m3fn, 4}, Dtype::fp32}, {"L x K B N H C", "L x B K H N C"}},
  };
  return all;
}

Picks some(std::int64_t begin, std::int64_t n) {
  if (!chance(20)) return std::nullopt;
  auto out = shuffled(n);
  out.resize(static_cast<std::size_t>(pick(1, n)));
  for (auto& v : out) v += begin;
  return out;
}

/// Draws memories, requests and steps.
class Author {
 public:
  Scenario draw() {
    draw_memories();
    draw_requests();
    for (std::int64_t n = pick(2, 7), i = 0; i < n; ++i) draw_step(i < 2);
    return s_;
  }

 private:
  void draw_memories() {
    g_.layers = pick(1, 2), g_.block_size = 2 * pick(1, 3), g_.heads = pick(1, 3), g_.head_dim = 8;
    if (chance(20)) g_.first_layer = 3;
    if (chance(20)) g_.first_head = 2;
    const Kind& kind = kinds().at(static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(kinds().size()) - 1)));
    for (const auto& name : symbols_) {
      layout::Geometry here = g_;
      if (chance(30)) here.block_size = 2 * pick(1, 3);
      here.blocks = pick(3, 6);
      const std::string side = name == "A" ? "producer" : name == "B" ? "consumer" : "staging";
      Memory m = memory(side, *rc::gen::elementOf(kind.templates), here, kind.scheme);
      m.pool = chance(30);
      m.gap = m.pool ? 8 : 0;
      m.sparse = chance(20);
      m.holds = chance(15) ? "zero" : "poison";
      s_.memories[name] = m;
      RC_LOG() << name << '\n' << m.view.cache;
    }
  }

  std::vector<std::int64_t> table(const std::string& name, std::int64_t tokens) {
    const layout::Cache cache = cache_of(s_.memories[name].view);
    const auto box = layout::domain(cache.planes.front());
    auto ids = shuffled(box.hi[Axis::block]);
    ids.resize(static_cast<std::size_t>((tokens + box.hi[Axis::slot] - 1) / box.hi[Axis::slot]));
    return ids;
  }

  void draw_requests() {
    for (const char* name : {"q", "r"}) {
      ScenarioRequest& r = s_.requests[name];
      r.tokens = pick(1, 6);
      r.first_token = chance(30) ? pick(1, 9) : 0;
      r.generation = static_cast<std::uint32_t>(pick(1, 5));
      for (const auto& m : symbols_) r.blocks[m] = table(m, r.tokens);
    }
  }

  /// One allocation of a memory, and its bytes.
  std::string allocation(const std::string& name, std::int64_t& bytes) {
    const layout::Cache cache = cache_of(s_.memories[name].view);
    const auto& a =
        cache.allocations.at(static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(cache.allocations.size()) - 1)));
    bytes = a.bytes;
    return name + "/" + a.name;
  }

  StepSelection picks(const ScenarioRequest& r) {
    StepSelection out;
    out.layers = some(g_.first_layer, g_.layers);
    out.kv = some(0, 2);
    out.tokens = some(r.first_token, r.tokens);
    out.heads = some(g_.first_head, g_.heads);
    return out;
  }

  Action draw_copy(const std::string& from, const std::string& to) {
    Action a = action(Operation::copy);
    std::int64_t source = 0, destination = 0;
    a.from = {raw(allocation(from, source))};
    a.to = {raw(allocation(to, destination))};
    const std::int64_t room = std::min(source, destination) / 2;
    a.bytes = pick(1, std::min<std::int64_t>(16, room));
    a.count = pick(1, 2);
    a.from_step = pick(0, source / 2 - a.bytes), a.to_step = pick(0, destination / 2 - a.bytes);
    a.from_offset = pick(0, source - a.bytes - a.from_step), a.to_offset = pick(0, destination - a.bytes - a.to_step);
    return a;
  }

  Action draw_fill(const std::string& request, const std::string& to) {
    Action a = action(Operation::fill);
    const std::vector<std::string> values{"zero", "poison", "5a"};
    a.value = *rc::gen::elementOf(values);
    if (chance(50)) {
      std::int64_t bytes = 0;
      a.to = {raw(allocation(to, bytes))};
      a.bytes = pick(1, std::min<std::int64_t>(bytes, 40));
      a.to_offset = pick(0, bytes - a.bytes);
      return a;
    }
    a.to = {whole(s_, to)};
    if (chance(50)) {
      a.request = request;
    } else {
      a.to_blocks = std::vector<std::int64_t>{pick(0, 2)};
    }
    return a;
  }

  void draw_step(bool early) {
    const std::string request = chance(50) ? "q" : "r", from = *rc::gen::elementOf(symbols_),
                      to = *rc::gen::elementOf(symbols_);
    const ScenarioRequest& r = s_.requests[request];
    const std::vector<std::string> contents{"tags", "tags", "codes", "values"}, scales{"used", "ignored", "twice"};
    Action a;
    const std::int64_t what = early ? 0 : pick(0, 8);
    if (what <= 1) {
      a = write(s_, request, to);
      a.content = *rc::gen::elementOf(contents);
      a.pick = picks(r);
    } else if (what <= 3) {
      a = move(s_, request, from, to);
      a.pick = picks(r);
      if (a.pick.tokens && chance(50)) {
        const std::vector<std::int64_t>& tokens = *a.pick.tokens;
        a.pick_to.tokens = std::vector<std::int64_t>(tokens.rbegin(), tokens.rend());
      }
    } else if (what == 4) {
      a = draw_copy(from, to);
    } else if (what == 5) {
      a = draw_fill(request, to);
    } else if (what == 6) {
      a = action(Operation::read, request);
      a.from = {whole(s_, from)};
      a.decode = chance(60);
      a.scales = *rc::gen::elementOf(scales);
      a.pick = picks(r);
    } else if (what == 7) {
      const bool put = chance(50);
      a = action(put ? Operation::put : Operation::get, request);
      a.store = "disk";
      a.key["hash"] = request;
      (put ? a.from : a.to).push_back(whole(s_, put ? from : to));
    } else {
      a = action(Operation::assign, request);
      a.generation = static_cast<std::uint32_t>(pick(6, 9));
      a.blocks[to] = table(to, r.tokens);
    }
    // A global scale is at head 0, whatever heads are picked.
    if (a.pick.heads && a.op != Operation::read) a.parts = "data";
    RC_LOG() << name(a.op) << ' ' << a.request << ' ' << from << " -> " << to << ' ' << a.parts << ' ' << a.content << ' '
             << a.value << '\n';
    add(s_, a);
  }

  Scenario s_;
  layout::Geometry g_;
  const std::vector<std::string> symbols_{"A", "B", "S"};
};

void expect_machine_and_truth_to_agree() {
  const Scenario s = Author().draw();
  const TruthBytes truth_bytes(s);
  const CopyProgram program = record(s, truth_bytes.space, intended_sequence(s));
  RC_ASSERT(program.ending.kind == truth_bytes.truth.ending.kind);
  for (int pass : {0, 1}) {
    Bytes bytes(program.buffers, TruthBytes::seed, pass);
    execute(program, bytes, TruthBytes::seed, pass, [](std::size_t) {});
    for (const Buffer& b : truth_bytes.space.buffers()) {
      const auto expected = truth_bytes.bytes(b.ordinal, pass);
      std::vector<std::uint8_t> found(expected.size());
      bytes.read(b.ordinal, -b.guard_below, static_cast<std::int64_t>(found.size()), found.data());
      const auto wrong = std::mismatch(found.begin(), found.end(), expected.begin()).first - found.begin();
      RC_LOG() << b.name << " differs from " << wrong - b.guard_below << " on\n";
      RC_ASSERT(found == expected);
    }
  }
}

RC_GTEST_PROP(TruthProperty, TheMachineDoesWhatIsMeant, ()) { expect_machine_and_truth_to_agree(); }

}  // namespace
}  // namespace kvcts::scenario::testing
