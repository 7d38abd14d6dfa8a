// How much of a scripted case a step touches, before anything is laid out by it.
#pragma once

#include <cstdint>
#include <string>

#include "case/script.hpp"

namespace kvcts::script {

/// What a step takes through a view; in double, because a file may ask for more than 2^63.
struct Taken {
  double elements{0}, bytes{0};
  double rows{0};  ///< elements that differ in more than the channel
};
/// Upper bounds: whole blocks of the longest table that the request has in that memory, whatever is picked of layers, heads
/// and channels.
Taken taken(const Script& script, const Action& action, const View& view);

/// Bytes of memory that playing and comparing a script takes, without a search for a cause.
double memory_needed(const Script& script);

}  // namespace kvcts::script
