// One loop over several threads. Kernels take `threads` (1: only the caller's, 0: one per processor) and give the same
// result for any number.
#pragma once

#include <cstddef>
#include <functional>

namespace kvcts::kernels {

/// Processors that this process may run on (respects its affinity), at least 1.
int processors();

/// Calls body(piece) once for each piece in [0, pieces), on `threads` threads including the caller's; a thread that finishes
/// a piece takes the next. Returns when all are done. Rethrows the first exception of a body; pieces not begun by then are
/// skipped.
void parallel(int threads, std::size_t pieces, const std::function<void(std::size_t)>& body);

/// The same over [0, n) in ranges of whole `grain`s (the last may be cut), a few for each thread.
void parallel_ranges(int threads, std::size_t n, std::size_t grain,
                     const std::function<void(std::size_t begin, std::size_t end)>& body);

}  // namespace kvcts::kernels
