// Workers that hang or die: collects evidence and describes the end.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "run/supervisor/case_executor.hpp"
#include "run/supervisor/evidence.hpp"
#include "run/supervisor/gpu_dump.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using Kind = PhaseResult::Kind;

namespace {

bool is_near_limit(const Child& child, std::uint64_t limit) {
  return limit != 0 && child.ending() && static_cast<std::uint64_t>(child.ending()->max_rss) > limit / 4 * 3;
}

/// Signal and text of a worker's end. `asked`: the phase in which it was asked last.
void name_crash(PhaseResult& ended, const Child& child, Phase asked, bool over_limit, std::uint64_t limit) {
  const std::optional<ProcessEnding> end = child.ending();
  const bool garbage = child.fault() && child.fault()->fault != process::FrameFault::eof;
  const bool truncated = child.fault() && child.fault()->fault == process::FrameFault::truncated;
  const std::size_t too_many = child.link().too_many();
  if (!child.host_lost().empty()) {
    ended.signal = "host lost";
    ended.text = child.host_lost();
  } else if (too_many > 0) {
    ended.signal = "process limit";
    ended.text = std::to_string(too_many) + " processes in the sandbox, where " + std::to_string(process::most_processes) +
                 " are the limit";
  } else if (over_limit || (is_near_limit(child, limit) && WIFSIGNALED(end->status))) {
    ended.signal = "memory limit";
    ended.text = "the worker had more than its limit of " + std::to_string(limit >> 20) + " MiB of memory";
    if (!over_limit) ended.text += ", and ended by " + process::signal_name(WTERMSIG(end->status));
  } else if (garbage && !(truncated && end && WIFSIGNALED(end->status))) {
    ended.signal = "protocol";
    ended.phase = asked;  // where it was when we noticed is chance
    ended.text = child.fault()->what();
  } else if (!end) {
    ended.signal = "protocol";
    ended.text = "the worker closed its channel but kept running";
  } else if (WIFSIGNALED(end->status)) {
    ended.signal = process::signal_name(WTERMSIG(end->status));
  } else {
    ended.signal = "exit " + std::to_string(WEXITSTATUS(end->status));
    ended.text = "the worker ended by itself in the middle of a case";
  }
}

}  // namespace

/// A worker ended or broke the protocol: describes how, then ends all remaining workers.
Task<PhaseResult> CaseExecutor::crashed(Attempt& a, Child& child, Phase phase, Phase asked) {
  if (child.lost() && child.host_lost().empty()) throw Lost{"the launcher ended"};
  PhaseResult ended;
  ended.kind = Kind::crashed;
  ended.phase = phase;
  ended.role = role_of(child);
  const process::StatusView status = process::view(*child.page());
  if (status.key == a.key) {
    ended.note = status.note;
    ended.progress = progress_text(status);
  }
  if (child.start_failure()) {
    ended.kind = Kind::error;
    ended.text = "a worker could not be started: " + *child.start_failure();
    workers_.reset();
    co_return ended;
  }
  const bool garbage = child.fault() && child.fault()->fault != process::FrameFault::eof;
  const std::int64_t patience = now_ns() + 2'000 * ns_per_ms;  // closed its channel: usually because it is ending
  while (!child.exited() && !child.lost() && !garbage && now_ns() < patience) {
    check_running();
    co_await wake_.wait(patience);
  }
  const std::optional<ProcessEnding> end = child.ending();
  const bool over_limit = workers_->over_limit;
  child.drain();
  add_output(a, child);
  add_evidence(a.result, "status", status_text(status, now_ns()) + (end ? "" : proc_text(child.pid())));
  a.result.peak_bytes = std::max(a.result.peak_bytes, end ? end->max_rss : 0);

  const std::size_t too_many = child.link().too_many();
  const bool near_limit = is_near_limit(child, run_.options.memory_limit);
  name_crash(ended, child, asked, over_limit, run_.options.memory_limit);
  const bool from_outside =
      end && WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGKILL && too_many == 0 && !over_limit && !near_limit;
  co_await kill_workers();
  co_await ask_canary(a);
  // SIGKILL comes from outside: a person, or the kernel when memory runs out. Do not blame the case unless it happens
  // again.
  if (from_outside && a.number < attempts_allowed) throw Lost{"a worker was ended by SIGKILL from outside"};
  if (from_outside)
    ended.text = "ended from outside (a person, or the kernel, out of memory), " + std::to_string(a.number) + " times";
  co_return ended;
}

