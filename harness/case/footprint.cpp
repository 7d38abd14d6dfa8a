#include "case/footprint.hpp"

#include <algorithm>

#include "case/scenario_walk.hpp"
#include "layout/layout.hpp"

namespace kvcts::scenario {

namespace {

// Measured on x86-64 and rounded up; script/memory_test.cpp checks the resulting bounds against runs.
constexpr double per_element = 120;                        // of a step while the truth is painted: its places, its codes
constexpr double per_row = 200;                            // of a step on the tape
constexpr double per_name = 450, per_name_and_pass = 300;  // of a row that is written, or a number that is read
constexpr double per_byte = 4, per_byte_and_pass = 2;      // touched, at a check
constexpr double kept_whole = 4 << 20, per_whole_byte_and_pass = 3;  // scenario::AddressSpace

// At most so many deciding passes: enough for the narrowest codes (script/run.cpp).
double passes_of(const Scenario& scenario) {
  double out = 3;
  for (const auto& [name, memory] : scenario.memories) {
    if (memory.view.cache.empty()) continue;
    for (const auto& plane : layout::cache_from_text(memory.view.cache).planes) {
      const int bits = layout::bits(plane.dtype);
      out = std::max(out, bits >= 32 ? 3.0 : bits == 16 ? 6.0 : plane.component == layout::Component::data ? 12.0 : 24.0);
    }
  }
  return out;
}

std::size_t longest_table(const Scenario& scenario, const std::string& request, const std::string& memory) {
  std::size_t out = 0;
  const auto take = [&](const std::map<std::string, std::vector<std::int64_t>>& blocks) {
    if (const auto found = blocks.find(memory); found != blocks.end()) out = std::max(out, found->second.size());
  };
  if (const auto found = scenario.requests.find(request); found != scenario.requests.end()) take(found->second.blocks);
  each_action(scenario, [&](const Step&, const Action& action, bool) {
    if (action.op == Operation::assign && action.request == request) take(action.blocks);
  });
  return out;
}

bool wanted(const std::string& parts, layout::Component component) {
  return parts == "all" || (parts == "data") == (component == layout::Component::data);
}

}  // namespace

Taken taken(const Scenario& scenario, const Action& action, const View& view) {
  Taken out;
  if (view.cache.empty()) return out;
  const auto& given =
      &view >= action.to.data() && &view < action.to.data() + action.to.size() ? action.to_blocks : action.from_blocks;
  const std::size_t blocks = given ? given->size() : longest_table(scenario, action.request, memory_of(view.of));
  for (const auto& plane : layout::cache_from_text(view.cache).planes) {
    if (!wanted(action.parts, plane.component) && !action.decode) continue;
    double rows = 1, channels = 1;
    bool blocked = false;
    for (const auto& mode : plane.modes) {
      blocked = blocked || mode.axis == layout::Axis::block || mode.axis == layout::Axis::slot;
      if (mode.axis == layout::Axis::channel)
        channels *= static_cast<double>(mode.extent);
      else if (mode.axis != layout::Axis::block)
        rows *= static_cast<double>(mode.extent);
    }
    if (blocked) rows *= static_cast<double>(blocks);
    out.rows += rows, out.elements += rows * channels;
    out.bytes += rows * channels * layout::bits(plane.dtype) / 8;
  }
  return out;
}

double memory_needed(const Scenario& scenario) {
  double whole = 0;
  for (const auto& [name, memory] : scenario.memories) {
    if (memory.sparse || !memory.view.of.empty()) continue;
    const double guards = static_cast<double>(memory.guard_below) + static_cast<double>(memory.guard_above);
    double bytes = static_cast<double>(memory.bytes) + guards;
    if (!memory.view.cache.empty()) {
      double laid_out = 0;
      for (const auto& a : layout::cache_from_text(memory.view.cache).allocations)
        laid_out += static_cast<double>(a.bytes) + static_cast<double>(memory.gap) + guards;
      bytes = std::max(bytes, laid_out);
    }
    whole += bytes;
  }
  const double passes = passes_of(scenario);
  double checks = 1, step = 0, rows = 0, names = 0, touched = 0;
  each_action(scenario, [&](const Step&, const Action& action, bool) {
    checks += action.op == Operation::check;
    Taken from, to;
    const auto add = [&](Taken& sum, const View& view) {
      const Taken one = taken(scenario, action, view);
      sum.elements += one.elements, sum.bytes += one.bytes, sum.rows += one.rows;
    };
    for (const auto& view : action.from) add(from, view);
    for (const auto& view : action.to) add(to, view);
    step = std::max(step, from.elements + to.elements);
    rows += from.rows + to.rows;
    names += action.op == Operation::write ? to.rows : action.decode ? from.elements / 64 + from.rows : 0;
    const bool raw =
        action.op == Operation::copy || (action.op == Operation::fill && action.request.empty() && !action.to_blocks);
    // A read has its own output, four-byte numbers if it decodes; a put has an object.
    const double out = action.op == Operation::read && action.decode                 ? 4 * from.elements
                       : action.op == Operation::read || action.op == Operation::put ? from.bytes
                                                                                     : 0;
    touched += raw ? static_cast<double>(action.bytes) * static_cast<double>(action.count) : to.bytes + out;
  });
  return step * per_element + rows * per_row + names * (per_name + per_name_and_pass * passes) +
         touched * (per_byte + per_byte_and_pass * passes) * checks +
         std::min(whole, kept_whole) * per_whole_byte_and_pass * passes;
}

}  // namespace kvcts::scenario
