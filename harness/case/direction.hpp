// Who acts in a transfer: in a write the producer pushes, in a read the consumer pulls.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace kvcts {

enum class Direction : std::uint8_t { write, read };
std::string_view name(Direction direction);  ///< "write", "read"
std::optional<Direction> direction_from_name(std::string_view name);

/// As its name; from_json throws std::runtime_error for any other word.
void to_json(nlohmann::json& out, Direction direction);
void from_json(const nlohmann::json& in, Direction& direction);

}  // namespace kvcts
