#include "diagnose/lowering.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

using scenario::Operation;

namespace {

/// Of a group without consumers only the content is known.
bool several_move(const ResolvedCase& resolved) {
  return std::ranges::count_if(resolved.groups, [](const Group& g) { return !g.consumer.ranks.empty(); }) > 1;
}

class Lowering {
 public:
  explicit Lowering(const ResolvedCase& resolved, Crop crop = {}) : case_(resolved), crop_(std::move(crop)) {}

  scenario::Scenario lower() {
    std::vector<std::string> of_the_first;  // consumers, whose blocks other content may have had
    for (std::size_t g = 0; g < case_.groups.size(); ++g) {
      const Group& group = case_.groups[g];
      const auto producers = memories(Side::producer, static_cast<int>(g), group.producer);
      const auto consumers = memories(Side::consumer, static_cast<int>(g), group.consumer);
      if (g == 0) of_the_first = consumers;
      const bool nothing_moves = case_.connector.kind == "none";
      for (std::size_t r = 0; r < group.requests.size(); ++r) {
        const Request& request = group.requests[r];
        const std::string of = request_name(g, r);
        scenario::ScenarioRequest& reported = scenario_.requests[of];
        reported.tokens = request.tokens, reported.generation = request.generation;
        for (const auto& name : producers) reported.blocks[name] = request.producer_blocks;
        if (!request.consumer_blocks.empty()) {
          for (const auto& name : consumers.empty() ? of_the_first : consumers)
            reported.blocks[name] = request.consumer_blocks;
        }
        for (const auto& name : producers) add(Operation::write, of, {}, {name});
        if (!request.transfer) continue;
        for (const auto& name : consumers)
          nothing_moves ? add(Operation::write, of, {}, {name}) : add(Operation::move, of, producers, {name});
      }
      if (case_.reader.name.empty() || g > 0) continue;
      for (std::size_t r = 0; r < group.requests.size(); ++r) {
        if (group.requests[r].transfer) add(Operation::read, request_name(g, r), {consumers.front()}, {});
      }
    }
    // What is written comes first, as in a case with two sides.
    constexpr std::int64_t kept_whole = 256 << 10;
    std::int64_t bytes = 0;
    for (const auto& [name, memory] : scenario_.memories)
      for (const auto& allocation : layout::cache_from_text(memory.view.cache).allocations) bytes += allocation.bytes;
    for (auto& [name, memory] : scenario_.memories) memory.sparse = bytes > kept_whole;
    std::ranges::stable_sort(scenario_.steps, {}, [](const scenario::Step& s) { return s.intended.op != Operation::write; });
    return std::move(scenario_);
  }

  std::string request_name(std::size_t group, std::size_t request) const {
    const Group& of = case_.groups.at(group);
    if (of.consumer.ranks.empty()) return fmt::format("generation {}", of.requests.at(request).generation);
    return several_move(case_) ? fmt::format("{} of group {}", request, group) : std::to_string(request);
  }

 private:
  std::vector<std::string> memories(Side side, int group, const SideCache& cache) {
    std::vector<std::string> out;
    for (std::size_t r = 0; r < cache.ranks.size(); ++r) {
      out.push_back(memory_name(case_, side, group, static_cast<int>(r)));
      scenario::Memory& memory = scenario_.memories[out.back()];
      memory.side = name(side);
      memory.unused_slots = "kept";  // the comparison has decided which of them are right
      memory.rank = static_cast<std::int64_t>(r);
      memory.poison_rank = static_cast<std::uint32_t>(group) * 256 + static_cast<std::uint32_t>(r);
      memory.view.cache = layout::to_text(cache.ranks[r].truth);
      const auto shape = oracle::file_shape(case_, 0);
      memory.guard_below = shape.base;
      // Files end at a page.
      memory.guard_above = case_.guard_bytes + 4096;
    }
    return out;
  }

  scenario::View whole(const std::string& memory) const {
    scenario::View view;
    view.of = memory, view.cache = scenario_.memories.at(memory).view.cache;
    return view;
  }

  void add(Operation op, const std::string& request, const std::vector<std::string>& from,
           const std::vector<std::string>& to) {
    scenario::Step step;
    step.intended.op = op, step.intended.request = request;
    for (const auto& name : from) step.intended.from.push_back(whole(name));
    for (const auto& name : to) step.intended.to.push_back(whole(name));
    step.name = op == Operation::write ? "write" : "transfer";
    const Group& group = case_.groups.front();
    const bool several = several_move(case_) || group.requests.size() > 1;
    if (several) step.name += " of request " + request;
    const std::string& end = to.empty() ? from.front() : to.front();
    if (op == Operation::write || end.find(" rank ") != std::string::npos) step.name += " to " + end;
    if (op == Operation::read) {
      // Rows as output_bytes() describes them.
      step.intended.pick.layers = std::vector{group.consumer.ranks.front().geometry.first_layer};
      step.intended.parts = "data";
      step.intended.output = step.name = "output" + (several ? " of request " + request : "");
    }
    if (!crop_.whole && op != Operation::read) {
      const auto kept = crop_.tokens.find(scenario_.requests.at(request).generation);
      if (kept == crop_.tokens.end()) return;
      step.intended.pick.layers.emplace(crop_.layers.begin(), crop_.layers.end());
      step.intended.pick.tokens.emplace(kept->second.begin(), kept->second.end());
    }
    scenario_.steps.push_back(std::move(step));
  }

  const ResolvedCase& case_;
  const Crop crop_;
  scenario::Scenario scenario_;
};

}  // namespace

scenario::Scenario lower(const ResolvedCase& resolved, const Crop& crop) { return Lowering(resolved, crop).lower(); }

std::string memory_name(const ResolvedCase& resolved, Side side, int group, int rank) {
  const Group& of = resolved.groups.at(static_cast<std::size_t>(group));
  if (of.consumer.ranks.empty()) return of.name;
  std::string out(name(side));
  if (several_move(resolved)) out += " " + (of.name.empty() ? std::to_string(group) : of.name);
  if ((side == Side::producer ? of.producer : of.consumer).ranks.size() > 1) out += " rank " + std::to_string(rank);
  return out;
}

std::string place_name(const ResolvedCase& resolved, const RegionRef& region, std::size_t request) {
  if (region.group < 0) {
    const bool several = several_move(resolved) || resolved.groups.front().requests.size() > 1;
    return "output" + (several ? " of request " + Lowering(resolved).request_name(0, request) : "");
  }
  const auto& allocations = rank_of(resolved, region).truth.allocations;
  return memory_name(resolved, region.side, region.group, region.rank) + "/" +
         allocations.at(static_cast<std::size_t>(region.allocation)).name;
}

}  // namespace kvcts::diagnose
