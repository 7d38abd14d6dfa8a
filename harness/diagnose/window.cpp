#include "diagnose/window.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "diagnose/explain.hpp"

namespace kvcts::scenario {

using layout::Axis;
using nlohmann::json;
using Kind = Provenance::Kind;

// ---- seats ---------------------------------------------------------------------------------------------------------

LayoutIndex::LayoutIndex(const Scenario& scenario, const AddressSpace& space) : space_(space) {
  for (const auto& [name, memory] : scenario.memories) {
    if (memory.view.cache.empty() || !memory.view.of.empty()) continue;
    Memory m{name, static_cast<int>(memory.rank), cache_of(memory.view), {}};
    View whole;
    whole.of = name;
    m.begins = space.addresses(whole, m.cache);
    memories_.push_back(std::move(m));
  }
}

std::optional<ElementRun> LayoutIndex::at(BufferAddress address) const {
  for (const Memory& m : memories_) {
    for (std::size_t a = 0; a < m.begins.size(); ++a) {
      const std::int64_t inside = address.offset - m.begins[a].offset;
      if (m.begins[a].buffer != address.buffer || inside < 0 || inside >= m.cache.allocations[a].bytes) continue;
      auto element_run = element_run_at(m.cache, static_cast<int>(a), inside);
      if (element_run) element_run->element.from = m.name, element_run->element.rank = m.rank;
      return element_run;
    }
  }
  return std::nullopt;
}

std::string LayoutIndex::text_at(BufferAddress address) const {
  const Buffer& b = space_.buffers().at(static_cast<std::size_t>(address.buffer));
  if (address.offset < 0) return "guard below";
  if (address.offset >= b.bytes) return "guard above";
  if (const auto element_run = at(address)) {
    const Provenance* element = &element_run->element;
    const std::string kv = element->kv == 0 ? "K" : element->kv == 1 ? "V" : fmt::format("kv {}", element->kv);
    return fmt::format("{}{} layer {} block {} slot {} head {}", element->component.empty() ? "" : element->component + " ",
                       kv, element->layer, element->block, element->slot, element->head);
  }
  const bool declared = std::ranges::any_of(memories_, [&](const Memory& m) { return m.name == b.memory; });
  return declared ? "padding" : "raw bytes";
}

std::string LayoutIndex::text_beyond(BufferAddress address) const {
  for (const Memory& m : memories_) {
    for (std::size_t a = 0; a < m.begins.size(); ++a) {
      const std::int64_t inside = address.offset - m.begins[a].offset;
      if (m.begins[a].buffer != address.buffer || (inside >= 0 && inside < m.cache.allocations[a].bytes)) continue;
      for (const auto& plane : m.cache.planes) {
        if (plane.allocation != static_cast<int>(a) || plane.component != layout::Component::data) continue;
        const auto outermost = std::ranges::max_element(plane.modes, [](const auto& x, const auto& y) {
          return std::abs(x.stride) * x.extent < std::abs(y.stride) * y.extent;
        });
        if (outermost == plane.modes.end() || outermost->axis != Axis::block || outermost->stride <= 0) continue;
        const std::int64_t bit = inside * 8, stride = outermost->stride;
        const std::int64_t block = bit >= 0 ? bit / stride : -((stride - 1 - bit) / stride);
        const auto elements = layout::inverse(m.cache, static_cast<int>(a), bit - block * stride);
        if (elements.empty()) continue;
        return fmt::format("block {}, slot {}, of {} blocks", block, elements.front().coord[Axis::slot], outermost->extent);
      }
    }
  }
  return "";
}

// ---- who -----------------------------------------------------------------------------------------------------------

ProvenanceFormatter::ProvenanceFormatter(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols,
                                         const Checkpoint& check)
    : space_(space), symbols_(symbols), layout_index_(scenario, space), element_index_(check, space, symbols) {}

Provenance ProvenanceFormatter::tell(const Symbol& symbol, int buffer) const {
  Provenance out;
  switch (symbol.kind) {
    case Symbol::Kind::unknown:
      return out;
    case Symbol::Kind::constant:
      out.kind = Kind::constant, out.value = symbol.byte;
      return out;
    case Symbol::Kind::poison:
      out.kind = Kind::poison;
      out.region = space_.buffers().at(static_cast<std::size_t>(symbol.buffer)).name;
      out.offset = out.last_offset = symbol.offset;
      return out;
    case Symbol::Kind::tag:
    case Symbol::Kind::number:
      break;
    default:
      out.kind = Kind::other, out.text = to_string(symbol, space_.buffers());
      return out;
  }
  out.kind = Kind::element;
  out.component = symbol.kind == Symbol::Kind::number            ? "number of"
                  : symbol.component == layout::Component::data  ? ""
                  : symbol.component == layout::Component::scale ? "scale"
                                                                 : "global scale";
  out.kv = symbol.kv, out.layer = symbol.layer, out.head = symbol.head, out.token = symbol.token,
  out.generation = symbol.generation;
  out.channel = symbol.channel;
  out.last_channel = symbol.channel + (symbol.kind == Symbol::Kind::tag && layout::bits(symbol.dtype) == 4 ? 1 : 0);
  // Some memory has it: a producer's, else another one, else the one shown.
  int best = -1;
  for (const BufferAddress& address : element_index_.of(symbol)) {
    const Buffer& b = space_.buffers()[static_cast<std::size_t>(address.buffer)];
    const int rank = b.side == "producer" ? 2 : address.buffer != buffer ? 1 : 0;
    if (rank <= best) continue;
    const auto element_run = layout_index_.at(address);
    const Provenance* element = element_run ? &element_run->element : nullptr;
    if (!element || element->kv != symbol.kv || element->layer != symbol.layer || element->head != symbol.head) continue;
    best = rank;
    out.block = element->block, out.slot = element->slot, out.from = element->from, out.rank = element->rank;
  }
  return out;
}

// ---- windows -------------------------------------------------------------------------------------------------------

std::vector<ShownRegion> regions_of(const Scenario& scenario) {
  const AddressSpace space(scenario);
  std::vector<ShownRegion> out;
  for (const Buffer& b : space.buffers()) out.push_back({b.name, b.side, b.bytes, b.guard_below, b.guard_above});
  return out;
}

namespace {

// By its name, or the only one that ends in it.
int buffer_of(const AddressSpace& space, const std::string& region) {
  int found = -1;
  std::string symbols;
  for (const Buffer& b : space.buffers()) {
    symbols += (symbols.empty() ? "" : ", ") + b.name;
    if (b.name == region) return b.ordinal;
    if (b.memory != region && !b.name.ends_with("/" + region)) continue;
    if (found >= 0) throw std::runtime_error("region '" + region + "' is ambiguous; write it in full, e.g. " + b.name);
    found = b.ordinal;
  }
  if (found < 0) throw std::runtime_error("no region is called '" + region + "'; there are " + symbols);
  return found;
}

}  // namespace

std::vector<ComparedRange> read_window(const Scenario& scenario, std::uint64_t seed, const MemoryWindow& window) {
  const AddressSpace space(scenario);
  SymbolTable symbols;
  const Truth truth = truth_of(without_faults(scenario), space, symbols);
  const CopyProgram program = record(scenario, space, actual_sequence(scenario));
  const Observation seen = observe(program, seed, naming_passes);
  Expectation expectation(truth, space, symbols, seed);
  const int buffer = buffer_of(space, window.region);
  const Buffer& b = space.buffers()[static_cast<std::size_t>(buffer)];
  if (window.offset < -b.guard_below || window.offset + window.bytes > b.bytes + b.guard_above) {
    throw std::runtime_error(fmt::format("{} has bytes {} to {} (guards included), the window is {} to {}", b.name,
                                         -b.guard_below, b.bytes + b.guard_above, window.offset,
                                         window.offset + window.bytes));
  }
  if (seen.checks.empty()) throw std::runtime_error("the run reached no check");
  std::size_t at = seen.checks.size() - 1;
  if (!window.check.empty()) {
    const auto found = std::ranges::find(seen.checks, window.check);
    if (found == seen.checks.end()) {
      std::string reached;
      for (const auto& name : seen.checks) reached += (reached.empty() ? "" : ", ") + (name.empty() ? "the end" : name);
      throw std::runtime_error("no check '" + window.check + "' was reached; there are " + reached);
    }
    at = static_cast<std::size_t>(found - seen.checks.begin());
  }
  const Checkpoint* check = expectation.at(seen.checks[at]);
  if (!check) throw std::runtime_error("the expected content is unknown: the intended sequence ends before this check");
  const SymbolResolver resolver(seen, symbols, space, seed);
  const ProvenanceFormatter formatter(scenario, space, symbols, *check);
  std::vector<std::unique_ptr<Rendering>> renderings;
  for (int pass = 0; pass < naming_passes; ++pass)
    renderings.push_back(std::make_unique<Rendering>(symbols, space.buffers(), seed, pass));
  std::vector<ComparedRange> out;
  for (std::int64_t offset = window.offset; offset < window.offset + window.bytes; ++offset) {
    const SymbolId must = expectation.id(*check, buffer, offset, symbols);
    ComparedRange byte{offset,
                       1,
                       formatter.layout_index().text_at({buffer, offset}),
                       formatter.tell(symbols.at(must), buffer),
                       formatter.tell(resolver.symbol(at, buffer, offset), buffer),
                       false};
    for (int pass = 0; pass < naming_passes && !byte.wrong; ++pass) {
      byte.wrong = seen.bytes[static_cast<std::size_t>(pass)][at].at(buffer, offset) !=
                   renderings[static_cast<std::size_t>(pass)]->byte(must);
    }
    if (!byte.wrong) byte.found = byte.expected;  // equal content may have several names
    append(out, std::move(byte));
  }
  return out;
}

// ---- drawings ------------------------------------------------------------------------------------------------------

json moves_of(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols, const Checkpoint& check,
              const Attributions& attributions) {
  constexpr std::size_t most = 96, before = 8;
  const auto first = std::ranges::find_if(attributions.all, [](const Attribution& c) { return c.wrong; });
  if (first == attributions.all.end()) return nullptr;
  const ProvenanceFormatter formatter(scenario, space, symbols, check);
  std::vector<ComparedRange> runs;
  std::size_t first_wrong = 0;
  std::int64_t all = 0;
  for (const Attribution& c : attributions.all) {
    if (c.buffer != first->buffer) continue;
    ++all;
    if (runs.size() > first_wrong + most && first_wrong > 0) continue;
    const Provenance must = formatter.tell(c.must, c.buffer);
    append(runs, {c.offset, 1, "", must, c.wrong ? formatter.tell(c.is, c.buffer) : must, c.wrong});
    if (c.wrong && first_wrong == 0) first_wrong = runs.size();
  }
  const std::size_t begin = first_wrong > before ? first_wrong - before : 0, end = std::min(runs.size(), begin + most);
  json moves = json::array();
  for (std::size_t i = begin; i < end; ++i) {
    std::int64_t offset = 0;
    const std::string region = space.symbol_of({first->buffer, runs[i].offset}, offset);
    all -= runs[i].bytes;
    moves.push_back({{"region", region},
                     {"offset", offset},
                     {"bytes", runs[i].bytes},
                     {"should", place_json(runs[i].expected)},
                     {"did", place_json(runs[i].found)}});
  }
  return {{"moves", moves}, {"moves_from", "bytes"}, {"bytes_left_out", all}};
}

}  // namespace kvcts::scenario
