// What the page's parser of axis expressions must know to understand what the command line understands: the axes, their
// values, and the catalogue's facts about each value.
#pragma once

#include <nlohmann/json.hpp>

#include "matrix/space.hpp"

namespace kvcts::report {

/// {"axes": [{"name", "type", "default", "open", "values": [...], "facts": [{"name", "type", "d": [...], "v": [...]}]}]}; a
/// fact's v has a number into d for each value of the axis, -1 where the catalogue says nothing. "consumer" says {"like":
/// "producer"}: its values are "same" and then the producer's, with the producer's facts.
nlohmann::json vocabulary(const matrix::Space& space);

/// Axis values of a matrix id, as matrix::axes_of; an empty object for other ids and for values that the catalogue no longer
/// has.
nlohmann::json axes_of_id(matrix::Space& space, const std::string& id);

}  // namespace kvcts::report
