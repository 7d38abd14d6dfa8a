// What the page's own parser of axis expressions has to know, so that it understands what the command line understands and
// answers the same: the axes, their values, and the facts of the catalogue behind each value.
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
