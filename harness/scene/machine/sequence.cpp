#include "scene/machine/sequence.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace kvcts::scenario {

namespace {

// Where a late action goes: directly after (before) all plays of the named step, after earlier additions there.
void insert_at(Sequence& sequence, const std::string& anchor, bool behind, StepExecution play) {
  const auto of_anchor = [&](const StepExecution& p) { return p.step == anchor && p.part != StepExecution::Part::capture; };
  if (behind) {
    const auto last = std::find_if(sequence.rbegin(), sequence.rend(), of_anchor);
    if (last == sequence.rend())
      throw std::runtime_error("step '" + play.step + "': 'after' names no step: '" + anchor + "'");
    // Those that were put behind it before come first, with what was put behind them.
    std::set<std::string> those{anchor};
    auto at = last.base();
    for (; at != sequence.end() && at->part != StepExecution::Part::capture && those.contains(at->action.after); ++at)
      those.insert(at->step);
    sequence.insert(at, std::move(play));
  } else {
    const auto first = std::find_if(sequence.begin(), sequence.end(), of_anchor);
    if (first == sequence.end())
      throw std::runtime_error("step '" + play.step + "': 'before' names no step: '" + anchor + "'");
    sequence.insert(first, std::move(play));
  }
}

}  // namespace

Sequence sequence_of(const Scenario& scenario, const std::vector<std::vector<Action>>& steps) {
  Sequence out;
  Sequence late;
  for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
    bool anchored = false;
    for (const Action& action : steps.at(i)) {
      StepExecution play{scenario.steps[i].name, action};
      if (action.after.empty() && action.before.empty()) {
        out.push_back(std::move(play));
        anchored = true;
        continue;
      }
      play.takes_bytes = action.reads == "issue", play.takes_table = action.table == "issue";
      if (play.takes_bytes || play.takes_table) {
        StepExecution capture = play;
        capture.part = StepExecution::Part::capture;
        out.push_back(std::move(capture));
        play.part = StepExecution::Part::deliver;
      }
      late.push_back(std::move(play));
    }
    // A skipped or moved step can still be an anchor.
    if (anchored) continue;
    out.push_back({scenario.steps[i].name, {}});
    out.back().action.op = Operation::nothing;
  }
  for (StepExecution& play : late) {
    const bool behind = !play.action.after.empty();
    const std::string anchor = behind ? play.action.after : play.action.before;
    insert_at(out, anchor, behind, std::move(play));
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
