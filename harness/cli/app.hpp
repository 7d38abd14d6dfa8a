// The program without main(): parses the command line, runs one verb, turns every error into one line and an exit status.
#pragma once

namespace kvcts::cli {

/// Never throws. Returns an Exit.
int run_program(int argc, const char* const* argv);

}  // namespace kvcts::cli
