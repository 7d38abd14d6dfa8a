#include "run/supervisor/supervisor.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <random>

#include "process/installation.hpp"
#include "run/supervisor/case_executor.hpp"

namespace kvcts::supervisor {

namespace {

constexpr std::int64_t memory_watch_ns = 50'000'000;

std::atomic<int> signal_pipe{-1};

void on_signal(int) {
  const int saved = errno;
  const int fd = signal_pipe.load();
  if (fd >= 0) [[maybe_unused]]
    const auto written = ::write(fd, "!", 1);
  errno = saved;
}

/// SIGINT, SIGTERM and SIGHUP as bytes in a pipe, for the life of a run. SIGHUP stays ignored if it was (nohup).
class Interrupts {
 public:
  explicit Interrupts(bool handle) {
    int ends[2];
    if (!handle || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    in_.reset(ends[0]);
    out_.reset(ends[1]);
    signal_pipe = out_.get();
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ::sigaction(numbers[i], nullptr, &old_[i]);
      if (numbers[i] != SIGHUP || old_[i].sa_handler != SIG_IGN) ::sigaction(numbers[i], &action, nullptr);
    }
    installed_ = true;
  }
  ~Interrupts() {
    if (!installed_) return;
    for (std::size_t i = 0; i < numbers.size(); ++i) ::sigaction(numbers[i], &old_[i], nullptr);
    signal_pipe = -1;
  }
  int fd() const { return in_.get(); }
  bool take() {
    char byte = 0;
    return ::read(in_.get(), &byte, 1) == 1;
  }

 private:
  static constexpr std::array numbers{SIGINT, SIGTERM, SIGHUP};
  process::UniqueFd in_, out_;
  std::array<struct sigaction, numbers.size()> old_{};
  bool installed_{false};
};

/// Every case in flight holds descriptors: raise the soft limit to the hard one.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string new_run_token() {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof text, "%x-%08x%08x", static_cast<unsigned>(::getpid()), random(), random());
  return text;
}

/// Runs the event loop until every executor has ended: watches memory, reports what runs.
void drive(Run& run, const std::vector<std::unique_ptr<CaseExecutor>>& executors, const std::vector<Task<void>>& tasks) {
  std::int64_t next_memory = now_ns() + memory_watch_ns;
  std::int64_t next_tick = run.options.tick_ms > 0 ? now_ns() : Signal::never;
  while (!std::ranges::all_of(tasks, [](const Task<void>& task) { return task.done(); })) {
    run.loop.step(std::min(next_memory, next_tick));
    if (run.error)
      for (const auto& executor : executors) executor->wake();
    const std::int64_t now = now_ns();
    if (now >= next_memory) {
      run.link.watch();
      for (const auto& host : run.hosts)
        if (host) host->watch();
      for (const auto& executor : executors) executor->watch_memory();
      next_memory = now + memory_watch_ns;
    }
    if (now >= next_tick) {
      std::vector<Running> running;
      for (const auto& executor : executors)
        if (auto one = executor->running()) running.push_back(std::move(*one));
      try {
        if (run.handlers.on_tick) run.handlers.on_tick(running);
      } catch (...) {
        run.fail(std::current_exception());
      }
      next_tick = now + run.options.tick_ms * 1'000'000;
    }
  }
}

}  // namespace

Summary run_cases(const Jobs& jobs, const Options& options, const Handlers& handlers) {
  raise_descriptor_limit();
  ::signal(SIGPIPE, SIG_IGN);
  const std::string programs = options.programs.empty() ? process::program_folder().string() : options.programs;
  Loop loop;
  Link link(loop, programs + "/kvcts-launcher", new_run_token());
  Run run(jobs, options, handlers, loop, link, programs);
  meet_hosts(run);

  std::vector<std::unique_ptr<CaseExecutor>> executors;
  std::vector<Task<void>> tasks;
  const std::size_t count =
      std::max<std::size_t>(1, std::min<std::size_t>(static_cast<std::size_t>(std::max(1, options.jobs)), jobs.count));
  for (std::size_t i = 0; i < count; ++i) executors.push_back(std::make_unique<CaseExecutor>(run, static_cast<int>(i)));

  Interrupts interrupts(options.handle_signals);
  Loop::Watch interrupt_watch = 0;
  if (interrupts.fd() >= 0)
    interrupt_watch = loop.add(interrupts.fd(), EPOLLIN, [&](std::uint32_t) {
      while (interrupts.take()) {
        if (run.holding > 0 && !run.stopping) {
          for (const auto& executor : executors) executor->release_hold();
          continue;
        }
        run.stopping = true;
        run.summary.interrupted = true;
        for (const auto& executor : executors) executor->wake();
      }
    });

  for (const auto& executor : executors) {
    tasks.push_back(executor->work());
    tasks.back().start();
  }
  drive(run, executors, tasks);
  if (interrupt_watch != 0) loop.remove(interrupt_watch);
  for (Task<void>& task : tasks) task.take();
  tasks.clear();
  executors.clear();
  run.hosts.clear();
  link.shut_down();
  if (run.error) std::rethrow_exception(run.error);

  for (std::size_t i = 0; i < jobs.count; ++i) {
    if (run.finished[i]) continue;
    CaseResult result;
    result.id = jobs.id(i);
    result.outcome = Outcome::not_run;
    result.message = run.summary.interrupted ? "interrupted" : "the run ended before this case started";
    run.emit(i, std::move(result));
  }
  return run.summary;
}

}  // namespace kvcts::supervisor
