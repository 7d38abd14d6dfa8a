#include "script/arena.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "kernels/poison.hpp"

namespace kvcts::script {

namespace {

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error(text); }

std::vector<const Action*> all_reads(const Script& script) {
  std::vector<const Action*> out;
  for (const Step& step : script.steps) {
    if (step.intended.op == "read") out.push_back(&step.intended);
    for (const Action& action : step.actual) {
      if (action.op == "read") out.push_back(&action);
    }
  }
  return out;
}

}  // namespace

// Views are asked for again and again; their texts are few.
layout::Cache cache_of(const View& view) {
  if (view.cache.empty()) return {};
  thread_local std::unordered_map<std::string, layout::Cache> known;
  if (const auto found = known.find(view.cache); found != known.end()) return found->second;
  if (known.size() > 4096) known.clear();
  return known.emplace(view.cache, layout::cache_from_text(view.cache)).first->second;
}

std::string Arena::memory_of(const View& view) { return view.of.substr(0, view.of.find('/')); }

Arena::Arena(const Script& script) : script_(script) {
  // Memories with bytes of their own first; those that share them need their places.
  for (const auto& [name, memory] : script.memories) {
    if (memory.view.of.empty() && memory.side != "store") add(name, memory, script);
  }
  std::vector<std::string> waiting;
  for (const auto& [name, memory] : script.memories) {
    if (!memory.view.of.empty()) waiting.push_back(name);
  }
  while (!waiting.empty()) {
    const std::size_t before = waiting.size();
    std::erase_if(waiting, [&](const std::string& name) {
      const Memory& memory = script.memories.at(name);
      const std::string& of = memory.view.of;
      const auto known = std::find_if(spots_.begin(), spots_.end(), [&](const Spot& s) { return s.name == of || s.name.starts_with(of + "/"); });
      if (known == spots_.end()) return false;
      const layout::Cache cache = cache_of(memory.view);
      if (cache.allocations.empty()) {
        const Place at = place(of);
        spots_.push_back({name, {at.backing, at.offset + memory.view.offset}, memory.bytes});
        return true;
      }
      View whole;
      whole.of = of;
      const std::vector<Place> begins = places(whole, cache);
      for (std::size_t a = 0; a < begins.size(); ++a) {
        const Place at{begins[a].backing, begins[a].offset + memory.view.offset};
        if (begins.size() == 1) spots_.push_back({name, at, cache.allocations[a].bytes});
        spots_.push_back({name + "/" + cache.allocations[a].name, at, cache.allocations[a].bytes});
      }
      return true;
    });
    if (waiting.size() == before) fail("memory '" + waiting.front() + "': 'of' leads to no memory, or back to itself");
  }

  std::map<std::string, std::int64_t> outputs;
  for (const Action* read : all_reads(script)) {
    std::int64_t& bytes = outputs[read->output];
    bytes = std::max(bytes, output_shape(script, *read).bytes());
  }
  for (const auto& [name, bytes] : outputs) {
    Backing backing;
    backing.name = backing.memory = name;
    backing.side = "output";
    backing.ordinal = static_cast<int>(backings_.size());
    backing.bytes = bytes;
    backing.guard_below = backing.guard_above = 64;
    spots_.push_back({name, {backing.ordinal, 0}, bytes});
    backings_.push_back(std::move(backing));
  }
}

void Arena::add(const std::string& name, const Memory& memory, const Script&) {
  const layout::Cache cache = cache_of(memory.view);
  const auto open = [&](const std::string& called, std::int64_t bytes) {
    Backing backing;
    backing.name = called;
    backing.memory = name;
    backing.side = memory.side;
    backing.ordinal = static_cast<int>(backings_.size());
    backing.bytes = bytes;
    backing.guard_below = memory.guard_below;
    backing.guard_above = memory.guard_above;
    backing.base = memory.base;
    backing.sparse = memory.sparse;
    backing.zeroed = memory.holds == "zero";
    backing.boundaries = memory.boundaries;
    backings_.push_back(std::move(backing));
    return Place{backings_.back().ordinal, 0};
  };
  if (cache.allocations.empty()) {
    if (memory.bytes <= 0) fail("memory '" + name + "': expected a layout or a size in bytes, found neither");
    spots_.push_back({name, open(name, memory.bytes), memory.bytes});
    return;
  }
  if (memory.pool) {
    std::int64_t total = 0;
    for (const auto& a : cache.allocations) total += a.bytes + memory.gap;
    const Place start = open(name, std::max(total - memory.gap, memory.bytes));
    spots_.push_back({name, start, backings_.back().bytes});
    std::int64_t at = 0;
    for (const auto& a : cache.allocations) {
      spots_.push_back({name + "/" + a.name, {start.backing, at}, a.bytes});
      at += a.bytes + memory.gap;
    }
    return;
  }
  for (const auto& a : cache.allocations) {
    const bool alone = cache.allocations.size() == 1;
    const std::int64_t bytes = alone ? std::max(a.bytes, memory.bytes) : a.bytes;
    const Place start = open(name + "/" + a.name, bytes);
    if (alone) spots_.push_back({name, start, bytes});
    spots_.push_back({name + "/" + a.name, start, bytes});
  }
}

int Arena::output(const std::string& name) const {
  for (const Backing& backing : backings_) {
    if (backing.side == "output" && backing.name == name) return backing.ordinal;
  }
  return -1;
}

