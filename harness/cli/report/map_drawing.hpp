// The map of a failure as one small drawing: which bytes belong where, and which went there. Needs no script; less than 20
// KiB.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvcts::report {

inline constexpr std::size_t map_svg_limit = 20 * 1024;

/// Inline SVG of the `moves` of a picture ($defs/picture): a column for each run of destination bytes in the order of
/// memory, and for block, head, kv and generation (and whatever else differs) two strips of colours: what belongs there
/// above, what is there below; a red mark under each range that came from another place. "" when the picture has no moves.
std::string map_svg(const nlohmann::json& picture);

}  // namespace kvcts::report
