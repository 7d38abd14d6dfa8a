#include "process/sandbox/sandbox.hpp"

#include <fcntl.h>
#include <glob.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "process/pointers.hpp"
#include "process/warden.hpp"

extern char** environ;  // NOLINT

namespace kvcts::process {
namespace {

namespace fs = std::filesystem;

/// Replaced by empty folders that vanish with the sandbox.
constexpr std::array<std::string_view, 4> replaced{"/tmp", "/dev/shm", "/run", "/var/tmp"};

bool lies_in(std::string_view path, std::string_view folder) {
  return path == folder || (path.starts_with(folder) && path.size() > folder.size() && path[folder.size()] == '/');
}

std::string find_in_path(std::string_view program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + std::string(program);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return "";
}

const std::string& bubblewrap() {
  static const std::string path = find_in_path("bwrap");
  return path;
}

/// Runs a command to its end with `filter` at descriptor 3; returns its wait() status, and its output in `said`.
int run(const std::vector<std::string>& argv, int filter, std::string& said) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), 2);
  if (filter >= 0) ::posix_spawn_file_actions_adddup2(&actions, filter, 3);
  std::vector<std::string> words = argv;
  std::vector<char*> pointers = pointers_to(words);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  out.reset();
  if (error != 0) {
    said = std::strerror(error);
    return -1;
  }
  std::array<char, 512> buffer;
  for (ssize_t n = 0; (n = ::read(in.get(), buffer.data(), buffer.size())) > 0;)
    said.append(buffer.data(), static_cast<std::size_t>(n));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return status;
}

std::string try_it() {
  const char* off = std::getenv("KVCTS_SANDBOX");
  if (off != nullptr && std::string_view(off) == "off") return "KVCTS_SANDBOX=off";
  if (bubblewrap().empty()) return "bubblewrap is not installed";
  try {
    const UniqueFd filter = filter_of({});
    std::string said;
    const int status = run(sandboxed({}, 3, {"/bin/true"}), filter.get(), said);
    if (status == 0) return "";
    return said.empty() ? "bubblewrap ended with status " + std::to_string(status) : said.substr(0, said.find('\n'));
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<std::string> devices_of(const Grant& grant) {
  std::vector<std::string> out;
  for (const std::string& pattern : grant.globs) {
    glob_t found{};
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
      for (std::size_t i = 0; i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
  }
  return out;
}

bool is_granted(const Sandbox& sandbox, const Grant& grant) {
  return std::find(sandbox.granted.begin(), sandbox.granted.end(), grant.name) != sandbox.granted.end();
}

}  // namespace

std::vector<std::string> shown_paths(const std::vector<std::string>& also) {
  std::vector<std::string> candidates = also, out;
  std::error_code none;
  candidates.push_back(fs::current_path(none).string());
  candidates.push_back(program_folder());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::size_t equals = variable.find('=');
    if (equals == std::string_view::npos || variable.starts_with("TMPDIR=")) continue;
    std::string_view rest = variable.substr(equals + 1);
    while (!rest.empty()) {
      const auto colon = rest.find(':');
      candidates.emplace_back(rest.substr(0, colon));
      if (colon == std::string_view::npos) break;
      rest.remove_prefix(colon + 1);
    }
  }
  for (const std::string& path : candidates) {
    const std::string real = fs::weakly_canonical(path, none).string();
    for (const std::string& one : {path, real}) {
      if (one.empty() || one[0] != '/' || !fs::exists(one, none)) continue;
      const bool inside = std::any_of(replaced.begin(), replaced.end(),
                                      [&](std::string_view folder) { return lies_in(one, folder) && one != folder; });
      if (inside && std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
    }
  }
  std::sort(out.begin(), out.end());  // a folder before its content
  return out;
}

std::vector<std::string> sandboxed(const Sandbox& sandbox, int filter, const std::vector<std::string>& argv, bool first) {
  std::vector<std::string> out{bubblewrap(),
                               "--unshare-user-try",
                               "--unshare-pid",
                               "--unshare-ipc",
                               "--die-with-parent",
                               "--cap-drop",
                               "ALL",
                               "--ro-bind",
                               "/",
                               "/",
                               "--proc",
                               "/proc",
                               "--dev",
                               "/dev"};
  const auto add = [&](std::initializer_list<std::string> words) { out.insert(out.end(), words); };
  if (first) add({"--as-pid-1"});
  bool sys = false;
  for (const Grant& grant : grants()) {
    if (!is_granted(sandbox, grant)) continue;
    for (const std::string& folder : grant.folders) {
      sys = sys || folder == "/sys";
      if (folder.starts_with("/dev/")) add({"--dev-bind-try", folder, folder});
    }
    for (const std::string& device : devices_of(grant)) add({"--dev-bind-try", device, device});
  }
  if (!sys) add({"--tmpfs", "/sys"});
  std::error_code none;
  for (const std::string_view folder : replaced) {
    if (folder == "/dev/shm" || fs::is_directory(folder, none)) add({"--tmpfs", std::string(folder)});
  }
  if (const char* home = std::getenv("HOME"); home != nullptr) {
    if (const fs::path cache = fs::path(home) / ".cache"; fs::is_directory(cache, none)) add({"--tmpfs", cache.string()});
  }
  for (const std::string& path : sandbox.shown) add({"--ro-bind-try", path, path});
  for (const std::string& path : sandbox.hidden) {
    const std::string real = fs::weakly_canonical(path, none).string();
    // A folder that does not exist inside need not be hidden, and could not be created on a read-only file system.
    const bool gone =
        std::any_of(replaced.begin(), replaced.end(), [&](std::string_view folder) { return lies_in(real, folder); }) &&
        std::none_of(sandbox.shown.begin(), sandbox.shown.end(),
                     [&](const std::string& shown) { return lies_in(real, shown); });
    if (!gone && fs::is_directory(real, none)) add({"--tmpfs", real});
  }
  add({"--setenv", "TMPDIR", "/tmp", "--seccomp", std::to_string(filter), "--"});
  out.insert(out.end(), argv.begin(), argv.end());
  return out;
}

const std::string& why_no_sandbox() {
  static const std::string why = try_it();
  return why;
}

std::string isolation_words() {
  if (!why_no_sandbox().empty()) return "none: " + why_no_sandbox();
  std::string said;
  run({bubblewrap(), "--version"}, -1, said);
  return said;
}

}  // namespace kvcts::process
