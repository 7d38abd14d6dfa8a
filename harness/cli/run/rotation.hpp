// What to run when time is short: least recently run first, night after night.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/run/plan.hpp"

namespace kvcts::cli {

/// A file that remembers of every case when it was last run, with which data, whether it failed, and how long it took.
class Rotation {
 public:
  struct Seen {
    std::string digest;
    std::int64_t when_ms{0};  ///< Unix time
    bool failed{false};
    std::int64_t wall_ns{0};
  };
  /// A file that is not there remembers nothing yet. Throws UsageError where it is something else.
  explicit Rotation(std::filesystem::path file);
  const Seen* find(const std::string& id) const;
  std::map<std::string, std::int64_t> times_ns() const;  ///< that cases took, by id
  void saw(const CaseResult& result, std::int64_t when_ms);
  /// Adds what was seen to what the file has by now: another shard may have written. Throws std::runtime_error where it
  /// cannot be written.
  void save() const;

 private:
  std::filesystem::path file_;
  std::map<std::string, Seen> seen_, new_;
};

/// Seconds that a case takes: as remembered, else estimated. 0 for one that is decided without running.
double seconds_of(const Plan& plan, const Item& item, const Rotation* rotation);

/// The part of a plan that is run tonight.
struct Tonight {
  std::vector<bool> kept;                                              ///< by item
  std::int64_t never{0}, changed{0}, failed{0}, rest{0}, left_out{0};  ///< of the cases to run: why they are there
  std::int64_t nights{1};  ///< like tonight, itself counted: until every case was run as it is now, and where every one was,
                           ///< until all are again
  /// "tonight 4,210 of 10,007 cases: 120 never run, 30 changed, 4 that failed, 4,056 by age; full coverage takes 3 nights"
  std::string words() const;
};

/// Chooses cases for so many seconds on so many executors, each run `tries` times: never run, then changed since, then
/// failed before, then those run longest ago. Cases that share an execution go together; what is decided without running
/// stays. A fifth of the time is kept for what takes longer than it did. At least one execution is chosen.
Tonight choose(const Plan& plan, const Rotation& rotation, double seconds, int executors, std::int64_t tries);

}  // namespace kvcts::cli
