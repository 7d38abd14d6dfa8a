#include <csignal>

#include "cli/app.hpp"
#include "cli/interruption.hpp"
#include "process/standard_files.hpp"

int main(int argc, char** argv) {
  kvcts::process::open_standard_files();
  kvcts::process::keep_private();
  kvcts::cli::end_when_interrupted();
  // A reader that goes away (`| head`) is an error of write(), see output.hpp. A handler, unlike SIG_IGN, is not handed on
  // to programs.
  std::signal(SIGPIPE, [](int) {});
  return kvcts::cli::run_program(argc, argv);
}
