#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <system_error>

#include "process/warden.hpp"

extern char** environ;  // NOLINT

namespace kvcts::process {

nlohmann::json to_json(const SpawnRequest& request) {
  return {{"op", "spawn"},        {"id", request.id},
          {"argv", request.argv}, {"env", request.environment},
          {"mark", request.mark}, {"memory_limit", request.memory_limit}};
}

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string text(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return text.substr(0, text.rfind('/'));
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

WardenProcess start_warden(const std::string& program, const std::string& run) {
  auto [own, theirs] = socket_pair();
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 3);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 4);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  std::string path = program, token = run;
  char* argv[] = {path.data(), token.data(), nullptr};
  WardenProcess warden;
  const int error = ::posix_spawn(&warden.pid, program.c_str(), &actions, &attributes, argv, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "starting " + program);
  warden.socket = std::move(own);
  return warden;
}

}  // namespace kvcts::process
