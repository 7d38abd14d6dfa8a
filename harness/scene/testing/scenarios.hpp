// Scripts in a few lines, for the tests of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/template.hpp"
#include "scene/address_space.hpp"
#include "scene/truth/truth.hpp"

namespace kvcts::scenario::testing {

inline layout::Scheme plain(layout::Dtype dtype) { return {std::string(layout::name(dtype)), dtype, {}, {}}; }

inline ScenarioRequest request(std::int64_t tokens, std::map<std::string, std::vector<std::int64_t>> blocks,
                               std::uint32_t generation = 1) {
  ScenarioRequest out;
  out.tokens = tokens;
  out.generation = generation;
  out.blocks = std::move(blocks);
  return out;
}

/// Bytes of a memory, or of one of its allocations.
inline View raw(const std::string& of) {
  View view;
  view.of = of;
  return view;
}

/// All of a memory, as declared.
inline View whole(const Scenario& scenario, const std::string& memory) {
  View view;
  view.of = memory;
  view.cache = scenario.memories.at(memory).view.cache;
  return view;
}

/// As declared, by a template.
inline Memory memory(const std::string& side, const std::string& text, const layout::Geometry& geometry,
                     const layout::Scheme& scheme) {
  Memory out;
  out.side = side;
  out.view.cache = layout::to_text(layout::instantiate(text, geometry, scheme));
  out.guard_below = out.guard_above = 64;
  return out;
}

inline Action action(Operation op, const std::string& request = {}) {
  Action out;
  out.op = op;
  out.request = request;
  return out;
}

inline Action write(const Scenario& scenario, const std::string& request, const std::string& to) {
  Action out = action(Operation::write, request);
  out.to = {whole(scenario, to)};
  return out;
}

inline Action move(const Scenario& scenario, const std::string& request, const std::string& from, const std::string& to) {
  Action out = action(Operation::move, request);
  out.from = {whole(scenario, from)};
  out.to = {whole(scenario, to)};
  return out;
}

inline void add(Scenario& scenario, Action action) {
  Step step;
  step.name = std::string(name(action.op)) + std::to_string(scenario.steps.size() + 1);
  if (action.op == Operation::read && action.output.empty()) action.output = step.name;
  step.intended = std::move(action);
  scenario.steps.push_back(std::move(step));
}

/// A worked out scenario, and its bytes.
struct TruthBytes {
  explicit TruthBytes(const Scenario& s) : scenario(s), space(scenario), truth(truth_of(scenario, space, symbols)) {}
  TruthBytes(const TruthBytes&) = delete;

  int buffer(const std::string& name) const {
    for (const Buffer& b : space.buffers()) {
      if (b.name == name || (b.memory == name)) return b.ordinal;
    }
    throw std::runtime_error("no backing " + name);
  }
  /// With guards. `check`: -1 = the last.
  std::vector<std::uint8_t> bytes(int ordinal, int pass, int check = -1) const {
    const Checkpoint& at = check < 0 ? truth.checks.back() : truth.checks.at(static_cast<std::size_t>(check));
    const Buffer& b = space.buffers().at(static_cast<std::size_t>(ordinal));
    std::vector<std::uint8_t> out(static_cast<std::size_t>(b.guard_below + b.bytes + b.guard_above));
    Rendering rendering(symbols, space.buffers(), seed, pass);
    render(at.images.at(static_cast<std::size_t>(ordinal)), b, rendering, -b.guard_below, out);
    return out;
  }
  std::vector<std::uint8_t> bytes(const std::string& name, int pass = 0, int check = -1) const {
    return bytes(buffer(name), pass, check);
  }
  /// Without guards.
  std::vector<std::uint8_t> inside(const std::string& name, int pass = 0, int check = -1) const {
    const Buffer& b = space.buffers().at(static_cast<std::size_t>(buffer(name)));
    auto all = bytes(name, pass, check);
    return {all.begin() + b.guard_below, all.begin() + b.guard_below + b.bytes};
  }
  std::string text_at(const std::string& name, std::int64_t offset, int check = -1) {
    const Checkpoint& at = check < 0 ? truth.checks.back() : truth.checks.at(static_cast<std::size_t>(check));
    const int ordinal = buffer(name);
    SymbolId id = at.images.at(static_cast<std::size_t>(ordinal)).at(offset);
    if (id == hole) id = fresh_id(space.buffers()[static_cast<std::size_t>(ordinal)], offset, symbols);
    return to_string(id, symbols, space.buffers());
  }

  static constexpr std::uint64_t seed = 7;
  Scenario scenario;
  SymbolTable symbols;
  AddressSpace space;
  Truth truth;
};

}  // namespace kvcts::scenario::testing
