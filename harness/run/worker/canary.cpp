#include "run/worker/canary.hpp"

#include <cstdio>

#include "engines/transport/session.hpp"
#include "run/worker/worker.hpp"

namespace kvcts::worker {

int canary(const std::string& engine) try {
  const auto asked = nlohmann::json::parse(engine);
  const auto plugin = transport::Plugin::load(transport::find_plugin(asked.at("plugin").get<std::string>()));
  transport::OpenOptions options = open_options(asked);
  options.name = "canary";
  return transport::ask_canary(*plugin, options) ? canary_passes : canary_none;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return canary_fails;
}

}  // namespace kvcts::worker
