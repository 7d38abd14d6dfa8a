// Finished cases whose memory is still watched.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"
#include "run/supervisor/decide.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::supervisor {

/// A finished case whose memory is still watched.
struct Watched {
  std::size_t job;
  std::uint64_t key;
  CaseResult result;
  PhaseResult::Kind ended;
  std::int64_t memory_bytes;
  std::int64_t due_ns;
  int number, lost;
  std::uint64_t workers;  ///< who ran it, and could still write
  /// Set for the last case of these workers: it reports how they end. Null: it waits only for due_ns.
  std::unique_ptr<ResolvedCase> last;
  bool open{true};  ///< the checker still has its memory
};

class WatchList {
 public:
  void add(Watched watched) { all_.push_back(std::move(watched)); }
  /// These workers ran a further case: how they end is no longer reported in an earlier one.
  void no_longer_last(std::uint64_t workers);
  /// The last case of these workers, once its own time is over and only they can change it.
  std::optional<Watched> take_last(std::uint64_t workers);
  /// The next case that waits only for its time, of these workers or (0) of any.
  const Watched* next_due(std::uint64_t workers) const;
  /// Keys of the cases to close: their time has come, or too much memory is watched.
  std::vector<std::uint64_t> ripe(const Options& options) const;
  Watched& at(std::uint64_t key);  ///< must exist
  Watched take(std::uint64_t key);
  /// The checker is gone with the memory of open cases: removes those, and no case waits for its workers any longer.
  std::vector<Watched> take_open();

 private:
  std::deque<Watched>::iterator find(std::uint64_t key);

  std::deque<Watched> all_;
};

}  // namespace kvcts::supervisor
