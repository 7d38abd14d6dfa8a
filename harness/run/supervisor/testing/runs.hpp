// Runs a list of cases in a test and returns their results.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "case/testing/small_case.hpp"
#include "process/procfs.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::supervisor::testing {

struct Outcomes {
  std::vector<CaseResult> results;
  std::vector<std::string> messages;
  Summary summary;
  const CaseResult& of(const std::string& id) const {
    for (const CaseResult& result : results)
      if (result.id == id) return result;
    throw std::runtime_error("no result of " + id);
  }
};

/// The programs that this build made, no signal handlers, generous deadlines.
inline Options test_options(const std::string& binary_dir) {
  Options options;
  options.programs = binary_dir + "/bin";
  options.handle_signals = false;
  options.deadline_ms.fill(60'000);
  return options;
}

inline Outcomes run(const std::vector<ResolvedCase>& cases, const Options& options, Handlers handlers = {}) {
  Outcomes outcomes;
  const Jobs jobs{cases.size(), [&](std::size_t i) { return cases[i].id; }, [&](std::size_t i) { return cases[i]; }};
  const auto also = handlers.on_result;
  handlers.on_result = [&](std::size_t job, CaseResult&& result) {
    if (also) also(job, CaseResult(result));
    outcomes.results.push_back(std::move(result));
  };
  const auto log = handlers.on_message;
  handlers.on_message = [&](const std::string& line) {
    if (log) log(line);
    outcomes.messages.push_back(line);
  };
  outcomes.summary = run_cases(jobs, options, handlers);
  return outcomes;
}

/// Live processes that were started with a worker's mark by this process's runs ("<pid in hex>-...").
inline std::vector<std::string> left_processes() {
  char own[16];
  std::snprintf(own, sizeof own, "%x-", static_cast<unsigned>(::getpid()));
  std::vector<std::string> left;
  for (const process::ProcessStat& stat : process::all_processes()) {
    if (stat.dead() || stat.pid == ::getpid()) continue;
    if (stat.parent == ::getpid() || process::environment_of(stat.pid, process::mark_variable).starts_with(own))
      left.push_back(std::to_string(stat.pid) + " " + stat.command);
  }
  return left;
}

inline std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

inline std::vector<std::string> shared_memory_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string evidence(const CaseResult& result, const std::string& kind) {
  std::string all;
  for (const EvidenceFile& file : result.evidence_files)
    if (file.kind.starts_with(kind)) all += file.text;
  return all;
}

/// Checks at the end of its life that no process, descriptor or shared memory was added since its construction.
class NothingLeft {
 public:
  NothingLeft() : descriptors_(open_descriptors()), names_(shared_memory_names()) {}
  ~NothingLeft() {
    EXPECT_EQ(left_processes(), std::vector<std::string>{});
    EXPECT_EQ(open_descriptors(), descriptors_);
    const std::vector<std::string> now = shared_memory_names();
    std::vector<std::string> more;
    std::set_difference(now.begin(), now.end(), names_.begin(), names_.end(), std::back_inserter(more));
    std::erase_if(more, [](const std::string& name) {
      return name.find("kvcts") == std::string::npos && name.find("ucx") == std::string::npos;
    });
    EXPECT_EQ(more, std::vector<std::string>{});
  }

 private:
  std::size_t descriptors_;
  std::vector<std::string> names_;
};

}  // namespace kvcts::supervisor::testing
