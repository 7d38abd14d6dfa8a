// Reads a run store: finished, killed, or still being written.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "run/store/counts.hpp"
#include "run/store/db.hpp"
#include "run/store/run.hpp"

namespace kvcts::store {

class RunReader {
 public:
  /// Opens `directory`/store.db and checks all of it. Throws Error (one sentence) if it is missing, foreign, damaged,
  /// truncated or newer than this program. Rows carry seals: damage that SQLite cannot see is an Error when the row
  /// is read.
  static RunReader open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  RunInfo info() const;
  std::vector<Session> sessions() const;
  bool planned() const;  ///< a plan is stored; false if the run was killed before that

  /// Every planned case once, in plan order; one row in memory at a time.
  void for_each(const std::function<void(const Row&)>& visit) const;
  std::vector<Row> rows() const;
  std::vector<CaseResult> results() const;  ///< of decided cases
  /// What many runs are compared by. Texts hold until the next one.
  struct Brief {
    std::string_view id, facts;  ///< facts: JSON
    bool decided{false}, declared_not_run{false}, own_execution{false};
    Outcome outcome{Outcome::not_run};
    Verdict verdict{Verdict::not_run};
    FaultClass fault_class{};
    std::optional<Phase> phase;
    std::int64_t wall_ns{0}, made{1}, failed{0};  ///< tries of a flaky case
  };
  /// for_each() for a long history: no JSON is read. The seal of the result is checked, not that of all that its execution
  /// left.
  void for_each_brief(const std::function<void(const Brief&)>& visit) const;
  /// One case, or nullopt if it was not planned.
  std::optional<Row> find(std::string_view id) const;
  Counts counts() const;

 private:
  friend class RunStore;
  RunReader(std::shared_ptr<Db> db, std::filesystem::path directory);
  Row read_row(SqlStatement& from, SqlStatement& phases, SqlStatement& evidence) const;
  void select(std::string_view where, std::string_view bound, const std::function<void(const Row&)>& visit) const;

  std::shared_ptr<Db> db_;
  std::filesystem::path directory_;
};

}  // namespace kvcts::store