/// A worker passed a deadline: distinguishes stalled from runaway, collects evidence, then ends it.
Task<PhaseResult> CaseExecutor::hung(Attempt& a, Child& child, Phase phase, std::int64_t sent, std::int64_t limit) {
  PhaseResult ended;
  ended.kind = Kind::hung;
  ended.phase = phase;
  ended.role = role_of(child);
  ended.deadline_ms = limit > 0 ? limit : limit_ms(a.resolved, phase);
  const std::int64_t window = 200;
  // A connector program works in a separate process.
  const auto busy_now = [&] {
    std::int64_t total = busy_ns(child.pid());
    for (const pid_t pid : programs_of(child)) total += busy_ns(pid);
    return total;
  };
  const std::int64_t busy_before = busy_now();
  const process::StatusView before = process::view(*child.page());
  co_await sleep_ms(window);
  const process::StatusView after = process::view(*child.page());
  const std::int64_t busy = busy_now() - busy_before;
  const bool moving = after.done != before.done || after.phase != before.phase;
  ended.hang = moving || busy * 2 > window * ns_per_ms ? HangKind::runaway : HangKind::stalled;
  const std::int64_t since = after.key == a.key && after.since_ns >= sent ? after.since_ns : sent;
  ended.after_ms = (now_ns() - since) / ns_per_ms;
  ended.progress = progress_text(after);
  if (after.key == a.key) ended.note = after.note;
  if (const auto stat = process::read_stat(child.pid()); stat && (stat->state == 'T' || stat->state == 't'))
    ended.text = "the process is stopped";

  for (const auto& worker : workers_->children) co_await gather(a, *worker);
  if (run_.options.hold) co_await hold(a, child);
  for (const auto& worker : workers_->children) {
    worker->drain();
    add_output(a, *worker);
  }
  co_await kill_workers();
  co_await ask_canary(a);
  co_return ended;
}

Task<void> CaseExecutor::gather(Attempt& a, Child& child) {
  const std::string who = role_of(child) == "both" ? "" : " (" + role_of(child) + ")";
  const process::StatusView status = process::view(*child.page());
  add_evidence(a.result, "status" + who, status_text(status, now_ns()) + (child.link().far() ? "" : proc_text(child.pid())));
  if (!run_.options.stacks || child.exited()) co_return;
  if (child.link().far()) {
    co_await take_stack(a, child.far_pid(), "stack" + who, child.link().host());
    co_return;
  }
  // No stack shows a hung kernel: the GPU's own dump names it. Light dumps take about a second.
  if (const GpuDump dump(child.pid()); dump.asked()) {
    std::int64_t bytes = 0;
    for (int i = 0; i < 100; ++i) {
      co_await sleep_ms(100);
      const std::int64_t now = dump.bytes();
      if (now > 0 && now == bytes) break;
      bytes = now;
    }
    std::string words = "the driver wrote no GPU core dump within 10 s";
    try {
      if (bytes > 0) {
        const std::string kept = dump.keep();
        words = kept + ", " + std::to_string(bytes) + " bytes; cuda-gdb -ex 'target cudacore " + kept + "' names the kernel";
      }
    } catch (const std::runtime_error& failure) {
      words = failure.what();
    }
    add_evidence(a.result, "gpu core" + who, words + "\n");
    if (child.exited()) co_return;
  } else if (std::ranges::find(a.resolved.grants, "cuda") != a.resolved.grants.end()) {
    add_evidence(a.result, "gpu core" + who, GpuDump::advice(a.result.id));
  }
  co_await take_stack(a, child.pid(), "stack" + who, run_.link);
  bool asked = false;
  int shown = 0;
  for (const pid_t pid : programs_of(child)) {
    if (++shown > 4) break;
    add_evidence(a.result, "status of the program" + who, proc_text(pid));
    co_await take_stack(a, pid, "stack of the program" + who, run_.link);
    if (!process::catches_signal(pid, SIGUSR1)) continue;
    asked = true;
    ::kill(pid, SIGUSR1);  // a program that catches it writes its own stack to stderr
  }
  if (asked) co_await sleep_ms(200);
}

