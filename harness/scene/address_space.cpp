#include "scene/address_space.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "case/text.hpp"
#include "kernels/poison.hpp"
#include "scene/truth/walk.hpp"

namespace kvcts::scenario {

using text::fail;

namespace {

std::vector<const Action*> all_reads(const Scenario& scenario) {
  std::vector<const Action*> out;
  for (const Step& step : scenario.steps) {
    if (step.intended.op == Operation::read) out.push_back(&step.intended);
    for (const Action& action : step.actual) {
      if (action.op == Operation::read) out.push_back(&action);
    }
  }
  return out;
}

/// Those that a request has before a step of the intended sequence.
TokenRange tokens_before(const Scenario& scenario, const std::string& step, const std::string& request) {
  const auto found = scenario.requests.find(request);
  if (found == scenario.requests.end()) return {};
  TokenRange out{found->second.first_token, found->second.tokens};
  for (const Step& each : scenario.steps) {
    if (each.name == step) break;
    const Action& a = each.intended;
    if (a.op == Operation::assign && a.request == request) out.count = a.tokens.value_or(out.count);
  }
  return out;
}

/// The most that it ever has, as intended or not.
TokenRange most_tokens(const Scenario& scenario, const std::string& request) {
  const auto found = scenario.requests.find(request);
  if (found == scenario.requests.end()) return {};
  TokenRange out{found->second.first_token, found->second.tokens};
  const auto more = [&](const Action& a) {
    if (a.op == Operation::assign && a.request == request) out.count = std::max(out.count, a.tokens.value_or(0));
  };
  for (const Step& step : scenario.steps) {
    more(step.intended);
    std::ranges::for_each(step.actual, more);
  }
  return out;
}

}  // namespace

// The same few view texts are queried again and again.
layout::Cache cache_of(const View& view) {
  if (view.cache.empty()) return {};
  thread_local std::unordered_map<std::string, layout::Cache> known;
  if (const auto found = known.find(view.cache); found != known.end()) return found->second;
  if (known.size() > 4096) known.clear();
  return known.emplace(view.cache, layout::cache_from_text(view.cache)).first->second;
}

AddressSpace::AddressSpace(const Scenario& scenario) : scenario_(scenario) {
  // Memories that own their bytes first; those that share them need their places.
  for (const auto& [name, memory] : scenario.memories) {
    if (memory.view.of.empty() && memory.side != "store") add(name, memory, scenario);
  }
  std::vector<std::string> waiting;
  for (const auto& [name, memory] : scenario.memories) {
    if (!memory.view.of.empty()) waiting.push_back(name);
  }
  while (!waiting.empty()) {
    const std::size_t before = waiting.size();
    std::erase_if(waiting, [&](const std::string& name) {
      const Memory& memory = scenario.memories.at(name);
      const std::string& of = memory.view.of;
      const auto known = std::find_if(named_ranges_.begin(), named_ranges_.end(),
                                      [&](const NamedRange& s) { return s.name == of || s.name.starts_with(of + "/"); });
      if (known == named_ranges_.end()) return false;
      const layout::Cache cache = cache_of(memory.view);
      if (cache.allocations.empty()) {
        const BufferAddress at = address(of);
        named_ranges_.push_back({name, {at.buffer, at.offset + memory.view.offset}, memory.bytes});
        return true;
      }
      View whole;
      whole.of = of;
      const std::vector<BufferAddress> begins = addresses(whole, cache);
      for (std::size_t a = 0; a < begins.size(); ++a) {
        const BufferAddress at{begins[a].buffer, begins[a].offset + memory.view.offset};
        if (begins.size() == 1) named_ranges_.push_back({name, at, cache.allocations[a].bytes});
        named_ranges_.push_back({name + "/" + cache.allocations[a].name, at, cache.allocations[a].bytes});
      }
      return true;
    });
    if (waiting.size() == before) fail("memory '" + waiting.front() + "': 'of' leads to no memory, or back to itself");
  }

  std::map<std::string, std::int64_t> outputs;
  for (const Action* read : all_reads(scenario)) {
    std::int64_t& bytes = outputs[read->output];
    bytes = std::max(bytes, output_shape(*read, most_tokens(scenario, read->request)).bytes());
  }
  for (const auto& [name, bytes] : outputs) {
    Buffer buffer;
    buffer.name = buffer.memory = name;
    buffer.side = "output";
    buffer.ordinal = static_cast<int>(buffers_.size());
    buffer.poison_number = static_cast<std::uint32_t>(buffer.ordinal);
    buffer.bytes = bytes;
    buffer.guard_below = buffer.guard_above = 64;
    named_ranges_.push_back({name, {buffer.ordinal, 0}, bytes});
    buffers_.push_back(std::move(buffer));
  }

  double whole = 0;
  for (const Buffer& b : buffers_)
    whole += b.sparse
                 ? 0
                 : static_cast<double>(b.guard_below) + static_cast<double>(b.bytes) + static_cast<double>(b.guard_above);
  for (Buffer& b : buffers_) b.sparse = b.sparse || whole > static_cast<double>(kept_whole);
}

void AddressSpace::add(const std::string& name, const Memory& memory, const Scenario&) {
  const layout::Cache cache = cache_of(memory.view);
  int number = 0;
  const auto open = [&](const std::string& called, std::int64_t bytes) {
    Buffer buffer;
    buffer.name = called;
    buffer.memory = name;
    buffer.side = memory.side;
    buffer.ordinal = static_cast<int>(buffers_.size());
    buffer.poison_number = static_cast<std::uint32_t>(memory.poison_rank ? number++ : buffer.ordinal);
    buffer.poison_rank = memory.poison_rank.value_or(0);
    buffer.bytes = bytes;
    buffer.guard_below = memory.guard_below;
    buffer.guard_above = memory.guard_above;
    buffer.base = memory.base;
    buffer.sparse = memory.sparse;
    buffer.zeroed = memory.holds == "zero";
    buffer.boundaries = memory.boundaries;
    buffers_.push_back(std::move(buffer));
    return BufferAddress{buffers_.back().ordinal, 0};
  };
  if (cache.allocations.empty()) {
    if (memory.bytes <= 0) fail("memory '" + name + "': expected a layout or a size in bytes, found neither");
    named_ranges_.push_back({name, open(name, memory.bytes), memory.bytes});
    return;
  }
  if (memory.pool) {
    std::int64_t total = 0;
    for (const auto& a : cache.allocations) total += a.bytes + memory.gap;
    const BufferAddress start = open(name, std::max(total - memory.gap, memory.bytes));
    named_ranges_.push_back({name, start, buffers_.back().bytes});
    std::int64_t at = 0;
    for (const auto& a : cache.allocations) {
      named_ranges_.push_back({name + "/" + a.name, {start.buffer, at}, a.bytes});
      at += a.bytes + memory.gap;
    }
    return;
  }
  for (const auto& a : cache.allocations) {
    const bool alone = cache.allocations.size() == 1;
    const std::int64_t bytes = alone ? std::max(a.bytes, memory.bytes) : a.bytes;
    const BufferAddress start = open(name + "/" + a.name, bytes);
    if (alone) named_ranges_.push_back({name, start, bytes});
    named_ranges_.push_back({name + "/" + a.name, start, bytes});
  }
}

int AddressSpace::output(const std::string& name) const {
  for (const Buffer& buffer : buffers_) {
    if (buffer.side == "output" && buffer.name == name) return buffer.ordinal;
  }
  return -1;
}

BufferAddress AddressSpace::address(const std::string& name) const { return named_range(name).address; }

std::int64_t AddressSpace::bytes_of(const std::string& name) const { return named_range(name).bytes; }

const AddressSpace::NamedRange& AddressSpace::named_range(const std::string& name) const {
  std::string known;
  for (const NamedRange& named_range : named_ranges_) {
    if (named_range.name == name) return named_range;
    known += (known.empty() ? "" : ", ") + named_range.name;
  }
  fail("expected a memory with one backing, or one allocation of a memory, found '" + name + "'; there are " + known);
}

std::vector<BufferAddress> AddressSpace::addresses(const View& view, const layout::Cache& cache) const {
  const std::string memory = memory_of(view);
  std::vector<BufferAddress> own;
  for (const NamedRange& named_range : named_ranges_) {
    if (named_range.name.starts_with(memory + "/")) own.push_back(named_range.address);
  }
  const bool one_allocation = view.of.find('/') != std::string::npos;
  if (!one_allocation && own.size() == cache.allocations.size()) return own;
  BufferAddress at = address(view.of);
  std::vector<BufferAddress> out;
  for (const auto& a : cache.allocations) {
    out.push_back(at);
    at.offset += a.bytes;
  }
  return out;
}

std::string AddressSpace::symbol_of(BufferAddress address, std::int64_t& offset) const {
  const NamedRange* best = nullptr;
  for (const NamedRange& named_range : named_ranges_) {
    if (named_range.address.buffer != address.buffer || address.offset < named_range.address.offset ||
        address.offset >= named_range.address.offset + named_range.bytes)
      continue;
    if (!best || named_range.address.offset > best->address.offset ||
        (named_range.address.offset == best->address.offset && named_range.bytes <= best->bytes))
      best = &named_range;
  }
  if (!best) {
    offset = address.offset;
    return buffers_.at(static_cast<std::size_t>(address.buffer)).name;
  }
  offset = address.offset - best->address.offset;
  return best->name;
}

std::int64_t AddressSpace::name_end(BufferAddress address) const {
  std::int64_t end = buffers_.at(static_cast<std::size_t>(address.buffer)).bytes;
  for (const NamedRange& named_range : named_ranges_) {
    if (named_range.address.buffer != address.buffer) continue;
    for (const std::int64_t edge : {named_range.address.offset, named_range.address.offset + named_range.bytes}) {
      if (edge > address.offset) end = std::min(end, edge);
    }
  }
  return end;
}

// ---- outputs -------------------------------------------------------------------------------------------------------

std::int64_t OutputSection::bytes() const {
  const auto n = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  return n(kv) * n(layers) * n(tokens) * n(heads) * (row_bits() / 8);
}

OutputShape output_shape(const Action& read, TokenRange tokens) {
  using layout::Axis;
  using layout::Component;
  const auto choose = [](const Picks& picks, const std::set<std::int64_t>& all) {
    return picks ? *picks : std::vector<std::int64_t>(all.begin(), all.end());
  };
  OutputShape shape;
  for (const Component component : {Component::data, Component::scale, Component::global_scale}) {
    // A decoded number includes its scales.
    if (read.decode ? component != Component::data : !in_parts(component, read.parts)) continue;
    OutputSection section;
    section.component = component;
    section.begin = shape.bytes();
    std::map<Axis, std::set<std::int64_t>> found;
    bool any = false, blocked = false;
    for (const View& view : read.from) {
      for (const auto& plane : cache_of(view).planes) {
        if (plane.component != component) continue;
        any = true;
        const layout::Box box = layout::domain(plane);
        for (const Axis axis : {Axis::kv, Axis::layer, Axis::head, Axis::channel}) {
          for (std::int64_t i = box.lo[axis]; i < box.hi[axis]; ++i) found[axis].insert(i);
        }
        for (const auto& mode : plane.modes) blocked = blocked || mode.axis == Axis::block || mode.axis == Axis::slot;
        section.width = std::max(section.width, layout::bits(plane.dtype));
      }
    }
    if (!any) continue;
    if (read.decode) section.width = 32;
    section.kv = choose(read.pick.kv, found[Axis::kv]), section.layers = choose(read.pick.layers, found[Axis::layer]);
    section.heads = choose(read.pick.heads, found[Axis::head]),
    section.channels = choose(read.pick.channels, found[Axis::channel]);
    if (!blocked) {
      section.tokens = {0};  // of no token: once
    } else if (read.pick.tokens) {
      section.tokens = *read.pick.tokens;
    } else {
      for (std::int64_t i = 0; i < tokens.count; ++i) section.tokens.push_back(tokens.first + i);
    }
    shape.sections.push_back(std::move(section));
  }
  return shape;
}

OutputSection place_in_output(const Scenario& scenario, const std::string& step, const Action& read,
                              const OutputSection& own) {
  const auto meant =
      std::find_if(scenario.steps.begin(), scenario.steps.end(), [&](const Step& s) { return s.name == step; });
  if (meant == scenario.steps.end() || meant->intended.op != Operation::read || meant->intended.output != read.output)
    return own;
  const Action& intended = meant->intended;
  const OutputShape shape = output_shape(intended, tokens_before(scenario, step, intended.request));
  const auto at = std::find_if(shape.sections.begin(), shape.sections.end(),
                               [&](const OutputSection& s) { return s.component == own.component; });
  if (at == shape.sections.end() || at->width != own.width) return own;
  bool part = true, smaller = false;
  for (auto axis : {&OutputSection::kv, &OutputSection::layers, &OutputSection::tokens, &OutputSection::heads,
                    &OutputSection::channels}) {
    const auto &mine = own.*axis, &all = (*at).*axis;
    const std::set<std::int64_t> once(mine.begin(), mine.end()), there(all.begin(), all.end());
    part = part && once.size() == mine.size() && std::includes(there.begin(), there.end(), once.begin(), once.end());
    smaller = smaller || (axis != &OutputSection::channels && mine.size() < all.size());
  }
  if (part && smaller) return *at;
  OutputSection out = own;  // as many in another order: elements are placed by order
  out.begin = at->begin;
  return out;
}

// ---- passes --------------------------------------------------------------------------------------------------------

std::uint64_t pass_seed(std::uint64_t seed, int pass) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ull * static_cast<std::uint64_t>(pass + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::uint64_t seed_before(std::uint64_t of_pass_0) {
  const auto unshifted = [](std::uint64_t z, int by) {
    std::uint64_t out = z;
    for (int known = by; known < 64; known += by) out = z ^ (out >> by);
    return out;
  };
  std::uint64_t z = unshifted(of_pass_0, 31) * 0x319642b2d24d8ec3ull;
  z = unshifted(z, 27) * 0x96de1b173f119089ull;
  return unshifted(z, 30) - 0x9e3779b97f4a7c15ull;
}

std::uint64_t poison_of(const Buffer& buffer, std::uint64_t seed, int pass) {
  const std::uint32_t side = buffer.side == "producer" ? 0 : buffer.side == "consumer" ? 1 : 2;
  return kernels::poison_key(pass_seed(seed, pass), side, buffer.poison_rank, buffer.poison_number);
}

}  // namespace kvcts::scenario
