// kvcts-worker <role> <name>, or kvcts-worker canary <engine>: started by the launcher. Channel: descriptor 3. Status
// page: descriptor 4.
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "engines/transport/patience.hpp"
#include "process/frames.hpp"
#include "process/memory_file.hpp"
#include "process/standard_files.hpp"
#include "run/worker/canary.hpp"
#include "run/worker/worker.hpp"

namespace {

using namespace kvcts;

process::StatusPage* status_page = nullptr;

/// Writes the stack of a crash to stderr, which the supervisor keeps. Returning lets the default action end the
/// process with the same signal; the alarm ends a stuck handler.
void on_crash(int signal) {
  ::alarm(3);
  char text[] = "kvcts-worker: stack at signal 00\n";
  text[sizeof(text) - 4] = static_cast<char>('0' + signal / 10 % 10);
  text[sizeof(text) - 3] = static_cast<char>('0' + signal % 10);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, sizeof(text) - 1);
  void* frames[48];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 48), STDERR_FILENO);
  ::alarm(0);
}

void watch_crashes() {
  static char stack[64 * 1024];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof(stack);
  ::sigaltstack(&other, nullptr);
  void* warm[1];
  ::backtrace(warm, 1);  // loads what it needs now, not in a handler
  struct sigaction action{};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

/// A transfer was reported complete, or blocks of the producer's free: counts it and stands still. The launcher then stops
/// what else there is, evidence is taken from outside, and all go on.
void announce(const std::string& freed) {
  std::snprintf(status_page->freed, sizeof(status_page->freed), "%s", freed.c_str());
  status_page->completions.fetch_add(1, std::memory_order_release);
  ::kill(::getpid(), SIGSTOP);
}

/// Waits for the next request; meanwhile drives progress for a peer that needs this side's CPU.
process::Message next_request(process::Channel& channel, worker::Worker& worker) {
  transport::Patience patience;
  for (;;) {
    if (auto message = channel.pump()) return std::move(*message);
    if (!worker.needs_progress()) {
      pollfd entry{channel.fd(), POLLIN, 0};
      ::poll(&entry, 1, -1);
      continue;
    }
    bool worked = false;
    for (int round = 0; round < 16; ++round) worked = worker.progress() || worked;
    if (worked)
      patience.reset();
    else
      patience.pause();
  }
}

}  // namespace

/// For code that launches device kernels (device/gpu.hpp): puts the last launch on the status page, where it is found
/// if a kernel never ends.
extern "C" __attribute__((visibility("default"))) void kvcts_worker_note(const char* line);
extern "C" void kvcts_worker_note(const char* line) { process::Progress(status_page).note(line); }

int main(int argc, char** argv) {
  process::open_standard_files();
  if (argc == 3 && std::strcmp(argv[1], "canary") == 0) return worker::canary(argv[2]);
  if (argc != 3 || ::fcntl(3, F_GETFD) < 0 || ::fcntl(4, F_GETFD) < 0) {
    std::fprintf(stderr, "kvcts-worker: kvcts starts this program; it cannot run alone\n");
    return 2;
  }
  ::fcntl(3, F_SETFD, FD_CLOEXEC);
  ::fcntl(4, F_SETFD, FD_CLOEXEC);
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  ::signal(SIGPIPE, SIG_IGN);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // output before a crash must be complete
  watch_crashes();
  process::Mapping page(4, sizeof(process::StatusPage));
  ::close(4);
  status_page = reinterpret_cast<process::StatusPage*>(page.data());
  try {
    process::Channel channel{process::UniqueFd(3)};
    // Never destroyed: its mappings stay while destructors and exit handlers of a plug-in run, which are checked, too.
    auto& worker = *new worker::Worker(
        argv[1], status_page,
        [&channel] {
          pollfd entry{channel.fd(), POLLIN, 0};
          return ::poll(&entry, 1, 0) > 0;
        },
        announce);
    for (;;) {
      process::Message message = next_request(channel, worker);
      const auto sequence = message.body.value("seq", std::uint64_t{0});
      const bool bye = process::request_in<process::WorkerRequest>(message.body) == process::WorkerRequest::bye;
      if (bye) break;
      nlohmann::json reply = worker.handle(message.body, std::move(message.fds));
      reply["seq"] = sequence;
      channel.send(reply);
    }
  } catch (const process::FrameError& error) {
    if (error.fault != process::FrameFault::eof) std::fprintf(stderr, "kvcts-worker: %s\n", error.what());
    return error.fault == process::FrameFault::eof ? 0 : 1;
  }
  return 0;
}

#if defined(__SANITIZE_ADDRESS__)
// Signals must end code under test as they would without the sanitizer.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0:detect_leaks=0:allocator_may_return_"
         "null=1";
}
#endif