/// Processes that a worker hosts for a connector program.
std::vector<pid_t> CaseExecutor::programs_of(const Child& child) const {
  std::vector<pid_t> pids;
  if (!workers_ || !workers_->host_program) return pids;
  for (const auto& stat : process::descendants(process::all_processes(), {child.pid()}))
    if (!stat.dead()) pids.push_back(stat.pid);
  return pids;
}

/// `host_link`: the launcher of its host.
Task<void> CaseExecutor::take_stack(Attempt& a, pid_t process, std::string kind, Link& host_link) {
  const std::string pid = std::to_string(process);
  std::string reasons;
  const std::vector<std::vector<std::string>> tools = {
      {"eu-stack", "-p", pid, "-n", "64"},
      {"gdb", "-nx", "-batch", "-p", pid, "-ex", "set pagination off", "-ex", "thread apply all bt 64"}};
  for (const std::vector<std::string>& tool : tools) {
    std::vector<std::string> argv = tool;
    argv[0] = run_.options.tool(tool[0]);
    if (argv[0].empty()) {
      reasons += tool[0] + ": not installed\n";
      continue;
    }
    Child::Spec spec;
    spec.argv = argv;
    spec.environment = {{"DEBUGINFOD_URLS", nullptr}};  // no downloads in the middle of a run
    const auto [how, output] = co_await run_tool(std::move(spec), tool[0] == "gdb" ? 20'000 : 10'000, host_link);
    if (how && WIFEXITED(*how) && WEXITSTATUS(*how) == 0 && output.find('#') != std::string::npos) {
      add_evidence(a.result, kind, reasons + output);
      co_return;
    }
    reasons += tool[0] + ": " + (output.empty() ? "said nothing" : output.substr(0, 4000)) + "\n";
  }
  add_evidence(a.result, kind, "cannot take a stack:\n" + reasons);
}

/// Runs a program without a channel until it ends or its time is up.
Task<CaseExecutor::ToolResult> CaseExecutor::run_tool(Child::Spec spec, std::int64_t timeout_ms, Link& host_link) {
  if (spec.name.empty()) spec.name = spec.argv[0];
  spec.channel = false;
  Child tool(run_.loop, host_link, wake_, spec);
  const std::int64_t deadline = now_ns() + timeout_ms * ns_per_ms;
  while (!(tool.exited() && tool.streams_closed()) && !tool.start_failure() && !tool.lost() && now_ns() < deadline) {
    check_running();
    co_await wake_.wait(deadline);
  }
  const bool late = !tool.exited() && !tool.start_failure();
  if (late) {
    tool.kill();
    const std::int64_t patience = now_ns() + 6'000 * ns_per_ms;
    while (!tool.killed() && !tool.lost() && now_ns() < patience) {
      check_running();
      co_await wake_.wait(patience);
    }
  }
  tool.drain();
  ToolResult reported{std::nullopt, tool.start_failure() ? *tool.start_failure() : tool.out().text() + tool.err().text()};
  if (late) reported.text += "\n(did not end within " + std::to_string(timeout_ms) + " ms)";
  if (!late && tool.exited()) reported.ended = tool.ending()->status;
  co_return reported;
}

