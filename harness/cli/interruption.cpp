#include "cli/interruption.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "cli/exit.hpp"

namespace kvcts::cli {
namespace {

// Read by a signal handler.
char last_line[80] = "kvcts: interrupted\n";
volatile sig_atomic_t last_line_bytes = 19;
pid_t program = 0;

void end(int number) {
  if (::getpid() != program) {  // a child that was forked and has not begun another program
    ::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, last_line, static_cast<std::size_t>(last_line_bytes));
  ::_exit(exit_interrupted);
}

}  // namespace

void end_when_interrupted() {
  program = ::getpid();
  struct sigaction action{};
  action.sa_handler = end;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup{};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
}

void set_interrupted_name(const char* who) {
  char text[sizeof last_line];
  std::snprintf(text, sizeof text, "%.60s: interrupted\n", who);
  std::memcpy(last_line, text, sizeof last_line);
  last_line_bytes = static_cast<sig_atomic_t>(std::strlen(text));
}

}  // namespace kvcts::cli
