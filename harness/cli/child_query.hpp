// Questions to plug-ins: each loads code under test, so this program starts again for it, in a sandbox, and may crash or
// hang there.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/child.hpp"

namespace kvcts::cli {

/// `answer` runs in the other process; what it throws is that process's error.
struct ChildQuery {
  std::string_view name;
  nlohmann::json (*answer)(const nlohmann::json& about);
};
const std::vector<ChildQuery>& child_queries();

/// Asks by name. `named`: words that may be paths, needed inside the sandbox. `grants`: as in cases/engines. Without a
/// sandbox on this machine the process is one without. Throws std::system_error as ask_child does.
ChildAnswer ask(std::string_view query, const nlohmann::json& about, const std::vector<std::string>& grants,
                const std::vector<std::string>& named, std::chrono::milliseconds deadline);

/// For a verb that runs code under test in its own processes: the same verb again, as it was called, in a sandbox
/// that takes with it whatever is left. Its exit status; nullopt where this process is already inside, or the machine has
/// none: it continues by itself.
std::optional<int> inside(const std::vector<std::string>& grants);

/// The other side: `kvcts --answer QUESTION ABOUT`, with the answer's pipe at descriptor 4. True when that is what was
/// called; then it is done.
bool handle_child_query(int argc, const char* const* argv);

/// The questions, where what they ask about is.
namespace doctor {
nlohmann::json load_engine(const nlohmann::json& about);  ///< {file, environment} -> its version
nlohmann::json try_engine(
    const nlohmann::json& about);  ///< {stem, environment, options} -> {name, version, file, self_test, facts}
}  // namespace doctor

}  // namespace kvcts::cli