Place Arena::place(const std::string& name) const {
  std::string known;
  for (const Spot& spot : spots_) {
    if (spot.name == name) return spot.place;
    known += (known.empty() ? "" : ", ") + spot.name;
  }
  fail("expected a memory with one backing, or one allocation of a memory, found '" + name + "'; there are " + known);
}

std::vector<Place> Arena::places(const View& view, const layout::Cache& cache) const {
  const std::string memory = memory_of(view);
  std::vector<Place> own;
  for (const Spot& spot : spots_) {
    if (spot.name.starts_with(memory + "/")) own.push_back(spot.place);
  }
  const bool one_allocation = view.of.find('/') != std::string::npos;
  if (!one_allocation && own.size() == cache.allocations.size()) return own;
  Place at = place(view.of);
  std::vector<Place> out;
  for (const auto& a : cache.allocations) {
    out.push_back(at);
    at.offset += a.bytes;
  }
  return out;
}

std::string Arena::name_of(Place place, std::int64_t& offset) const {
  const Spot* best = nullptr;
  for (const Spot& spot : spots_) {
    if (spot.place.backing != place.backing || place.offset < spot.place.offset || place.offset >= spot.place.offset + spot.bytes) continue;
    if (!best || spot.place.offset > best->place.offset || (spot.place.offset == best->place.offset && spot.bytes <= best->bytes)) best = &spot;
  }
  if (!best) {
    offset = place.offset;
    return backings_.at(static_cast<std::size_t>(place.backing)).name;
  }
  offset = place.offset - best->place.offset;
  return best->name;
}

// ---- outputs -------------------------------------------------------------------------------------------------------

std::int64_t OutputShape::bytes() const {
  const auto n = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  return n(kv) * n(layers) * n(tokens) * n(heads) * ((n(channels) * width + 7) / 8);
}

OutputShape output_shape(const Script& script, const Action& read) {
  OutputShape shape;
  std::set<std::int64_t> kv, layers, heads, channels;
  const auto span = [](std::set<std::int64_t>& into, const layout::Box& box, layout::Axis axis) {
    for (std::int64_t i = box.lo[axis]; i < box.hi[axis]; ++i) into.insert(i);
  };
  const auto wanted = read.parts == "scales" ? layout::Component::scale : layout::Component::data;
  for (const View& view : read.from) {
    for (const auto& plane : cache_of(view).planes) {
      if (plane.component != wanted) continue;
      const layout::Box box = layout::domain(plane);
      span(kv, box, layout::Axis::kv), span(layers, box, layout::Axis::layer);
      span(heads, box, layout::Axis::head), span(channels, box, layout::Axis::channel);
      shape.width = std::max(shape.width, layout::bits(plane.dtype));
    }
  }
  if (read.decode) shape.width = 32;
  const auto choose = [](const Picks& picks, const std::set<std::int64_t>& all) {
    return picks ? *picks : std::vector<std::int64_t>(all.begin(), all.end());
  };
  shape.kv = choose(read.pick.kv, kv), shape.layers = choose(read.pick.layers, layers);
  shape.heads = choose(read.pick.heads, heads), shape.channels = choose(read.pick.channels, channels);
  std::set<std::int64_t> tokens;
  if (const auto request = script.requests.find(read.request); request != script.requests.end()) {
    for (std::int64_t i = 0; i < request->second.tokens; ++i) tokens.insert(request->second.first_token + i);
  }
  shape.tokens = choose(read.pick.tokens, tokens);
  return shape;
}

OutputShape whole_output(const Script& script, const std::string& step, const Action& read) {
  const OutputShape own = output_shape(script, read);
  const auto meant = std::find_if(script.steps.begin(), script.steps.end(), [&](const Step& s) { return s.name == step; });
  if (meant == script.steps.end() || meant->intended.op != "read" || meant->intended.output != read.output) return own;
  const OutputShape whole = output_shape(script, meant->intended);
  const auto inside = [](const std::vector<std::int64_t>& part, const std::vector<std::int64_t>& all) {
    std::set<std::int64_t> once(part.begin(), part.end());
    return once.size() == part.size() && part.size() <= all.size() &&
           std::all_of(part.begin(), part.end(), [&](std::int64_t value) { return std::find(all.begin(), all.end(), value) != all.end(); });
  };
  const bool smaller = own.kv.size() < whole.kv.size() || own.layers.size() < whole.layers.size() || own.tokens.size() < whole.tokens.size() ||
                       own.heads.size() < whole.heads.size() || own.channels.size() < whole.channels.size();
  const bool part = own.width == whole.width && inside(own.kv, whole.kv) && inside(own.layers, whole.layers) && inside(own.tokens, whole.tokens) &&
                    inside(own.heads, whole.heads) && inside(own.channels, whole.channels);
  return part && smaller ? whole : own;
}

// ---- passes --------------------------------------------------------------------------------------------------------

std::uint64_t pass_seed(std::uint64_t seed, int pass) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ull * static_cast<std::uint64_t>(pass + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::uint64_t poison_of(const Backing& backing, std::uint64_t seed, int pass) {
  const std::uint32_t side = backing.side == "producer" ? 0 : backing.side == "consumer" ? 1 : 2;
  return kernels::poison_key(pass_seed(seed, pass), side, 0, static_cast<std::uint32_t>(backing.ordinal));
}

}  // namespace kvcts::script
