// A step as its list of copies, as an engine posts it.
#pragma once

#include <vector>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

/// One copy, and where in the address space it is. A fill comes from nowhere: from buffer -1, at the offset where it goes.
struct ListedCopy {
  BufferAddress from, to;
  std::int64_t bytes{0};
};

/// What a move copies, or a fill sets, when it runs as written, in order. Nothing if it moves halves of bytes, or goes
/// through a buffer. Throws std::exception where it cannot run.
std::vector<ListedCopy> copies_of(HypothesisSearch& search, std::size_t step);
/// The longest stretches that are adjacent at both ends, in the order of their first bytes to be moved.
std::vector<ListedCopy> join_contiguous(const std::vector<ListedCopy>& list);
/// One action each, as the step would do it.
std::vector<Action> written_out(const HypothesisSearch& search, std::size_t step, const std::vector<ListedCopy>& list);

}  // namespace kvcts::scenario
