// The supervisor's event loop: descriptors, timers, and coroutines that wait to be woken. Single-threaded.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "process/status_view.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::supervisor {

using process::now_ns;
using process::ns_per_ms;

class Signal;

class Loop {
 public:
  using Handler = std::function<void(std::uint32_t epoll_events)>;
  using Watch = std::uint64_t;  ///< 0 = none

  Loop();
  Watch add(int fd, std::uint32_t epoll_events, Handler handler);
  void modify(Watch watch, std::uint32_t epoll_events);
  /// Safe while handlers run. The descriptor must still be open.
  void remove(Watch watch);

  /// Handles pending events; waits for them at most until `until_ns` (never beyond the next timer).
  void step(std::int64_t until_ns);

 private:
  friend class Signal;
  struct Entry {
    int fd;
    Handler handler;
  };
  process::UniqueFd epoll_;
  std::unordered_map<Watch, Entry> entries_;
  Watch next_{1};
  std::set<std::pair<std::int64_t, Signal*>> timers_;
  std::deque<Signal*> ready_;
};

/// One coroutine waits; anything may notify. A notification without a waiter is kept (once). The coroutine resumes
/// from Loop::step, never from within notify(), so it cannot destroy the handler that notifies it.
class Signal {
 public:
  static constexpr std::int64_t never = INT64_MAX;

  explicit Signal(Loop& loop) : loop_(loop) {}
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  void notify();

  struct Wait {
    Signal& signal;
    std::int64_t deadline_ns;
    bool await_ready() noexcept;
    void await_suspend(std::coroutine_handle<> waiter);
    bool await_resume() noexcept { return std::exchange(signal.notified_, false); }  ///< false: the deadline passed first
  };
  Wait wait(std::int64_t deadline_ns = never) { return Wait{*this, deadline_ns}; }

 private:
  friend class Loop;
  void resume();
  Loop& loop_;
  std::coroutine_handle<> waiter_;
  std::int64_t deadline_{never};
  bool notified_{false}, queued_{false};
};

}  // namespace kvcts::supervisor
