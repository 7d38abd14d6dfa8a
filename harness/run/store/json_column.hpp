// JSON in a column of a store, which may come from a stranger: the seals are no secret, so that nothing is taken on trust.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace kvcts::store {

/// Parses JSON after its depth and its number of values are found to be bounded, and checks what its readers rely on.
/// Throws std::runtime_error that names the column and the key: what was expected, what was found.
///
/// `expected` is JSON, too: {"key": kind} is an object in which the key, if it is there, is of that kind ("key!": it must be
/// there; "*": any key); [kind] is a list; a kind in words is "text", "truth", "count", "whole", "seed", "time", "scalar",
/// "place", "object" or "list".
nlohmann::json parse_column(std::string_view text, std::string_view column, const nlohmann::json& expected);

}  // namespace kvcts::store
