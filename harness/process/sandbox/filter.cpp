// System calls forbidden to code under test.
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

#include "process/sandbox/sandbox.hpp"

namespace kvcts::process {
namespace {

/// Calls that reach into other processes, change what a process sees of the machine, or load code into the kernel.
constexpr std::array refused{
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(bpf),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(quotactl),
    SCMP_SYS(acct),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(io_uring_setup),       // works on while its process is stopped
#if !defined(__SANITIZE_ADDRESS__)  // LeakSanitizer uses it to stop the threads of its process
    SCMP_SYS(ptrace),
#endif
};

void check(int error) {
  if (error != 0) throw std::runtime_error("cannot build the system call filter (error " + std::to_string(-error) + ")");
}

}  // namespace

UniqueFd filter_of(const Sandbox& sandbox) {
  std::vector<int> granted;
  for (const Grant& grant : grants()) {
    if (std::find(sandbox.granted.begin(), sandbox.granted.end(), grant.name) != sandbox.granted.end())
      granted.insert(granted.end(), grant.calls.begin(), grant.calls.end());
  }
  struct Context {
    scmp_filter_ctx it = ::seccomp_init(SCMP_ACT_ALLOW);
    ~Context() {
      if (it != nullptr) ::seccomp_release(it);
    }
  } context;
  if (context.it == nullptr) throw std::runtime_error("cannot build the system call filter");
  check(::seccomp_attr_set(context.it, SCMP_FLTATR_ACT_BADARCH,
                           SCMP_ACT_ERRNO(ENOSYS)));  // no 32-bit calls: their numbers differ
  for (const int call : refused) {
    if (std::find(granted.begin(), granted.end(), call) == granted.end())
      check(::seccomp_rule_add(context.it, SCMP_ACT_ERRNO(EPERM), call, 0));
  }
  // A new namespace would restore what was removed. The filter cannot read the flags of clone3: the C library falls
  // back to clone.
  for (const std::uint64_t flag :
       {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP})
    check(
        ::seccomp_rule_add(context.it, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag)));
  check(::seccomp_rule_add(context.it, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0));
  UniqueFd file(::memfd_create("kvcts-filter", MFD_CLOEXEC));
  if (!file) throw std::runtime_error("cannot build the system call filter (no memory file)");
  check(::seccomp_export_bpf(context.it, file.get()));
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

}  // namespace kvcts::process
