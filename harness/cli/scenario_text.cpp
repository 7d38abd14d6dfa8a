#include "cli/scenario_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "case/catalogue/case_text.hpp"
#include "case/catalogue/scenario_table.hpp"
#include "cli/report/text.hpp"
#include "layout/layout.hpp"

namespace kvcts::cli {

namespace {

std::string memory_text(const scenario::Memory& memory) {
  std::string out = memory.side + (memory.rank ? fmt::format(" rank {}", memory.rank) : "");
  const auto& view = memory.view;
  if (!view.of.empty()) out += ", bytes of " + view.of + (view.offset ? fmt::format(" + {}", view.offset) : "");
  if (!view.layout.empty())
    out += ": " + view.layout;
  else if (!view.text.empty())
    out += ": " + view.text;
  else if (!view.planes.empty())
    out += ": planes written out";
  if (view.cache.empty()) return out + fmt::format(", {} bytes", report::thousands(memory.bytes));
  const auto cache = layout::cache_from_text(view.cache);
  for (std::size_t i = 0; i < cache.allocations.size() && i < 3; ++i) {
    out += fmt::format("{}{} {}", i ? ", " : "; ", cache.allocations[i].name, report::thousands(cache.allocations[i].bytes));
  }
  if (cache.allocations.size() > 3) out += fmt::format(", and {} more", cache.allocations.size() - 3);
  return out + " bytes" + (memory.pool ? ", in one pool" : "") + (memory.sparse ? ", sparse" : "");
}

}  // namespace

std::vector<std::string> scenario_lines(const scenario::Scenario& scenario) {
  using nlohmann::json;
  std::vector<std::string> lines;
  for (const auto& [name, memory] : scenario.memories)
    lines.push_back(fmt::format("memory    {}: {}", name, memory_text(memory)));
  for (const auto& [name, request] : scenario.requests) {
    std::string line = fmt::format("request   {}: {} tokens, generation {}", name, request.tokens, request.generation);
    for (const auto& [memory, ids] : request.blocks) line += fmt::format(", {} [{}]", memory, fmt::join(ids, " "));
    lines.push_back(std::move(line));
  }
  lines.emplace_back("steps");
  std::size_t widest = 0;
  for (const auto& step : scenario.steps) widest = std::max(widest, step.name.size());
  const json document = catalogue::scenario_document(scenario);
  for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
    const auto& step = scenario.steps[i];
    json body = document["steps"][i].begin().value();
    const json actual = body.value("actually", json());
    body.erase("actually"), body.erase("name");
    const std::string words = catalogue::step_yaml(body, std::string(name(step.intended.op)));
    lines.push_back(
        fmt::format("  {:<{}}  {}{}{}", step.name, widest, name(step.intended.op), words.empty() ? "" : " ", words));
    if (step.as_intended) continue;
    if (!actual.is_array()) {
      lines.push_back(fmt::format("  {:<{}}  actually: skipped", "", widest));
      continue;
    }
    for (const auto& item : actual) {
      const std::string& op = item.begin().key();
      const bool same = op == name(step.intended.op);
      const json shown = same ? catalogue::difference(body, item.begin().value()) : item.begin().value();
      lines.push_back(fmt::format("  {:<{}}  actually: {}", "", widest,
                                  same ? (shown.empty() ? "as intended" : catalogue::step_yaml(shown, op))
                                       : op + " " + catalogue::step_yaml(shown, op)));
    }
  }
  return lines;
}

}  // namespace kvcts::cli
