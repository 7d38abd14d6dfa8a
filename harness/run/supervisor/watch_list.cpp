#include "run/supervisor/watch_list.hpp"

#include <algorithm>
#include <utility>

#include "process/procfs.hpp"
#include "run/supervisor/loop.hpp"

namespace kvcts::supervisor {

namespace {
constexpr std::size_t recheck_batch = 16;
}  // namespace

void WatchList::no_longer_last(std::uint64_t workers) {
  for (Watched& w : all_)
    if (w.workers == workers) w.last.reset();
}

std::optional<Watched> WatchList::take_last(std::uint64_t workers) {
  for (auto w = all_.begin(); w != all_.end(); ++w) {
    if (w->workers != workers || !w->last) continue;
    std::optional<Watched> taken(std::move(*w));
    all_.erase(w);
    return taken;
  }
  return std::nullopt;
}

const Watched* WatchList::next_due(std::uint64_t workers) const {
  const Watched* next = nullptr;
  for (const Watched& w : all_)
    if (!w.last && (workers == 0 || w.workers == workers) && (next == nullptr || w.due_ns < next->due_ns)) next = &w;
  return next;
}

std::vector<std::uint64_t> WatchList::ripe(const Options& options) const {
  std::vector<const Watched*> all;
  std::size_t open = 0;
  std::int64_t bytes = 0;
  for (const Watched& w : all_) {
    if (w.open) ++open, bytes += w.memory_bytes;
    if (w.open || !w.last) all.push_back(&w);
  }
  const bool full = open > options.watched_cases || bytes > options.watched_bytes;
  // Cases that wait for their workers come last.
  std::sort(all.begin(), all.end(), [](const Watched* x, const Watched* y) {
    return std::pair(x->last != nullptr, x->due_ns) < std::pair(y->last != nullptr, y->due_ns);
  });
  const std::int64_t now = now_ns();
  std::vector<std::uint64_t> keys;
  for (const Watched* w : all)
    if ((!w->last && (!w->open || w->due_ns <= now)) || (full && keys.size() < recheck_batch)) keys.push_back(w->key);
  return keys;
}

std::deque<Watched>::iterator WatchList::find(std::uint64_t key) {
  return std::find_if(all_.begin(), all_.end(), [&](const Watched& w) { return w.key == key; });
}

Watched& WatchList::at(std::uint64_t key) { return *find(key); }

Watched WatchList::take(std::uint64_t key) {
  const auto found = find(key);
  Watched taken = std::move(*found);
  all_.erase(found);
  return taken;
}

std::vector<Watched> WatchList::take_open() {
  std::vector<Watched> open;
  std::deque<Watched> rest;
  for (Watched& w : all_) {
    w.last.reset();
    if (w.open)
      open.push_back(std::move(w));
    else
      rest.push_back(std::move(w));
  }
  all_ = std::move(rest);
  return open;
}

}  // namespace kvcts::supervisor
