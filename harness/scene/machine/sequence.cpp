#include "scene/machine/sequence.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace kvcts::scenario {

namespace {

// Where a late action goes: directly after (before) all plays of the named step, after earlier additions there.
void insert_at(Sequence& sequence, const std::string& anchor, bool behind, StepExecution execution) {
  const auto of_anchor = [&](const StepExecution& p) { return p.step == anchor && p.part != StepExecution::Part::capture; };
  if (behind) {
    const auto last = std::find_if(sequence.rbegin(), sequence.rend(), of_anchor);
    if (last == sequence.rend())
      throw std::runtime_error("step '" + execution.step + "': 'after' names no step: '" + anchor + "'");
    // Those that were put behind it before come first, with what was put behind them.
    std::set<std::string> those{anchor};
    auto at = last.base();
    for (; at != sequence.end() && at->part != StepExecution::Part::capture && those.contains(at->action.after); ++at)
      those.insert(at->step);
    sequence.insert(at, std::move(execution));
  } else {
    const auto first = std::find_if(sequence.begin(), sequence.end(), of_anchor);
    if (first == sequence.end())
      throw std::runtime_error("step '" + execution.step + "': 'before' names no step: '" + anchor + "'");
    sequence.insert(first, std::move(execution));
  }
}

}  // namespace

Sequence sequence_of(const Scenario& scenario, const std::vector<std::vector<Action>>& steps) {
  Sequence out;
  Sequence late;
  for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
    bool anchored = false;
    for (const Action& action : steps.at(i)) {
      StepExecution execution{scenario.steps[i].name, action};
      if (action.after.empty() && action.before.empty()) {
        out.push_back(std::move(execution));
        anchored = true;
        continue;
      }
      execution.takes_bytes = action.reads == "issue", execution.takes_table = action.table == "issue";
      if (execution.takes_bytes || execution.takes_table) {
        StepExecution capture = execution;
        capture.part = StepExecution::Part::capture;
        out.push_back(std::move(capture));
        execution.part = StepExecution::Part::deliver;
      }
      late.push_back(std::move(execution));
    }
    // A skipped or moved step can still be an anchor.
    if (anchored) continue;
    out.push_back({scenario.steps[i].name, {}});
    out.back().action.op = Operation::nothing;
  }
  for (StepExecution& execution : late) {
    const bool behind = !execution.action.after.empty();
    const std::string anchor = behind ? execution.action.after : execution.action.before;
    insert_at(out, anchor, behind, std::move(execution));
  }
  return out;
}

Sequence intended_sequence(const Scenario& scenario) {
  std::vector<std::vector<Action>> steps;
  for (const Step& step : scenario.steps) steps.push_back({step.intended});
  return sequence_of(scenario, steps);
}

Sequence actual_sequence(const Scenario& scenario) {
  std::vector<std::vector<Action>> steps;
  for (const Step& step : scenario.steps)
    steps.push_back(step.as_intended ? std::vector<Action>{step.intended} : step.actual);
  return sequence_of(scenario, steps);
}

}  // namespace kvcts::scenario
