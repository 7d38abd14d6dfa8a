#include "process/sandbox/probe.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "process/installation.hpp"
#include "process/procfs.hpp"

namespace kvcts::process {
namespace {

bool may_be_written(const std::string& path) {
  struct statvfs about{};
  return ::statvfs(path.c_str(), &about) == 0 && (about.f_flag & ST_RDONLY) == 0;
}

std::string field(const std::string& status, const char* name) {
  const std::size_t at = status.find(std::string("\n") + name + ":");
  if (at == std::string::npos) return "";
  const std::size_t from = status.find_first_not_of(" \t", at + std::strlen(name) + 2);
  return status.substr(from, status.find('\n', from) - from);
}

/// An interface beside the loopback; "" = there is none.
std::string other_interface() {
  std::string out;
  struct if_nameindex* all = ::if_nameindex();
  for (const auto* one = all; one != nullptr && one->if_index != 0; ++one)
    if (std::strcmp(one->if_name, "lo") != 0) out = one->if_name;
  if (all != nullptr) ::if_freenameindex(all);
  return out;
}

}  // namespace

std::string probe_sandbox() {
  const std::string status = read_text_file("/proc/self/status");
  constexpr int filtered = 2;       // SECCOMP_MODE_FILTER
  constexpr pid_t highest_pid = 9;  // bubblewrap's own, and this
  char here[8];
  const iovec own{here, sizeof here};
  std::error_code none;
  if (::getpid() > highest_pid) return "processes have the machine's ids";
  for (const std::string& path : {std::string("/"), std::string("/etc"), program_folder().string()})
    if (may_be_written(path)) return path + " can be written";
  for (const char* path : {"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"})
    if (std::filesystem::exists(path, none) && ::access(path, W_OK) == 0) return std::string(path) + " can be written";
  if (field(status, "CapEff").find_first_not_of('0') != std::string::npos) return "processes have capabilities";
  if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != filtered) return "no system call is filtered";
  if (::unshare(CLONE_NEWUSER) == 0) return "new namespaces can be made";
  if (::process_vm_readv(::getpid(), &own, 1, &own, 1, 0) >= 0) return "memory of processes can be read";
  if (const std::string name = other_interface(); !name.empty()) return "the network has the interface " + name;
  return "";
}

}  // namespace kvcts::process
