// The event loop and the coroutines that it wakes.
#include "run/supervisor/loop.hpp"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "run/supervisor/child.hpp"
#include "run/supervisor/task.hpp"

namespace kvcts::supervisor {
namespace {

Task<int> twice(Signal& signal, std::int64_t deadline) {
  const bool first = co_await signal.wait(deadline);
  const bool second = co_await signal.wait(deadline);
  co_return (first ? 1 : 0) + (second ? 2 : 0);
}

Task<std::string> through(Signal& signal, std::int64_t deadline) {
  const int value = co_await twice(signal, deadline);
  if (value == 0) throw std::runtime_error("no value came");
  co_return std::to_string(value);
}

template <class T>
void run(Loop& loop, Task<T>& task) {
  task.start();
  for (int i = 0; i < 10'000 && !task.done(); ++i) loop.step(now_ns() + 1'000'000);
}

TEST(Loop, WakesOnNotificationsAndDeadlines) {
  Loop loop;
  Signal signal(loop);
  Task<std::string> task = through(signal, now_ns() + 30'000'000);
  task.start();
  EXPECT_FALSE(task.done());
  signal.notify();
  EXPECT_FALSE(task.done());  // never from within notify()
  while (!task.done()) loop.step(Signal::never);
  EXPECT_EQ(task.take(), "1");
}

TEST(Loop, KeepsOneNotificationWithoutAWaiter) {
  Loop loop;
  Signal signal(loop);
  signal.notify();
  signal.notify();
  Task<int> task = twice(signal, now_ns() + 5'000'000);
  run(loop, task);
  EXPECT_EQ(task.take(), 1);
}

TEST(Loop, PropagatesExceptionsThroughEveryLevel) {
  Loop loop;
  Signal signal(loop);
  Task<std::string> task = through(signal, now_ns() + 1'000'000);
  run(loop, task);
  EXPECT_THROW(task.take(), std::runtime_error);
}

TEST(Loop, NeverResumesADestroyedTask) {
  Loop loop;
  auto kept = std::make_shared<int>(1);
  {
    Signal signal(loop);
    const auto waiting = [](Signal& s, std::shared_ptr<int> held) -> Task<void> {
      co_await s.wait(now_ns() + 1'000'000);
      *held = 2;
    };
    Task<void> task = waiting(signal, kept);
    task.start();
    signal.notify();
    EXPECT_EQ(kept.use_count(), 2);
  }
  EXPECT_EQ(kept.use_count(), 1);
  for (int i = 0; i < 5; ++i) loop.step(now_ns() + 1'000'000);
  EXPECT_EQ(*kept, 1);
}

TEST(Loop, LetsHandlersRemoveEachOther) {
  Loop loop;
  int a[2], b[2];
  ASSERT_EQ(::pipe(a), 0);
  ASSERT_EQ(::pipe(b), 0);
  int calls = 0;
  Loop::Watch first = 0, second = 0;
  const auto handler = [&](std::uint32_t) {
    ++calls;
    loop.remove(first);
    loop.remove(second);
  };
  first = loop.add(a[0], EPOLLIN, handler);
  second = loop.add(b[0], EPOLLIN, handler);
  ASSERT_EQ(::write(a[1], "x", 1), 1);
  ASSERT_EQ(::write(b[1], "x", 1), 1);
  loop.step(now_ns());
  loop.step(now_ns());
  EXPECT_EQ(calls, 1);
  for (const int fd : {a[0], a[1], b[0], b[1]}) ::close(fd);
}

TEST(OutputTail, KeepsTheEndAndCountsTheDroppedBytes) {
  OutputTail tail;
  tail.append("abc", 3);
  EXPECT_EQ(tail.text(), "abc");
  std::string all = "abc";
  for (int i = 0; i < 400; ++i) {
    const std::string part(1000, static_cast<char>('a' + i % 26));
    tail.append(part.data(), part.size());
    all += part;
  }
  EXPECT_EQ(tail.text(), "(" + std::to_string(all.size() - OutputTail::capacity) + " earlier bytes are not kept)\n" +
                             all.substr(all.size() - OutputTail::capacity));
  tail.clear();
  EXPECT_EQ(tail.text(), "");
}

}  // namespace
}  // namespace kvcts::supervisor
