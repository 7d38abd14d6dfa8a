// The run store: one SQLite file per run, written by one process while the run goes on.
//
// What was committed survives `kill -9` of anything at any moment (WAL, synchronous=FULL). Results are committed in groups:
// when 64 are waiting, when the oldest has waited 200 ms, or on flush(). One thread only. Results whose execution digest and
// content are equal (cases that differ only in arch) share one stored execution.
//
//   auto store = RunStore::create(new_run_directory("runs", "smoke"), info, argv);
//   store.plan(cases);
//   for (const auto& planned : store.missing()) store.record(run(planned));   // and tick() whenever the event loop turns
//   store.finish(Ending::complete);
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/store/counts.hpp"
#include "run/store/error.hpp"
#include "run/store/reader.hpp"
#include "run/store/run.hpp"

namespace kvcts::store {

/// Makes `root`/<UTC time>-<suite>, e.g. "runs/20260301-120000-smoke"; "-2" and so on is appended when that is taken.
std::filesystem::path new_run_directory(const std::filesystem::path& root, std::string_view suite);

class RunStore {
 public:
  static constexpr std::size_t group_size = 64;
  static constexpr std::chrono::milliseconds group_age{200};

  /// Starts a run in `directory` (made if need be). Throws Error when a store is there already, when another process writes
  /// to it, or when the directory is on a network file system, where SQLite's locks cannot be relied on.
  static RunStore create(const std::filesystem::path& directory, RunInfo info, const std::vector<std::string>& argv);
  /// Goes on with a run. Throws Error as RunReader::open does, and when another process is writing to it.
  static RunStore open(const std::filesystem::path& directory, const std::vector<std::string>& argv);

  RunStore(RunStore&&) noexcept;
  RunStore& operator=(RunStore&&) noexcept;
  /// Flushes; an error is lost, so call finish() or flush() before.
  ~RunStore();

  /// Stores the plan, all or nothing. On a run that has one: changes nothing and says how the new one differs. An id that is
  /// planned twice is an Error.
  Drift plan(const std::vector<PlannedCase>& cases);
  /// Planned cases without a result, in plan order.
  std::vector<PlannedCase> missing();

  /// Takes a result. Throws Error, and stores nothing of it, when its id was not planned, has a result already, or was run
  /// with other data than planned (case_digest; an empty one is filled in from the plan, as is an empty execution digest).
  /// May commit; then DiskFull leaves every waiting result, this one included, in memory for a later flush().
  void record(const CaseResult& result);
  /// Takes the result of a case that was run again, in place of the one that it has. Throws Error, and changes nothing, when
  /// it has none.
  void replace(const CaseResult& result);
  /// Commits if the oldest waiting result is 200 ms old. due_in(): when that will be; nullopt when nothing waits.
  void tick();
  std::optional<std::chrono::milliseconds> due_in() const;
  /// Commits all that is waiting; on return it is on disk.
  void flush();
  std::size_t waiting() const;

  /// Ends the sitting: commits, folds the write-ahead log into the one file, releases the lock. Only reading is possible
  /// afterwards.
  void finish(Ending ending, std::string_view reason = "");

  /// Sittings of the runs that this one is made of, as if they had come before it.
  void adopt(const std::vector<Session>& sessions);

  /// Reads what is stored (flushes first). Stays valid after finish().
  RunReader reader();
  Counts counts() { return reader().counts(); }
  const std::filesystem::path& directory() const;

 private:
  struct State;
  explicit RunStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvcts::store
