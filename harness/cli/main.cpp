#include <csignal>
#include <unistd.h>

#include "cli/app.hpp"
#include "cli/exit.hpp"

int main(int argc, char** argv) {
  // Before a run takes its signals over, an interruption ends the program at once, with the status of every interruption.
  std::signal(SIGINT, [](int) { ::_exit(kvcts::cli::exit_interrupted); });
  return kvcts::cli::run_program(argc, argv);
}
