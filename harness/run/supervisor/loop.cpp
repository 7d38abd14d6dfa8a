#include "run/supervisor/loop.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace kvcts::supervisor {

Loop::Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

Loop::Watch Loop::add(int fd, std::uint32_t epoll_events, Handler handler) {
  const Watch watch = next_++;
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = watch;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  entries_.emplace(watch, Entry{fd, std::move(handler)});
  return watch;
}

void Loop::modify(Watch watch, std::uint32_t epoll_events) {
  const auto entry = entries_.find(watch);
  if (entry == entries_.end()) return;
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = watch;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entry->second.fd, &event);
}

void Loop::remove(Watch watch) {
  const auto entry = entries_.find(watch);
  if (entry == entries_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->second.fd, nullptr);
  entries_.erase(entry);
}

void Loop::step(std::int64_t until_ns) {
  int timeout_ms = 0;
  if (ready_.empty()) {
    const std::int64_t next = timers_.empty() ? until_ns : std::min(until_ns, timers_.begin()->first);
    if (next == Signal::never)
      timeout_ms = -1;
    else
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>((next - now_ns() + 999'999) / 1'000'000, 0, 60'000));
  }
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const auto entry = entries_.find(events[static_cast<std::size_t>(i)].data.u64);
    if (entry == entries_.end()) continue;          // removed by an earlier handler of this round
    const Handler handler = entry->second.handler;  // a copy: the handler may remove itself
    handler(events[static_cast<std::size_t>(i)].events);
  }
  if (!timers_.empty()) {
    const std::int64_t now = now_ns();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      Signal* signal = timers_.begin()->second;
      timers_.erase(timers_.begin());
      signal->deadline_ = Signal::never;
      if (!std::exchange(signal->queued_, true)) ready_.push_back(signal);
    }
  }
  for (std::size_t left = ready_.size(); left > 0 && !ready_.empty(); --left) {
    Signal* signal = ready_.front();
    ready_.pop_front();
    signal->resume();
  }
}

Signal::~Signal() {
  if (deadline_ != never) loop_.timers_.erase({deadline_, this});
  if (queued_) std::erase(loop_.ready_, this);
}

void Signal::notify() {
  notified_ = true;
  if (waiter_ && !std::exchange(queued_, true)) loop_.ready_.push_back(this);
}

bool Signal::Wait::await_ready() noexcept { return signal.notified_ || deadline_ns <= now_ns(); }

void Signal::Wait::await_suspend(std::coroutine_handle<> waiter) {
  signal.waiter_ = waiter;
  signal.deadline_ = deadline_ns;
  if (deadline_ns != never) signal.loop_.timers_.insert({deadline_ns, &signal});
}

void Signal::resume() {
  queued_ = false;
  if (deadline_ != never) {
    loop_.timers_.erase({deadline_, this});
    deadline_ = never;
  }
  if (const auto waiter = std::exchange(waiter_, {})) waiter.resume();
}

}  // namespace kvcts::supervisor
