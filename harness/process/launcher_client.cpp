#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "process/launcher.hpp"
#include "process/pointers.hpp"
#include "process/request.hpp"

extern char** environ;  // NOLINT

namespace kvcts::process {

nlohmann::json to_json(const SpawnRequest& request) {
  return {{"op", LauncherRequest::spawn}, {"id", request.id},     {"argv", request.argv},
          {"env", request.environment},   {"mark", request.mark}, {"memory_limit", request.memory_limit}};
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

LauncherProcess start_launcher(const std::vector<std::string>& argv, std::span<const int> more, int errors) {
  auto [own, theirs] = socket_pair();
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  if (errors >= 0) ::posix_spawn_file_actions_adddup2(&actions, errors, 2);
  // Sources lie above all targets, so none is overwritten before it is copied.
  const int above = static_cast<int>(more.size()) + 16;
  std::vector<UniqueFd> lifted;
  lifted.emplace_back(::fcntl(theirs.get(), F_DUPFD_CLOEXEC, above));
  for (const int fd : more) lifted.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, above));
  int target = 3;
  for (const UniqueFd& fd : lifted) ::posix_spawn_file_actions_adddup2(&actions, fd.get(), target++);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, target);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> words = argv;
  std::vector<char*> pointers = pointers_to(words);
  LauncherProcess launcher;
  const int error = ::posix_spawn(&launcher.pid, pointers[0], &actions, &attributes, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "starting " + argv[0]);
  launcher.socket = std::move(own);
  return launcher;
}

std::string first_line_of(int errors) {
  char text[2048];
  const ssize_t got = ::pread(errors, text, sizeof text, 0);
  std::string message(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  message.resize(std::min(message.size(), message.find('\n')));
  return message;
}

}  // namespace kvcts::process
