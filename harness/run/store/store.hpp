// The run store: one SQLite file per run, written by one process during the run.
//
// Committed results survive `kill -9` of anything at any moment (WAL, synchronous=FULL). Results are committed in
// groups: when 64 are waiting, when the oldest has waited 200 ms, or on flush(). Single-threaded. Results whose
// execution digest and content are equal (cases that differ only in arch) share one stored execution.
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

/// Makes `root`/<UTC time>-<suite>, e.g. "runs/20260301-120000-smoke"; appends "-2" and so on if that exists.
std::filesystem::path new_run_directory(const std::filesystem::path& root, std::string_view suite);

class RunStore {
 public:
  static constexpr std::size_t group_size = 64;
  static constexpr std::chrono::milliseconds group_age{200};

  /// Starts a run in `directory` (created if needed). Throws Error if a store exists already, if another process
  /// writes to it, or if the directory is on a network file system, where SQLite's locks are unreliable.
  static RunStore create(const std::filesystem::path& directory, RunInfo info, const std::vector<std::string>& argv);
  /// Resumes a run. Throws Error like RunReader::open, and if another process is writing to it.
  static RunStore open(const std::filesystem::path& directory, const std::vector<std::string>& argv);

  RunStore(RunStore&&) noexcept;
  RunStore& operator=(RunStore&&) noexcept;
  /// Flushes but drops errors, so call finish() or flush() first.
  ~RunStore();

  /// Stores the plan, all or nothing. On a run that has one: changes nothing and returns how the new one differs. An
  /// id planned twice is an Error.
  Drift plan(const std::vector<PlannedCase>& cases);
  /// Planned cases without a result, in plan order.
  std::vector<PlannedCase> missing();

  /// Takes a result. Throws Error, and stores nothing of it, if its id was not planned, has a result already, or was
  /// run with data that differ from the plan (case_digest; an empty one is filled in from the plan, as is an empty
  /// execution digest). May commit; then DiskFull leaves every waiting result, this one included, in memory for a
  /// later flush().
  void record(const CaseResult& result);
  /// Replaces the result of a case that was run again. Throws Error, and changes nothing, if it has no result.
  void replace(const CaseResult& result);
  /// Commits if the oldest waiting result is 200 ms old. due_in(): time until then; nullopt if nothing waits.
  void tick();
  std::optional<std::chrono::milliseconds> due_in() const;
  /// Commits everything that is waiting; on return it is on disk.
  void flush();
  std::size_t waiting() const;

  /// Ends the session: commits, folds the write-ahead log into the one file, releases the lock. Afterwards only
  /// reading is possible.
  void finish(Ending ending, std::string_view reason = "");

  /// Adds the sessions of the runs that this one was merged from, as if they had preceded it.
  void adopt(const std::vector<Session>& sessions);

  /// Reads what is stored (flushes first). Remains valid after finish().
  RunReader reader();
  Counts counts() { return reader().counts(); }
  const std::filesystem::path& directory() const;

 private:
  struct State;
  explicit RunStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvcts::store
