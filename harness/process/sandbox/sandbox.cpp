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
#include <map>
#include <stdexcept>
#include <utility>

#include "process/installation.hpp"
#include "process/pointers.hpp"

extern char** environ;  // NOLINT

namespace kvcts::process {
namespace {

namespace fs = std::filesystem;

/// The folders that the sandbox replaces by empty ones, which vanish with it. Links are resolved.
std::vector<fs::path> replaced_folders() {
  std::vector<fs::path> out{"/dev/shm"};
  std::vector<fs::path> machine{"/tmp", "/var/tmp", "/run"};
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') machine.push_back(fs::path(home) / ".cache");
  std::error_code none;
  for (const fs::path& folder : machine)
    if (fs::is_directory(folder, none)) out.push_back(fs::canonical(folder, none));
  return out;
}

constexpr std::uint64_t most_file_bytes = std::uint64_t{4} << 30;  // of each empty folder

/// What is mounted over the machine's files. In order: what lies in a folder comes behind it.
class Mounts {
 public:
  /// By an empty folder, in which what is needed is shown all the same.
  void replace(const fs::path& folder) { mounts_.insert_or_assign(folder, Mount{Kind::replaced, {}}); }
  /// Whatever is named in it. A file: what it holds.
  void hide(const fs::path& path, bool folder) {
    mounts_.insert_or_assign(path, Mount{folder ? Kind::hidden : Kind::emptied, {}});
  }

  /// Links on the way are kept, and what they point to is shown, too.
  void show(const fs::path& path) {
    constexpr int most_links = 40;  // as the kernel's
    fs::path rest = path;
    for (int links = 0; links < most_links; ++links) {
      fs::path at;
      auto part = rest.begin();
      std::error_code none;
      for (; part != rest.end(); ++part) {
        at /= *part;
        if (fs::is_symlink(at, none)) break;
      }
      if (part == rest.end()) break;
      const fs::path target = fs::read_symlink(at, none);
      mounts_.try_emplace(at, Mount{Kind::link, target});
      fs::path next = at.parent_path() / target;
      for (++part; part != rest.end(); ++part) next /= *part;
      rest = next.lexically_normal();
    }
    mounts_.try_emplace(rest, Mount{Kind::shown, {}});
  }

  /// bubblewrap's words. What an outer folder shows or replaces already is left out.
  std::vector<std::string> words() const {
    std::vector<std::string> out;
    std::vector<std::pair<fs::path, Kind>> around;
    for (const auto& [path, mount] : mounts_) {
      while (!around.empty() && !lies_in(path, around.back().first)) around.pop_back();
      const Kind outer = around.empty() ? Kind::shown : around.back().second;
      const bool empty = mount.kind == Kind::replaced || mount.kind == Kind::hidden;
      if (outer == Kind::hidden) continue;
      around.emplace_back(path, mount.kind);
      if (mount.kind == Kind::emptied) {
        if (outer != Kind::replaced) out.insert(out.end(), {"--ro-bind", "/dev/null", path.string()});
        continue;
      }
      if ((outer == Kind::replaced) == empty) continue;  // it is empty, or there, already
      if (empty)
        out.insert(out.end(), {"--size", std::to_string(most_file_bytes), "--tmpfs", path.string()});
      else if (mount.kind == Kind::shown)
        out.insert(out.end(), {"--ro-bind-try", path.string(), path.string()});
      else
        out.insert(out.end(), {"--symlink", mount.target.string(), path.string()});
    }
    return out;
  }

