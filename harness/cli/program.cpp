#include "cli/program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>

#include "cli/run/run.hpp"
#include "process/pointers.hpp"
#include "process/procfs.hpp"

namespace kvcts::cli {

namespace fs = std::filesystem;

std::vector<std::string> this_call() {
  std::vector<std::string> words = command_line();
  words[0] = fs::read_symlink("/proc/self/exe").string();
  return words;
}

std::vector<std::string> words_without(const std::vector<std::string>& call, const std::vector<std::string>& flags,
                                       const std::vector<std::string>& options) {
  const auto verb = static_cast<std::size_t>(std::ranges::find(call, "run") - call.begin());
  std::vector<std::string> out;
  for (std::size_t i = 0; i < call.size(); ++i) {
    const std::string& word = call[i];
    if (i == verb || std::ranges::find(flags, word) != flags.end()) continue;
    if (std::ranges::any_of(options, [&](const auto& name) { return word == name || word.starts_with(name + "="); }))
      i += word.find('=') == std::string::npos;
    else
      out.push_back(word);
  }
  return out;
}

pid_t start_program(std::vector<std::string> words, const fs::path& log) {
  std::vector<char*> argv = process::pointers_to(words);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "cannot start " + words[0]);
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  const int out = ::open(log.empty() ? "/dev/null" : log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (const int in = ::open("/dev/null", O_RDONLY); in >= 0) ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO), ::dup2(out, STDERR_FILENO);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int run_program(const std::vector<std::string>& words, const fs::path& log) {
  int status = 0;
  ::waitpid(start_program(words, log), &status, 0);
  return exit_code(status);
}

std::string last_output(const fs::path& log) {
  std::istringstream lines(process::read_text_file(log));
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) last = line;
  return last.empty() ? "it said nothing" : last;
}

}  // namespace kvcts::cli
