#include "kernels/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace kvcts::kernels {

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel(int threads, std::size_t pieces, const std::function<void(std::size_t)>& body) {
  if (threads == 0) threads = processors();
  if (threads <= 1 || pieces <= 1) {
    for (std::size_t piece = 0; piece < pieces; ++piece) body(piece);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::mutex guard;
  std::exception_ptr first;
  const auto work = [&] {
    try {
      for (std::size_t piece = next++; piece < pieces; piece = next++) body(piece);
    } catch (...) {
      next = pieces;
      const std::lock_guard lock(guard);
      if (!first) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    const std::size_t most = std::min(static_cast<std::size_t>(threads), pieces);
    for (std::size_t t = 1; t < most; ++t) others.emplace_back(work);
    work();
  }
  if (first) std::rethrow_exception(first);
}

void parallel_ranges(int threads, std::size_t n, std::size_t grain,
                     const std::function<void(std::size_t, std::size_t)>& body) {
  if (threads == 0) threads = processors();
  // Four ranges per thread: a delayed thread leaves the rest to the others.
  const std::size_t wanted = threads <= 1 ? 1 : static_cast<std::size_t>(threads) * 4;
  const std::size_t grains = (n + grain - 1) / grain;
  const std::size_t each = std::max<std::size_t>(1, (grains + wanted - 1) / wanted) * grain;
  parallel(threads, (n + each - 1) / each, [&](std::size_t k) { body(k * each, std::min(n, (k + 1) * each)); });
}

}  // namespace kvcts::kernels