 private:
  enum class Kind { replaced, hidden, emptied, shown, link };
  struct Mount {
    Kind kind;
    fs::path target;  ///< of a link
  };
  static bool lies_in(const fs::path& path, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
  }
  std::map<fs::path, Mount> mounts_;
};

const std::string& bubblewrap() {
  static const std::string path = find_tool("bwrap");
  return path;
}

/// Runs a command to its end with `filter` at descriptor 3; returns its wait() status, and its output in `message`.
int run(const std::vector<std::string>& argv, int filter, std::string& message) {
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
    message = std::strerror(error);
    return -1;
  }
  std::array<char, 512> buffer;
  for (ssize_t n = 0; (n = ::read(in.get(), buffer.data(), buffer.size())) > 0;)
    message.append(buffer.data(), static_cast<std::size_t>(n));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  while (!message.empty() && message.back() == '\n') message.pop_back();
  return status;
}

std::string try_it() {
  const char* off = std::getenv("KVCTS_SANDBOX");
  if (off != nullptr && std::string_view(off) == "off") return "KVCTS_SANDBOX=off";
  if (bubblewrap().empty()) return "bubblewrap is not installed";
  try {
    const UniqueFd filter = filter_of({});
    std::string message;
    // What is promised, as seen from inside: any program could call itself bwrap.
    const int status =
        run(sandboxed({}, 3, {(program_folder() / "kvcts-launcher").string(), "probe"}), filter.get(), message);
    if (status == 0) return "";
    return message.empty() ? "bubblewrap ended with status " + std::to_string(status)
                           : message.substr(0, message.find('\n'));
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

bool has(const Sandbox& sandbox, std::string_view grant) {
  return std::find(sandbox.granted.begin(), sandbox.granted.end(), grant) != sandbox.granted.end();
}

/// Variables of this process that code under test does not get: all but those that are known to matter to it, by name or by
/// how they begin, and those that $KVCTS_PASS names.
std::vector<std::string> kept_back() {
  constexpr std::array names{"PATH",          "HOME",   "USER", "LOGNAME",         "LANG",       "LANGUAGE",   "TZ",
                             "TERM",          "TMPDIR", "PWD",  "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME",
                             "PYTHONHASHSEED"};
  constexpr std::array begins{"LC_",     "KVCTS_",  "ASAN_",    "LSAN_",       "UBSAN_", "TSAN_",  "CUDA_",
                              "NVIDIA_", "NCCL_",   "OMP_",     "UCX_",        "NIXL_",  "MC_",    "MOONCAKE_",
                              "VLLM_",   "SGLANG_", "LMCACHE_", "FLASHINFER_", "TORCH_", "TRITON_"};
  const char* passed = std::getenv("KVCTS_PASS");
  const std::string named = "," + std::string(passed != nullptr ? passed : "") + ",";
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string name(variable.substr(0, variable.find('=')));
    if (std::ranges::none_of(names, [&](const char* one) { return name == one; }) &&
        std::ranges::none_of(begins, [&](const char* one) { return name.starts_with(one); }) &&
        named.find("," + name + ",") == std::string::npos)
      out.push_back(name);
  }
  return out;
}

}  // namespace

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
  // A fresh /proc has the machine's settings, and root may write them.
  for (const char* settings : {"/proc/sys", "/proc/irq", "/proc/bus", "/proc/acpi", "/proc/sysrq-trigger"})
    add({"--ro-bind-try", settings, settings});
  if (first) add({"--as-pid-1"});
  if (std::ranges::none_of(grants(), [&](const Grant& grant) { return grant.network && has(sandbox, grant.name); }))
    add({"--unshare-net"});
  for (const std::string& name : kept_back()) add({"--unsetenv", name});
  bool sys = false;
  for (const Grant& grant : grants()) {
    if (!has(sandbox, grant.name)) continue;
    for (const std::string& folder : grant.folders) {
      sys = sys || folder == "/sys";
      if (folder.starts_with("/dev/")) add({"--dev-bind-try", folder, folder});
    }
    for (const std::string& device : devices_of(grant)) add({"--dev-bind-try", device, device});
  }
  if (!sys) add({"--tmpfs", "/sys"});
  Mounts mounts;
  for (const fs::path& path : needed_paths(sandbox.named)) mounts.show(path);
  for (const fs::path& folder : replaced_folders()) mounts.replace(folder);
  std::error_code none;
  for (const std::string& path : sandbox.hidden)
    if (const fs::path whole = fs::weakly_canonical(path, none); fs::exists(whole, none))
      mounts.hide(whole, fs::is_directory(whole, none));
  for (const std::string& word : mounts.words()) add({word});
  add({"--setenv", "TMPDIR", "/tmp", "--seccomp", std::to_string(filter), "--"});
  out.insert(out.end(), argv.begin(), argv.end());
  return out;
}

LauncherProcess start_launcher_in(const Sandbox& sandbox, const std::vector<std::string>& argv, int errors) {
  constexpr int filter_place = 4;  // after its socket
  const UniqueFd filter = filter_of(sandbox);
  const int more[] = {filter.get()};
  return start_launcher(sandboxed(sandbox, filter_place, argv, true), more, errors);
}

const std::string& why_no_sandbox() {
  static const std::string why = try_it();
  return why;
}

std::string isolation_text() {
  if (!why_no_sandbox().empty()) return "none: " + why_no_sandbox();
  std::string message;
  run({bubblewrap(), "--version"}, -1, message);
  return message;
}

}  // namespace kvcts::process
