// The value of a name in an axis expression.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvcts::matrix {

enum class Type : std::uint8_t { none, boolean, integer, text, arch, list };
std::string_view name(Type type);

/// monostate = the entity does not say: not true, equal to nothing, in no list, ordered with nothing.
using Value = std::variant<std::monostate, bool, std::int64_t, std::string, std::vector<std::string>>;

std::string to_text(const Value& value);
/// "sm_90" -> 90; -1 for cpu and anything else, which has no place in the order.
std::int64_t arch_order(std::string_view arch);

}  // namespace kvcts::matrix
