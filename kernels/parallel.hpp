// One loop over several threads. Kernels take `threads` (1: the caller's only, 0: one a processor) and give the same result
// for any number of them.
#pragma once

#include <cstddef>
#include <functional>

namespace kvcts::kernels {

/// Processors that this process may run on (its affinity counts), at least 1.
int processors();

/// Calls body(piece) once for each piece in [0, pieces), on `threads` threads of which one is the caller's; a thread that is
/// done with a piece takes the next one. Returns when all are done. The first exception of a body is thrown again here;
/// pieces that no thread has begun by then are left out.
void parallel(int threads, std::size_t pieces, const std::function<void(std::size_t)>& body);

/// The same over [0, n) in ranges of whole `grain`s (the last may be cut), a few for each thread.
void parallel_ranges(int threads, std::size_t n, std::size_t grain,
                     const std::function<void(std::size_t begin, std::size_t end)>& body);

}  // namespace kvcts::kernels
