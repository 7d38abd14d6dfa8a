// Every action and every view of a scenario, in a fixed order, with words for its place.
#pragma once

#include <string>

#include "case/scenario.hpp"

namespace kvcts::scenario {

/// f(step, action, intended): all actions, the intended one of each step first. S: Script or const Scenario.
template <class S, class F>
void each_action(S& scenario, F&& f) {
  for (auto& step : scenario.steps) {
    f(step, step.intended, true);
    for (auto& action : step.actual) f(step, action, false);
  }
}

/// f(view, where): the declared views of memories, then those of all actions. `where`: "memory 'P'", "step 'move1'".
template <class S, class F>
void each_view(S& scenario, F&& f) {
  for (auto& [name, memory] : scenario.memories) f(memory.view, "memory '" + name + "'");
  each_action(scenario, [&](auto& step, auto& action, bool) {
    for (auto* views : {&action.from, &action.to}) {
      for (auto& view : *views) f(view, "step '" + step.name + "'");
    }
  });
}

/// "P" of "P/kv.L0".
inline std::string memory_of(const std::string& place) { return place.substr(0, place.find('/')); }
inline std::string memory_of(const View& view) { return memory_of(view.of); }

}  // namespace kvcts::scenario
