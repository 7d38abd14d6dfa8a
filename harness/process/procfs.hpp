// What /proc reports about processes: ancestry, marks, memory and time used.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kvcts::process {

/// Name of the environment variable that marks a worker and its descendants: KVCTS_WORKER=<run>/<lane>/<ordinal>.
inline constexpr std::string_view mark_variable = "KVCTS_WORKER";

/// One line of /proc/PID/stat.
struct ProcessStat {
  pid_t pid{0}, parent{0}, group{0}, session{0};
  char state{'?'};               ///< R S D T t Z X ...
  std::uint64_t cpu_ticks{0};    ///< user + system, in clock ticks
  std::uint64_t start_ticks{0};  ///< since boot; distinguishes a pid from its reuse
  std::string command;
  bool dead() const { return state == 'Z' || state == 'X'; }
};

/// nullopt: there is no such process, or no longer.
std::optional<ProcessStat> read_stat(pid_t pid);
/// How many processes /proc shows.
std::size_t count_processes();
/// All processes that /proc shows (threads are not listed).
std::vector<ProcessStat> all_processes();
/// Value of `variable` in the environment that the process started with; "" if unset or unreadable.
std::string environment_of(pid_t pid, std::string_view variable);
/// The process that thread (or process) `id` belongs to; 0 if gone.
pid_t thread_group_of(pid_t id);
/// The pid of `pid` in its innermost pid namespace; 0 if gone.
pid_t pid_inside(pid_t pid);
/// The child of `parent` that is process `inner` in its own innermost pid namespace; 0 if there is none (yet).
pid_t child_in_namespace(pid_t parent, pid_t inner);
/// Whether the process has a handler for the signal; false if gone.
bool catches_signal(pid_t pid, int signal);
/// Whether each of its threads is stopped or dead; true if gone.
bool stands_still(pid_t pid);
/// The files whose code the process has mapped, as it names them; each once.
std::set<std::string> mapped_code(pid_t pid);
/// Resident bytes outside shared mappings; 0 if gone.
std::uint64_t private_bytes(pid_t pid);
/// A whole /proc file, or the reason why it is unreadable ("(Permission denied)").
std::string read_proc_text(pid_t pid, std::string_view file);
/// Of this machine; "" = it has none.
std::string host_name();
/// The content of a file; "" if it is unreadable.
std::string read_text_file(const std::string& path);

/// The processes of `all` that descend from one of `roots` (roots excluded) through their chain of parents.
std::vector<ProcessStat> descendants(const std::vector<ProcessStat>& all, const std::vector<pid_t>& roots);

/// True if `mark` equals `wanted` or, if `wanted` ends in '/', begins with it.
bool mark_matches(std::string_view mark, std::string_view wanted);

/// Detects cheaply whether any process or thread was created since the last look (through the last pid that the
/// kernel assigned), and lists the new ids. Costs one pread of an open file when nothing happened.
class PidWatch {
 public:
  PidWatch();
  ~PidWatch();
  PidWatch(const PidWatch&) = delete;
  PidWatch& operator=(const PidWatch&) = delete;
  /// The last id assigned; -1 if the machine does not report it.
  std::int64_t last() const;
  /// Of the ids assigned after `before`, those that still exist (processes and threads alike).
  std::vector<pid_t> created_since(std::int64_t before) const;

 private:
  int fd_{-1};
  std::int64_t highest_{0};
};

}  // namespace kvcts::process
