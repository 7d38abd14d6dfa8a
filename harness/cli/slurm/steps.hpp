// Shards as steps of a Slurm allocation.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "cli/slurm/nodes.hpp"

namespace kvcts::cli::slurm {

/// What a head was asked: OUT.parts/job.json.
struct SlurmJob {
  std::vector<std::string> program;  ///< and its words, without what is the head's
  int shards{0}, jobs{1};            ///< --shards and --jobs
  std::int64_t cases{0};
  std::vector<std::string> features{};  ///< of each shard: that its cases need, "" for none
};

/// Runs all shards that are not over, as many at a time as the nodes have places, and says on `out` how far they are. Throws
/// UsageError if one ends without a run (with the words of its log) or is lost too often.
class Steps {
 public:
  Steps(const SlurmJob& job, std::filesystem::path parts, std::vector<SlurmNode> nodes, std::ostream& out);
  void run();
  std::vector<std::filesystem::path> runs() const;  ///< folders of shards with cases
  bool lost_any() const { return lost_ > 0; }

 private:
  struct Step {
    int shard{0}, attempts{0};
    std::string feature;  ///< of the nodes where it may run; "": all
    pid_t srun{0};        ///< 0: does not run
    bool over{false}, empty{false};
    std::int64_t done{0};                        ///< cases
    std::uintmax_t heard{0};                     ///< bytes of its log
    std::chrono::steady_clock::time_point when;  ///< that they were more
    std::string away;                            ///< the node that lost it
  };
  std::filesystem::path folder(const Step& step) const;
  std::filesystem::path log(const Step& step) const;
  void start(Step& step);
  bool start_some();
  void ended(Step& step, int status);
  bool is_over(Step& step) const;
  void listen(Step& step);
  void print_progress();

  const SlurmJob& job_;
  std::filesystem::path parts_;
  std::vector<SlurmNode> nodes_;
  std::ostream& out_;
  std::vector<Step> steps_;
  int lost_{0};
  bool disturbed_{false};  ///< a step was lost, or its srun had to be
  std::string last_progress_;
};

}  // namespace kvcts::cli::slurm
