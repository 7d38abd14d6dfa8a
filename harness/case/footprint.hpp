// How much of a scripted case a step touches, computed before anything is laid out.
#pragma once

#include <cstdint>
#include <string>

#include "case/scenario.hpp"

namespace kvcts::scenario {

/// What a step takes through a view; in double, because a file may request more than 2^63.
struct Taken {
  double elements{0}, bytes{0};
  double rows{0};  ///< elements that differ in more than the channel
};
/// Upper bounds: whole blocks of the longest table of the request in that memory, ignoring picks of layers, heads and
/// channels.
Taken taken(const Scenario& scenario, const Action& action, const View& view);

/// Bytes of memory needed to play and compare a scenario, without a search for a cause.
double memory_needed(const Scenario& scenario);

}  // namespace kvcts::scenario
