// How long to wait between two polls: spin first, because most requests end within microseconds; then yield; then
// sleep, because some last for seconds and a machine has few cores. One policy for initiators and targets.
#pragma once

#include <sched.h>
#include <time.h>

#include <chrono>

namespace kvcts::transport {

class Patience {
 public:
  /// There was work: start over.
  void reset() { first_idle_ = {}; }
  /// For loops that only poll.
  void pause() {
    switch (stage()) {
      case Stage::spin:
        return;
      case Stage::yield:
        sched_yield();
        return;
      case Stage::sleep: {
        const timespec nap{0, 50'000};
        nanosleep(&nap, nullptr);
      }
    }
  }
  /// For loops that wait in poll(2) for a request meanwhile: its timeout in milliseconds. A target whose engine needs
  /// progress must respond within microseconds during a transfer: sleeping 1 ms after each poll made UCX over posix
  /// 40 times slower.
  int poll_timeout_ms() {
    switch (stage()) {
      case Stage::spin:
        return 0;
      case Stage::yield:
        sched_yield();
        return 0;
      case Stage::sleep:
        return 1;
    }
    return 1;
  }

 private:
  enum class Stage { spin, yield, sleep };
  using Clock = std::chrono::steady_clock;
  Stage stage() {
    const auto now = Clock::now();
    if (first_idle_ == Clock::time_point{}) first_idle_ = now;
    const auto idle = now - first_idle_;
    return idle < std::chrono::microseconds(50)  ? Stage::spin
           : idle < std::chrono::milliseconds(2) ? Stage::yield
                                                 : Stage::sleep;
  }
  Clock::time_point first_idle_{};
};

}  // namespace kvcts::transport
