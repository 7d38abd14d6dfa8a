// Nodes of a Slurm allocation: how many steps they take, and which cases.
#pragma once

#include <string>
#include <vector>

namespace kvcts::cli::slurm {

struct SlurmNode {
  int places{1};  ///< steps at a time
  std::vector<std::string> features;
};

/// `cpus_per_node`: the allocation's SLURM_JOB_CPUS_PER_NODE ("2(x3),4": four nodes). `shown`: its nodes in the same order,
/// by `scontrol --oneliner show node`; without them no node has features. A step has `jobs` cores.
std::vector<SlurmNode> nodes_of(const std::string& cpus_per_node, const std::string& shown, int jobs);

struct Share {
  int nodes{0}, places{0};
};
/// Of the nodes with this feature; "": of all.
Share share(const std::vector<SlurmNode>& nodes, const std::string& feature);

/// The feature that a step for cases with these needs asks for: the need that the fewest nodes have, as srun takes but one.
/// "": any node will do, because no need is a feature of some nodes but not of all.
std::string constraint(const std::vector<SlurmNode>& nodes, const std::vector<std::string>& needs);

}  // namespace kvcts::cli::slurm
