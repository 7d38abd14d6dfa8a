// What a front does after completion was reported: a thread that begins when there is something to do, and keeps the engine
// behind going meanwhile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace kvcts::engines::sabotage {

class Later {
 public:
  /// Everything runs under `lock`; `meanwhile` again and again while something is to come.
  Later(std::mutex& lock, std::function<void()> meanwhile);
  /// What is still to come is dropped. Not under the lock.
  ~Later();
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;

  /// Under the lock. Once its time has come, and that of all before it is over, `step` is called until it answers true; what
  /// it throws ends it.
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
