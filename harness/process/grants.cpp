#include "process/grants.hpp"

#include <sys/syscall.h>

namespace kvcts::process {

const std::vector<Grant>& grants() {
  static const std::vector<Grant> all{
      {"sys", "/sys: the network cards and processors of the machine", {"/sys"}, {}, {}},
      {"process-vm",
       "copies by the kernel between the processes of one sandbox (process_vm_readv and _writev)",
       {},
       {},
       {SYS_process_vm_readv, SYS_process_vm_writev}},
      {"infiniband", "RDMA devices, /sys and the machine's network", {"/sys", "/dev/infiniband"}, {}, {}, true},
      {"cuda",
       "NVIDIA devices, and /sys",
       {"/sys", "/dev/nvidia-caps", "/dev/dri"},
       {"/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm*", "/dev/nvidia-modeset", "/dev/gdrdrv"},
       {}},
      {"network", "the machine's network, and what listens on it", {}, {}, {}, true},
      {"hugepages", "/dev/hugepages", {"/dev/hugepages"}, {}, {}},
  };
  return all;
}

std::vector<std::string> grant_names() {
  std::vector<std::string> out;
  for (const Grant& grant : grants()) out.emplace_back(grant.name);
  return out;
}

}  // namespace kvcts::process
