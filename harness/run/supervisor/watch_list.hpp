// Cases whose end is known, and whose memory is still looked at.
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

/// A case whose end is known, and whose memory is still looked at.
struct Watched {
  std::size_t job;
  std::uint64_t key;
  CaseResult result;
  Ended::Kind ended;
  std::int64_t memory_bytes;
  std::int64_t due_ns;
  int number, lost;
  std::uint64_t workers;  ///< who ran it, and could still write
  /// The last case of these workers: what becomes of them when they end is told of it. Null: it waits for due_ns only.
  std::unique_ptr<ResolvedCase> last;
  bool open{true};  ///< the checker still has its memory
};

class WatchList {
 public:
  void add(Watched watched) { all_.push_back(std::move(watched)); }
  /// These workers ran a further case: what becomes of them is not told of an earlier one.
  void no_longer_last(std::uint64_t workers);
  /// The case that these workers ran last, when its own time is over and nothing but they can change it.
  std::optional<Watched> take_last(std::uint64_t workers);
  /// The next case that waits for its time only, of these workers or (0) of any.
  const Watched* next_due(std::uint64_t workers) const;
  /// Keys of the cases whose turn it is: their time has come, or more memory is watched than may be.
  std::vector<std::uint64_t> ripe(const Options& options) const;
  Watched& at(std::uint64_t key);  ///< must be there
  Watched take(std::uint64_t key);
  /// The checker is gone with the memory of those that are open: takes them out, and no case waits for its workers any more.
  std::vector<Watched> take_open();

 private:
  std::deque<Watched>::iterator find(std::uint64_t key);

  std::deque<Watched> all_;
};

}  // namespace kvcts::supervisor
