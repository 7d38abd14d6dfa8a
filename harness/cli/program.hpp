// Runs of this program as child processes: their command line, their start, and what their logs say.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace kvcts::cli {

/// This call, with the program's whole path.
std::vector<std::string> this_call();

/// The words of a call without the verb `run`, these flags, and these options with their value (`--name value` or
/// `--name=value`).
std::vector<std::string> words_without(const std::vector<std::string>& call, const std::vector<std::string>& flags,
                                       const std::vector<std::string>& options);

/// Starts a program whose output goes to `log` ("": nowhere). It ends when this process does, by SIGTERM.
pid_t start_program(std::vector<std::string> words, const std::filesystem::path& log);
/// Of a waitpid status: the exit status, or 128 + the signal.
int exit_code(int status);
/// Starts it and waits; its exit_code().
int run_program(const std::vector<std::string>& words, const std::filesystem::path& log = {});

/// The last line that is not empty; or that there is none.
std::string last_output(const std::filesystem::path& log);

}  // namespace kvcts::cli
