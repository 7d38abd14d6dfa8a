// kvcts run --on slurm: one allocation, shards of the selection as steps in it, and one run at the end.
//
//   head   kvcts run --on slurm, in the allocation: selects, cuts, starts and watches steps, merges
//   step   srun ... kvcts run --shard OUT.parts/I.shard: a run in OUT.parts/I, in a folder that all nodes share
//
// A step that is lost (its node, its slurmstepd, preemption) left a run: the next step takes that up with --resume, on
// another node if there is one. So no case is lost, and none counted twice. The same holds for the head: OUT.parts/job.json
// has what it was asked.
//
// Cases that need a feature of some nodes only (gpu, by the names of --require) have shards of their own, whose steps run
// on those nodes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/run/run.hpp"

namespace kvcts::cli::slurm {

struct SlurmOptions {
  int shards{0};                    ///< of all places; 0: two for each
  std::vector<std::string> sbatch;  ///< --sbatch-option: of salloc or the script
  bool print{false};                ///< the script for sbatch, and nothing runs
};

/// Outside of an allocation asks for one and begins again in it (does not return). Returns an Exit. Throws UsageError: no
/// Slurm here; no --out.
int run(const catalogue::Catalogue& catalogue, const RunOptions& run, const SlurmOptions& options);

/// Whether the run in `out` is one of Slurm that has not ended: then --resume is resume()'s.
bool unfinished(const std::filesystem::path& out);
int resume(const catalogue::Catalogue& catalogue, const std::filesystem::path& out, bool json);

}  // namespace kvcts::cli::slurm
