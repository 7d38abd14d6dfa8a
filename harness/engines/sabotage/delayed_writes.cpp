#include "engines/sabotage/delayed_writes.hpp"

#include <algorithm>

#include "engines/support/failure.hpp"

namespace kvcts::engines::sabotage {
namespace {

constexpr std::chrono::microseconds nap{200};
// With no task at all. Not wait(): that is a newer symbol of libstdc++ than a wheel may ask for.
constexpr std::chrono::hours rest{24};

/// True: it is over.
bool stepped(const std::function<bool()>& step) {
  try {
    return step();
  } catch (const Failure&) {  // the peer is gone, or its region: nothing late can arrive any more
    return true;
  }
}

}  // namespace

DelayedWrites::DelayedWrites(std::mutex& lock, std::function<void()> meanwhile)
    : lock_(lock), meanwhile_(std::move(meanwhile)) {}

DelayedWrites::~DelayedWrites() {
  {
    const std::lock_guard lock(lock_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DelayedWrites::add(std::chrono::microseconds delay, std::function<bool()> step) {
  const Clock::time_point due = Clock::now() + delay;
  const auto next = std::find_if(tasks_.begin(), tasks_.end(), [due](const Task& task) { return task.due > due; });
  tasks_.insert(next, {due, std::move(step)});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void DelayedWrites::run() {
  std::unique_lock lock(lock_);
  while (!ends_) {
    if (tasks_.empty()) {
      changed_.wait_for(lock, rest);
      continue;
    }
    meanwhile_();
    while (!tasks_.empty() && tasks_.front().due <= Clock::now() && stepped(tasks_.front().step)) tasks_.pop_front();
    changed_.wait_for(lock, nap);
  }
}

}  // namespace kvcts::engines::sabotage
