// What a front does after completion was reported: a thread that starts when there is work, and keeps the engine
// behind it making progress meanwhile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace kvcts::engines::sabotage {

class DelayedWrites {
 public:
  /// Everything runs under `lock`; `meanwhile` runs repeatedly while work is pending.
  DelayedWrites(std::mutex& lock, std::function<void()> meanwhile);
  /// Drops pending work. Call without the lock.
  ~DelayedWrites();
  DelayedWrites(const DelayedWrites&) = delete;
  DelayedWrites& operator=(const DelayedWrites&) = delete;

  /// Call under the lock. Once it is due and everything due earlier is over, `step` runs until it returns true or
  /// throws.
  void add(std::chrono::microseconds delay, std::function<bool()> step);

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    Clock::time_point due;
    std::function<bool()> step;
  };
  void run();

  std::mutex& lock_;
  std::function<void()> meanwhile_;
  std::condition_variable changed_;
  std::list<Task> tasks_;  ///< by time
  bool ends_{false};
  std::thread thread_;
};

}  // namespace kvcts::engines::sabotage
