#include "process/launcher.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "process/pointers.hpp"
#include "process/procfs.hpp"
#include "process/request.hpp"
#include "process/scratch_folder.hpp"
#include "process/status_view.hpp"

extern char** environ;  // NOLINT

namespace kvcts::process {

namespace {

using nlohmann::json;

constexpr std::int64_t kill_patience_ns = 5'000'000'000;  // SIGKILL acts immediately, except on a process in D state
constexpr int scan_interval_ms = 4, count_interval_ms = 20;
constexpr std::int64_t stop_patience_ns = 6'000'000'000;  // threads of nice 19 beside busy processors took 2
constexpr int stops_in_a_row = 50;

struct Child {
  std::uint64_t id{0};
  std::string mark;
};

struct Kill {
  std::uint64_t id{0};
  std::vector<pid_t> roots;               ///< with all their descendants
  std::string mark;                       ///< with every process that carries it
  std::map<pid_t, std::uint64_t> killed;  ///< alive or not reaped here, and start times: their children must die, too
  std::set<pid_t> ended;                  ///< reaped
  std::int64_t since_ns{0};
  int clean_scans{0};
};

json to_string(const ProcessStat& stat) {
  return {{"pid", stat.pid},
          {"state", std::string(1, stat.state)},
          {"command", stat.command},
          {"wchan", read_proc_text(stat.pid, "wchan")}};
}

/// Everything that execve needs, built before fork(): a child may call only async-signal-safe functions.
struct Image {
  std::vector<std::string> text, variables;
  std::vector<char*> argv, envp;
};

Image make_image(const json& request) {
  Image image;
  for (const json& argument : request.at("argv")) image.text.push_back(argument.get<std::string>());
  if (image.text.empty()) throw std::runtime_error("spawn: expected at least one argument, found none");
  const json own = request.value("env", json::object());
  const std::string mark = request.value("mark", "");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string key(variable.substr(0, variable.find('=')));
    if (key != mark_variable && !own.contains(key)) image.variables.emplace_back(variable);
  }
  for (const auto& [key, value] : own.items())
    if (!value.is_null() && key != mark_variable)
      image.variables.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  if (!mark.empty()) image.variables.push_back(std::string(mark_variable) + "=" + mark);
  image.argv = pointers_to(image.text);
  image.envp = pointers_to(image.variables);
  return image;
}

void limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

/// Runs in the child between fork() and execve(). Never returns. `fds` lie above their targets.
[[noreturn]] void become(const Image& image, const std::vector<int>& fds, pid_t launcher, rlim_t memory_limit, int report) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer's shadow counts as private memory
  if (memory_limit != 0) limit(RLIMIT_DATA, memory_limit);
#else
  (void)memory_limit;
#endif
  bool good = true;
  const int null = ::open("/dev/null", O_RDONLY);
  good = good && null >= 0 && ::dup2(null, 0) == 0;
  int target = 1;
  for (const int fd : fds) good = good && ::dup2(fd, target++) >= 0;
  if (good && ::dup2(report, target) == target) {  // report is the last descriptor that survives until execve
    ::fcntl(target, F_SETFD, FD_CLOEXEC);
    report = target;
    ::close_range(static_cast<unsigned>(target) + 1, ~0u, 0);
    ::execve(image.argv[0], image.argv.data(), image.envp.data());
  }
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(report, &error, sizeof(error));
  ::_exit(127);
}

