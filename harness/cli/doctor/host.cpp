// Processor, memory and the right to look into other processes.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/doctor/doctor.hpp"
#include "golden/child.hpp"

namespace kvcts::cli::doctor {
namespace {

/// Value of "key : value" in a /proc file; "" when absent.
std::string field(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

double gib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1u << 30); }

std::uint64_t meminfo_bytes(const std::string& key) {
  return std::strtoull(field("/proc/meminfo", key).c_str(), nullptr, 10) * 1024;
}

/// May this process stop and look into a process that it did not start as a tracee? Tried, not guessed.
DoctorFinding try_ptrace() {
  DoctorFinding f{"ptrace", FindingState::good, "another process of this user can be traced", "", true};
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const long seized = child > 0 ? ptrace(PTRACE_SEIZE, child, nullptr, nullptr) : -1;
  const int reason = errno;
  if (child > 0) {
    kill(child, SIGKILL);
    while (waitpid(child, nullptr, __WALL) > 0) {
    }
  }
  if (seized != 0) {
    const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
    f = {"ptrace", FindingState::missing,
         fmt::format("tracing is refused: {}{}", std::strerror(reason),
                     scope.empty() ? "" : " (yama ptrace_scope " + scope + ")"),
         "a HANG is still reported, but without the stacks of the hung worker; allow tracing (CAP_SYS_PTRACE, "
         "or "
         "kernel.yama.ptrace_scope 0 or 1)",
         false};
  }
  return f;
}

DoctorFinding tool(const std::string& program, const std::vector<std::string>& argv, const std::string& consequence) {
  const auto answer = output_of(argv);
  if (!answer) return {program, FindingState::missing, "not found", consequence, nullptr};
  const std::string line = answer->substr(0, answer->find('\n'));
  return {program, FindingState::good, line, "", line};
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<std::string> output_of(const std::vector<std::string>& argv) {
  golden::ChildLimits limits;
  limits.deadline = std::chrono::seconds(20);
  limits.output_bytes = 64 * 1024;
  auto result = golden::run_child(argv, -1, limits);
  if (!result.ok()) return std::nullopt;
  return std::move(result.out);
}

std::string_view name(FindingState state) {
  constexpr std::string_view names[] = {"fact", "good", "missing", "broken"};
  return names[static_cast<int>(state)];
}

DoctorSection processor() {
  DoctorSection s{"processor", {}};
  const std::string model = field("/proc/cpuinfo", "model name");
  const auto usable = std::thread::hardware_concurrency();
  s.findings.push_back({"model", FindingState::fact, model.empty() ? "unknown" : model, "", model});
  s.findings.push_back({"processors", FindingState::fact, fmt::format("{} usable", usable), "", usable});
  const std::string flags = " " + field("/proc/cpuinfo", "flags") + " ";
  std::vector<std::string> have;
  for (const char* flag : {"sse4_2", "avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile"})
    if (flags.find(" " + std::string(flag) + " ") != std::string::npos) have.emplace_back(flag);
  s.findings.push_back({"vector", FindingState::fact,
                        have.empty() ? "none of those looked for" : fmt::format("{}", fmt::join(have, " ")), "", have});
  utsname kernel{};
  uname(&kernel);
  s.findings.push_back({"kernel", FindingState::fact,
                        fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine), "", kernel.release});
  return s;
}

DoctorSection memory() {
  DoctorSection s{"memory", {}};
  const std::uint64_t total = meminfo_bytes("MemTotal"), available = meminfo_bytes("MemAvailable");
  s.findings.push_back(
      {"ram", FindingState::fact, fmt::format("{:.1f} GiB, {:.1f} GiB free to use", gib(total), gib(available)), "", total});
  struct statvfs shm{};
  if (statvfs("/dev/shm", &shm) == 0) {
    const std::uint64_t free = std::uint64_t{shm.f_bavail} * shm.f_frsize;
    const bool small = free < (64u << 20);
    s.findings.push_back(
        {"dev_shm", small ? FindingState::missing : FindingState::good,
         fmt::format("/dev/shm has {:.2f} GiB free", gib(free)),
         small ? "engine ucx over shared memory may fail; give /dev/shm at least 64 MiB (docker run --shm-size=1g)" : "",
         free});
  } else {
    s.findings.push_back(
        {"dev_shm", FindingState::missing, "no /dev/shm", "engine ucx has no shared memory; mount a tmpfs there", nullptr});
  }
  const int fd = memfd_create("kvcts-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool sealed = fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  const std::string why = std::strerror(errno);
  if (fd >= 0) close(fd);
  s.findings.push_back(
      {"memory_files", sealed ? FindingState::good : FindingState::broken,
       sealed ? "memory files can be made and sealed" : "memory files cannot be made or sealed: " + why,
       sealed ? "" : "no case can run; a Linux kernel of 3.17 or newer without a filter on memfd_create is needed", sealed});
  rlimit files{}, locked{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  s.findings.push_back({"open_files", files.rlim_cur < 1024 ? FindingState::missing : FindingState::good,
                        fmt::format("{} open files a process", files.rlim_cur),
                        files.rlim_cur < 1024 ? "cases with many regions may fail; raise it: ulimit -n 1024" : "",
                        files.rlim_cur});
  const bool no_limit = locked.rlim_cur == RLIM_INFINITY;
  s.findings.push_back(
      {"locked_memory", FindingState::fact,
       no_limit ? "no limit on locked memory" : fmt::format("{} KiB of locked memory", locked.rlim_cur / 1024), "",
       no_limit ? nlohmann::json("unlimited") : nlohmann::json(locked.rlim_cur)});
  return s;
}

DoctorSection watching() {
  DoctorSection s{"evidence of hangs", {}};
  s.findings.push_back(try_ptrace());
  s.findings.push_back(
      tool("eu-stack", {"eu-stack", "--version"}, "stacks of hung workers come from gdb only; install elfutils"));
  s.findings.push_back(tool("gdb", {"gdb", "--version"}, "no stacks where eu-stack fails; install gdb"));
  return s;
}

}  // namespace kvcts::cli::doctor
