// The operations of a scripted case, in the order of the reference. A new one: an enumerator, its name, its tables in
// catalogue/scenario_ops.cpp; the compiler names the switches that lack it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace kvcts::scenario {

enum class Operation : std::uint8_t {
  nothing,
  write,
  move,
  copy,
  fill,
  read,
  register_range,
  unregister_range,
  put,
  get,
  assign,
  signal,
  wait,
  complete,
  fail,
  require,
  unpack,
  refuse,
  raise,
  crash,
  hang,
  check,
};
inline constexpr int operation_count = static_cast<int>(Operation::check) + 1;

/// As case files spell it: "register".
std::string_view name(Operation op);
/// Throws std::runtime_error("unknown operation 'x'").
Operation operation_from_name(std::string_view name);

void to_json(nlohmann::json& out, Operation op);
void from_json(const nlohmann::json& in, Operation& op);

}  // namespace kvcts::scenario
