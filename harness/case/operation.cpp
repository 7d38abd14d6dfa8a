#include "case/operation.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace kvcts::scenario {
namespace {

constexpr std::array<std::string_view, operation_count> operation_names{
    "nothing", "write", "move",     "copy", "fill",    "read",   "register", "unregister", "put",   "get",  "assign",
    "signal",  "wait",  "complete", "fail", "require", "unpack", "refuse",   "raise",      "crash", "hang", "check",
};

static_assert(!operation_names.back().empty(), "an operation has no name");  // fewer names than operations end in ""

}  // namespace

std::string_view name(Operation op) { return operation_names.at(static_cast<std::size_t>(op)); }

Operation operation_from_name(std::string_view wanted) {
  const auto found = std::find(operation_names.begin(), operation_names.end(), wanted);
  if (found == operation_names.end()) throw std::runtime_error("unknown operation '" + std::string(wanted) + "'");
  return static_cast<Operation>(found - operation_names.begin());
}

void to_json(nlohmann::json& out, Operation op) { out = name(op); }
void from_json(const nlohmann::json& in, Operation& op) { op = operation_from_name(in.get<std::string>()); }

}  // namespace kvcts::scenario