Task<void> CaseExecutor::hold(Attempt& a, Child& child) {
  run_.log("held: " + a.result.id + " hangs in " + child.name() + ", process " + std::to_string(child.pid()));
  for (const auto& worker : workers_->children)
    run_.log("  " + role_of(*worker) + ": gdb -p " + std::to_string(worker->pid()));
  run_.log("  to continue, end that process or press Ctrl-C here");
  ++run_.holding;
  hold_released_ = false;
  while (!hold_released_ && !child.exited()) {
    if (run_.stopping || run_.link.lost()) break;
    co_await wake_.wait();
  }
  --run_.holding;
}

/// Live processes, started after `last_pid`, that belong to this executor's workers but not to the run itself.
std::vector<std::string> CaseExecutor::running_orphans(std::int64_t last_pid) const {
  std::vector<std::string> found;
  // A connector program serves many cases, with everything it starts and keeps below itself.
  std::optional<std::vector<pid_t>> programs;
  const auto is_program = [&](pid_t id) {
    if (!programs) {
      programs.emplace();
      for (const auto& child : workers_->children)
        for (const pid_t pid : programs_of(*child)) programs->push_back(pid);
    }
    return std::find(programs->begin(), programs->end(), id) != programs->end();
  };
  for (const pid_t id : run_.pids.created_since(last_pid)) {
    const auto knows = [&](const auto& child) { return child->link().knows(id); };
    if (run_.link.knows(id) || std::ranges::any_of(workers_->children, knows)) continue;
    const auto stat = process::read_stat(id);
    if (!stat || stat->dead()) continue;
    const std::string mark = process::environment_of(id, process::mark_variable);
    bool ours = false;
    for (const auto& child : workers_->children)
      ours = ours || mark == child->mark() ||
             (child->pid() != 0 &&
              (stat->parent == child->pid() || stat->session == child->pid() || stat->group == child->pid()));
    for (const auto& child : workers_->children)
      ours = ours || (mark.empty() && !child->link().far() && stat->parent == child->link().launcher_pid());
    if (!ours || process::thread_group_of(id) != id || is_program(id)) continue;
    found.push_back("process " + std::to_string(id) + " (" + stat->command + ")");
  }
  return found;
}

Task<void> CaseExecutor::look_for_orphans(Attempt& a) {
  std::vector<std::string> found = running_orphans(a.last_pid);
  // Not orphans: one that is just ending, or one of the run's own that the launcher has not reported yet.
  constexpr std::int64_t patience_ms = 2'000;  // on a crowded machine a fork is slow to exec
  for (const std::int64_t until = now_ns() + patience_ms * ns_per_ms;
       now_ns() < until && !(found.empty() && a.orphans.empty());) {
    co_await sleep_ms(15);
    found = running_orphans(a.last_pid);
    // One that forks and ends without a pause has no id to look up, but it stands where all stand.
    if (found.empty() && !a.orphans.empty()) co_await stop_and_ask_checker(a, std::nullopt);
  }
  if (found.empty())
    for (const std::string& command : a.orphans) found.push_back("process (" + command + ")");
  if (found.empty()) co_return;
  a.orphan = "left a process behind: ";
  for (std::size_t i = 0; i < found.size(); ++i) a.orphan += (i == 0 ? "" : ", ") + found[i];
  for (const auto& child : workers_->children) add_output(a, *child);
  co_await kill_workers();
}

void CaseExecutor::watch_memory() {
  if (!workers_ || run_.options.memory_limit == 0 || workers_->over_limit) return;
  for (const auto& child : workers_->children) {
    if (child->pid() == 0 || child->ended()) continue;
    if (process::private_bytes(child->pid()) <= run_.options.memory_limit) continue;
    workers_->over_limit = true;
    child->kill();
  }
}

void CaseExecutor::add_output(Attempt& a, Child& child) {
  const std::string who = role_of(child) == "both" ? "" : " (" + role_of(child) + ")";
  add_evidence(a.result, "stdout" + who, child.out().text());
  add_evidence(a.result, "stderr" + who, child.err().text());
}

}  // namespace kvcts::supervisor
