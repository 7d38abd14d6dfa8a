#include "case/direction.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace kvcts {

std::string_view name(Direction direction) { return direction == Direction::write ? "write" : "read"; }

std::optional<Direction> direction_from_name(std::string_view wanted) {
  for (const Direction direction : {Direction::write, Direction::read})
    if (name(direction) == wanted) return direction;
  return std::nullopt;
}

void to_json(nlohmann::json& out, Direction direction) { out = name(direction); }
void from_json(const nlohmann::json& in, Direction& direction) {
  const auto found = direction_from_name(in.get<std::string>());
  if (!found) throw std::runtime_error("expected write or read, found " + in.dump());
  direction = *found;
}

}  // namespace kvcts