class Launcher {
 public:
  Launcher(UniqueFd socket, std::string run) : channel_(std::move(socket)), run_(std::move(run)), self_(::getpid()) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::signal(SIGPIPE, SIG_IGN);
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &watched, nullptr);
    signals_.reset(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  void serve() {
    try {
      for (;;) {
        step();
        while (auto request = channel_.pump()) answer(*request);
      }
    } catch (const FrameError&) {
      // The supervisor is gone (or breaks the protocol, which is equivalent): leave nothing.
    }
    end_everything();
  }

 private:
  void step() {
    channel_.flush();
    pollfd entries[2] = {{channel_.fd(), static_cast<short>(POLLIN | (channel_.has_output() ? POLLOUT : 0)), 0},
                         {signals_.get(), POLLIN, 0}};
    const bool bounded = self_ == 1 && !children_.empty();
    ::poll(entries, 2, !kills_.empty() ? scan_interval_ms : bounded ? count_interval_ms : -1);
    if (bounded) count();
    if (entries[1].revents != 0) {
      signalfd_siginfo info[16];
      while (::read(signals_.get(), info, sizeof(info)) > 0) {
      }
      reap();
    }
    if (!kills_.empty()) {
      reap();
      scan();
    }
  }

  /// Ends everything in a sandbox that has too many processes.
  void count() {
    if (now_ns() < next_count_ns_) return;
    next_count_ns_ = now_ns() + std::int64_t{count_interval_ms} * 1'000'000;
    const std::size_t processes = count_processes();
    if (processes <= most_processes) return;
    ::kill(-1, SIGKILL);
    channel_.queue({{"event", "too-many"}, {"processes", processes}});
  }

  void answer(const Message& request) {
    const auto op = request_in<LauncherRequest>(request.body);
    if (!op) throw FrameError(FrameFault::malformed, unknown_request<LauncherRequest>(request.body));
    switch (*op) {
      case LauncherRequest::spawn:
        return spawn(request);
      case LauncherRequest::kill:
        return kill(request);
      case LauncherRequest::stop:
        return stop(request);
      case LauncherRequest::resume:
        return resume(request);
    }
  }

  void kill(const Message& request) { kills_.push_back(tree_of(request)); }

  /// What belongs to a spawn.
  Kill tree_of(const Message& request) { return tree_of(request.body.value("id", std::uint64_t{0})); }
  Kill tree_of(std::uint64_t id) {
    Kill kill;
    kill.id = id;
    kill.since_ns = now_ns();
    if (const auto known = spawned_.find(kill.id); known != spawned_.end()) {
      // The pid of a reaped process may be reused; its children are found by mark and as our own orphans.
      if (children_.contains(known->second.first)) kill.roots.push_back(known->second.first);
      kill.mark = known->second.second;
    }
    return kill;
  }

  /// What a stop stops: all of a sandbox, of which this is process 1; else the spawn, with its process group.
  std::vector<ProcessStat> reached(const Kill& tree) const {
    std::vector<ProcessStat> all;
    if (self_ == 1) all = all_processes();
    for (const pid_t root : self_ == 1 ? std::vector<pid_t>{} : tree.roots)
      if (auto stat = read_stat(root)) all.push_back(std::move(*stat));
    std::erase_if(all, [&](const ProcessStat& stat) { return stat.pid == self_ || stat.dead(); });
    return all;
  }
  void send_signal(pid_t pid, int number) const { ::kill(self_ == 1 ? pid : -pid, number); }

  /// Of a tree, or of the whole sandbox.
  std::uint64_t place_of(const Kill& tree) const { return self_ == 1 ? 0 : tree.id; }

  /// Stops all that has not stopped itself already. One that does so in the microseconds of this stop continues with the
  /// rest: the kernel keeps one of two stops.
  void freeze(const Kill& tree) {
    std::set<pid_t>& asleep = asleep_[place_of(tree)];
    for (const ProcessStat& stat : reached(tree)) {
      if (stat.state == 'T')
        asleep.insert(stat.pid);
      else
        send_signal(stat.pid, SIGSTOP);
    }
  }

  /// Returns when every thread stands. Sent again and again: a process can be resumed by another that still runs. Now and
  /// then all go on for a moment: one that waits in vfork() for its stopped child cannot stop.
  void stop(const Message& request) {
    const Kill tree = tree_of(request);
    if (!asleep_.contains(place_of(tree))) freeze(tree);
    std::vector<ProcessStat> moving;
    for (int round = 1;; ++round) {
      if (self_ == 1) ::kill(-1, SIGSTOP);  // no fork slips through
      moving = reached(tree);
      std::erase_if(moving, [](const ProcessStat& stat) { return stands_still(stat.pid); });
      if (moving.empty() || now_ns() - tree.since_ns > stop_patience_ns) break;
      const bool pause = round % stops_in_a_row == 0;
      for (const ProcessStat& stat : pause ? reached(tree) : moving)
        if (!pause || !asleep_[place_of(tree)].contains(stat.pid)) send_signal(stat.pid, pause ? SIGCONT : SIGSTOP);
      ::usleep(static_cast<useconds_t>(std::min(round * 20, 1000)));
    }
    reap();  // the stops that this caused
    json left = json::array();
    for (const ProcessStat& stat : moving) left.push_back(to_string(stat));
    // Whose parent is gone: while all stand, none can hide behind its next child.
    json orphans = json::array();
    for (const ProcessStat& stat : self_ == 1 ? reached(tree) : std::vector<ProcessStat>{})
      if (stat.parent == self_ && !children_.contains(stat.pid)) orphans.push_back(stat.command);
    channel_.queue({{"event", "still"}, {"id", tree.id}, {"left", left}, {"orphans", orphans}});
  }

  void resume(const Message& request) {
    const Kill tree = tree_of(request);
    const auto frozen = asleep_.find(place_of(tree));
    if (frozen == asleep_.end()) return;
    for (const auto id : request.body.value("also", std::vector<std::uint64_t>{}))
      if (const auto known = spawned_.find(id); known != spawned_.end()) frozen->second.erase(known->second.first);
    for (const ProcessStat& stat : reached(tree))
      if (!frozen->second.contains(stat.pid)) send_signal(stat.pid, SIGCONT);
    asleep_.erase(frozen);
  }

  void spawn(const Message& request) {
    const auto id = request.body.at("id").get<std::uint64_t>();
    const auto failed = [&](const std::string& text) {
      channel_.queue({{"event", "spawn-failed"}, {"id", id}, {"text", text}});
    };
    Image image;
    try {
      image = make_image(request.body);
    } catch (const std::exception& error) {
      return failed(error.what());
    }
    int report[2];
    if (::pipe2(report, O_CLOEXEC) != 0) return failed(std::string("pipe: ") + std::strerror(errno));
    UniqueFd report_in(report[0]), report_out(report[1]);
    // The child moves descriptors to 1, 2, 3, ...: first move all sources above the highest target.
    const int above = static_cast<int>(request.fds.size()) + 16;
    std::vector<UniqueFd> lifted;
    std::vector<int> fds;
    for (const UniqueFd& fd : request.fds) {
      lifted.emplace_back(::fcntl(fd.get(), F_DUPFD_CLOEXEC, above));
      fds.push_back(lifted.back().get());
    }
    UniqueFd lifted_report(::fcntl(report_out.get(), F_DUPFD_CLOEXEC, above));
    report_out.reset();
    const std::string mark = request.body.value("mark", "");
    const pid_t pid = ::fork();
    if (pid == 0) become(image, fds, self_, request.body.value("memory_limit", std::uint64_t{0}), lifted_report.get());
    if (pid < 0) return failed(std::string("fork: ") + std::strerror(errno));
    lifted_report.reset();
    children_[pid] = Child{id, mark};
    spawned_[id] = {pid, mark};
    int error = 0;
    ssize_t got = 0;
    do {
      got = ::read(report_in.get(), &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof(error))) return failed(image.text.front() + ": " + std::strerror(error));
    channel_.queue({{"event", "spawned"}, {"id", id}, {"pid", pid}});
  }

  void reap() {
    for (;;) {
      int status = 0;
      rusage usage{};
      const pid_t pid = ::wait4(-1, &status, WNOHANG | WUNTRACED, &usage);
      if (pid <= 0) return;
      if (WIFSTOPPED(status)) {
        const auto child = children_.find(pid);
        const Kill tree = child != children_.end() ? tree_of(child->second.id) : Kill{};
        if (tree.id == 0 || asleep_.contains(place_of(tree))) continue;  // not ours, or by ours
        freeze(tree);
        channel_.queue({{"event", "stopped"}, {"id", tree.id}});
        continue;
      }
      for (Kill& kill : kills_) {  // its pid may be reused from now on
        std::erase(kill.roots, pid);
        if (kill.killed.erase(pid) != 0) kill.ended.insert(pid);
      }
      const auto child = children_.find(pid);
      if (child == children_.end()) continue;  // an orphan of a worker; the launcher is now the parent of its children
      const auto micros = [](const timeval& time) { return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_usec; };
      channel_.queue({{"event", "exit"},
                      {"id", child->second.id},
                      {"pid", pid},
                      {"status", status},
                      {"max_rss", std::int64_t{usage.ru_maxrss} * 1024},
                      {"cpu_us", micros(usage.ru_utime) + micros(usage.ru_stime)}});
      children_.erase(child);
    }
  }

  /// The processes of `all` to kill. Whole run: mark "<run>/" and every descendant of the launcher.
  std::vector<ProcessStat> victims(const std::vector<ProcessStat>& all, const Kill& kill) {
    std::vector<pid_t> roots(kill.roots);
    for (const ProcessStat& stat : all) {
      if (stat.pid == self_ || stat.dead()) continue;
      const bool own_group = std::any_of(kill.roots.begin(), kill.roots.end(),
                                         [&](pid_t root) { return stat.group == root || stat.session == root; });
      const auto dying = kill.killed.find(stat.pid);  // its root may have been reaped first
      if (own_group || kill.killed.contains(stat.parent) ||
          (dying != kill.killed.end() && dying->second == stat.start_ticks)) {
        roots.push_back(stat.pid);
        continue;
      }
      if (kill.mark.empty()) continue;
      const bool started_here = children_.count(stat.pid) != 0;
      if (started_here && children_[stat.pid].mark != kill.mark && kill.mark.back() != '/') continue;
      const std::string mark = environment_of(stat.pid, mark_variable);
      const bool orphan =
          stat.parent == self_ && !started_here && mark.empty();  // wiped its environment, but is still our child
      if (orphan || mark_matches(mark, kill.mark)) roots.push_back(stat.pid);
    }
    std::vector<ProcessStat> found = descendants(all, roots);
    for (const ProcessStat& stat : all)
      if (std::find(roots.begin(), roots.end(), stat.pid) != roots.end()) found.push_back(stat);
    std::erase_if(found, [&](const ProcessStat& stat) { return stat.pid == self_ || stat.dead(); });
    return found;
  }

  void scan() {
    const std::vector<ProcessStat> all = all_processes();
    for (auto kill = kills_.begin(); kill != kills_.end();) {
      const std::vector<ProcessStat> alive = victims(all, *kill);
      for (const ProcessStat& stat : alive) {
        ::kill(stat.pid, SIGKILL);
        kill->killed.insert_or_assign(stat.pid, stat.start_ticks);
      }
      // Clean twice: a process that forked and died while /proc was being read can hide its child from one scan.
      kill->clean_scans = alive.empty() ? kill->clean_scans + 1 : 0;
      const bool late = now_ns() - kill->since_ns > kill_patience_ns;
      if (kill->clean_scans < 2 && !late) {
        ++kill;
        continue;
      }
      json left = json::array();
      if (kill->clean_scans < 2)
        for (const ProcessStat& stat : alive) left.push_back(to_string(stat));
      reap();
      for (const auto& [pid, began] : kill->killed) kill->ended.insert(pid);
      channel_.queue({{"event", "killed"},
                      {"id", kill->id},
                      {"pids", kill->ended},
                      {"left", left},
                      {"ms", (now_ns() - kill->since_ns) / 1'000'000}});
      spawned_.erase(kill->id);
      kill = kills_.erase(kill);
    }
  }

  void end_everything() {
    Kill kill;
    kill.mark = run_ + "/";
    kill.since_ns = now_ns();
    for (const auto& [pid, child] : children_) kill.roots.push_back(pid);
    while (now_ns() - kill.since_ns < kill_patience_ns && kill.clean_scans < 2) {
      const std::vector<ProcessStat> all = all_processes();
      kill.roots.clear();
      for (const ProcessStat& stat : descendants(all, {self_})) kill.roots.push_back(stat.pid);
      const std::vector<ProcessStat> alive = victims(all, kill);
      for (const ProcessStat& stat : alive) {
        ::kill(stat.pid, SIGKILL);
        kill.killed.insert_or_assign(stat.pid, stat.start_ticks);
      }
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      kill.clean_scans = alive.empty() ? kill.clean_scans + 1 : 0;
      if (kill.clean_scans < 2) ::poll(nullptr, 0, scan_interval_ms);
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  Channel channel_;
  std::string run_;
  pid_t self_;
  UniqueFd signals_;
  std::map<pid_t, Child> children_;
  std::map<std::uint64_t, std::pair<pid_t, std::string>>
      spawned_;  ///< id -> pid, mark; includes the dead until they are killed
  std::vector<Kill> kills_;
  std::int64_t next_count_ns_{0};
  std::map<std::uint64_t, std::set<pid_t>> asleep_;  ///< of what is stopped now, by place_of(): what stood before
};

}  // namespace

void run_launcher(UniqueFd socket, const std::string& run) {
  const ScratchFolder scratch;
  Launcher(std::move(socket), run).serve();
}

}  // namespace kvcts::process
