// An executor: a checker, one or two workers, and the cases that they run one after another.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "case/serialized_case.hpp"
#include "run/supervisor/checkers.hpp"
#include "run/supervisor/child.hpp"
#include "run/supervisor/decide.hpp"
#include "run/supervisor/loop.hpp"
#include "run/supervisor/run.hpp"
#include "run/supervisor/supervisor.hpp"
#include "run/supervisor/task.hpp"
#include "run/supervisor/watch_list.hpp"

namespace kvcts::supervisor {

/// The connector is a separate program (connector/program/): it moves the bytes itself, and both of its sides take part.
inline bool is_program(const ResolvedCase& c) { return c.performer == Performer::program; }
inline bool is_ours(const ResolvedCase& c) { return c.performer == Performer::machine; }
/// Regions are provider memory that only the workers can access: bytes go in before a pass and come out after it.
inline bool has_provider(const ResolvedCase& c) { return c.engine.options.contains("memory_provider"); }

/// Its parts: case_executor.cpp (its life), case_run.cpp (phases), standstill.cpp (looks at the memory while nothing under
/// test runs), workers.cpp, departure.cpp (workers that end by themselves), endings.cpp (hangs, crashes, evidence),
/// canary.cpp, watched.cpp (settle). Separate: its checker (checker_link.hpp) and the watched cases (watch_list.hpp).
class CaseExecutor {
 public:
  CaseExecutor(Run& run, int number);
  ~CaseExecutor();

  /// Runs jobs until none are left, then waits until its last results are final.
  Task<void> work();

  void wake() { wake_.notify(); }
  std::optional<Running> running() const;
  /// Called periodically: ends workers that exceed their memory limit.
  void watch_memory();
  /// The user ended a --hold.
  void release_hold() { hold_released_ = true, wake_.notify(); }

 private:
  struct Interrupted {};
  struct InPlace;  ///< departure.cpp

  /// Workers of one engine. Those of the last few engines are kept: a run that alternates between engines need not
  /// restart them, and late writes still happen.
  struct Workers {
    std::uint64_t id{0};
    std::string signature;
    std::vector<std::unique_ptr<Link>> links;      ///< their sandbox, or one on each host; {} if this machine has none
    std::vector<std::unique_ptr<Child>> children;  ///< one ("both"), or producer and consumer
    std::vector<nlohmann::json> engines;           ///< their hello replies
    std::int64_t ran{0};
    std::string ran_before;
    std::vector<std::uint64_t> to_forget;  ///< keys whose mappings they still hold
    bool over_limit{false};
    bool host_program{false};  ///< one connector program each, below the worker
    nlohmann::json code;       ///< digests of what they have mapped, by path
  };

  /// A case that must run again through no fault of its own, and how often that has happened.
  struct Retry {
    std::size_t job;
    int number{1};  ///< attempts that it took part in
    int lost{0};    ///< times that it was lost after its end, while its memory was watched
  };

  /// One execution of one case.
  struct Attempt {
    std::size_t job;
    int number;
    int lost;
    std::uint64_t key{0};
    ResolvedCase resolved;
    SerializedCase serialize;  ///< of `resolved`
    CaseResult result;
    nlohmann::json files;
    std::vector<process::UniqueFd> fds;
    std::int64_t memory_bytes{0};
    nlohmann::json events = nlohmann::json::array();
    std::int64_t planned{-1}, moved{-1};
    int pass{0};
    nlohmann::json plan;  ///< the reply to "plan"
    std::optional<Report> compared;
    bool transferred{false};
    bool opened{false};
    bool registered{false};         ///< workers hold the case: finish() is due
    std::optional<LateWrite> late;  ///< the memory changed in a call that ends something
    std::string late_call;          ///< that call, "release()"
    std::int64_t last_pid{-1};
    std::string orphan;                ///< processes that outlived the case, or could not be stopped, in words
    std::vector<std::string> orphans;  ///< commands of what belonged to no worker at the last standstill
    int seen{0};                       ///< looks at the destination when completion was reported, of this pass
    std::int64_t seeing_ns{0};         ///< and what they took
    bool consumer_done{false};         ///< by its own word, of this pass
    std::int64_t since_ns{0};
  };

  struct Reply {
    enum class Kind { message, announced, ended, late } kind{Kind::message};
    nlohmann::json body;
    std::vector<process::UniqueFd> fds;
    Child* child{nullptr};  ///< whose event it is
    Phase phase{};          ///< late, ended: by its status page
  };

  struct WorkerCall {
    Child* child;
    nlohmann::json body;
    std::vector<int> fds;
  };

  Task<void> run_job(Retry job);
  Task<void> attempt_case(Attempt& a);
  PhaseResult resolve(Attempt& a);
  Task<PhaseResult> open_case(Attempt& a);
  Task<PhaseResult> host(Attempt& a);
  Task<void> conclude(Attempt& a, const PhaseResult& ended);
  Task<void> hand_over(Attempt& a, PhaseResult::Kind ended);
  Task<PhaseResult> execute(Attempt& a);
  Task<PhaseResult> register_case(Attempt& a);
  Task<PhaseResult> plan(Attempt& a);
  Task<PhaseResult> fill(Attempt& a);
  Task<PhaseResult> transfer(Attempt& a);
  Task<PhaseResult> read_back(Attempt& a);
  Task<void> compare(Attempt& a, const PhaseResult& ended);
  nlohmann::json compare_request(Attempt& a, const PhaseResult& ended);
  Task<void> choose_workers(const ResolvedCase& resolved);
  WorkerCall start_worker(const ResolvedCase& resolved, const std::string& role);
  Task<PhaseResult> set_up_workers(Attempt& a);
  Task<PhaseResult> ask_workers(Attempt& a, Phase phase, std::vector<WorkerCall>& requests,
                                std::vector<nlohmann::json>& replies);
  Task<void> look_for_orphans(Attempt& a);
  std::vector<std::string> running_orphans(std::int64_t last_pid) const;
  Task<PhaseResult> ask_all(Attempt& a, Phase phase, process::WorkerRequest op);
  Task<PhaseResult> finish(Attempt& a);
  Task<PhaseResult> end_call(Attempt& a, const char* call);
  Task<nlohmann::json> stop_and_ask_checker(Attempt& a, std::optional<process::CheckerRequest> op,
                                            const nlohmann::json& reuse = nullptr);
  Task<void> see(Attempt& a, const Child* who);
  void note_code(Attempt& a);
  Task<void> peek_memory(Attempt& a, const char* call);
  Child& initiator(const ResolvedCase& c) const;
  nlohmann::json files_for(const Attempt& a, const Child& child, std::vector<int>& fds) const;
  PhaseResult judge(Attempt& a, Child& child, Phase phase, const nlohmann::json& reply);
  void watch(Attempt& a, PhaseResult::Kind ended);
  bool watched_longer(const Attempt& a);
  Task<void> settle(bool all, std::uint64_t only = 0);
  Task<void> retire(std::unique_ptr<Workers> workers);
  Task<void> part_from_workers(Attempt& a);
  Task<PhaseResult> await_exits(Attempt& a);
  void recover(const std::string& why);
  Task<void> kill_workers();
  Task<void> end(Workers& workers);
  void name_workers(Attempt& a) const;
  void note_claims(Attempt& a, const nlohmann::json& reported) const;
  Task<void> sleep_ms(std::int64_t ms);

  Task<Reply> await_worker(Attempt& a, std::vector<Child*> awaited, Phase phase, std::int64_t sent_ns, std::int64_t limit);
  Task<nlohmann::json> checker_reply(const ResolvedCase* resolved, std::vector<process::UniqueFd>* fds = nullptr);
  void lose_checker(const std::string& why);
  Task<PhaseResult> crashed(Attempt& a, Child& child, Phase phase, Phase asked);
  Task<PhaseResult> hung(Attempt& a, Child& child, Phase phase, std::int64_t sent_ns, std::int64_t limit);
  Task<void> gather(Attempt& a, Child& child);
  Task<void> take_stack(Attempt& a, pid_t process, std::string kind, Link& host_link);
  std::vector<pid_t> programs_of(const Child& child) const;
  Task<void> hold(Attempt& a, Child& child);
  struct ToolResult {          ///< reported by a program that ended, or had to be ended
    std::optional<int> ended;  ///< in wait() format; none: it did not end in time
    std::string text;
  };
  Task<ToolResult> run_tool(Child::Spec spec, std::int64_t timeout_ms, Link& host_link);
  Task<void> ask_canary(Attempt& a);

  void enter(Attempt& a, Phase phase);
  void add_output(Attempt& a, Child& child);
  std::string role_of(const Child& child) const;
  /// For a current worker: the launcher in its sandbox, or else that of its host.
  Link& link(std::size_t side) const;
  std::unique_ptr<Link> new_link(const Attempt& a, std::size_t side) const;
  Task<std::string> reach_hosts();
  std::int64_t limit_ms(const ResolvedCase& resolved, Phase phase) const;
  void check_running() const;
  void spend(Attempt& a, Phase phase, std::int64_t since_ns);

  Run& run_;
  int number_;
  Signal wake_;
  Checkers checker_;
  std::array<std::size_t, 2> met_{};           ///< starts of the hosts' links that this executor has seen
  std::unique_ptr<Workers> workers_;           ///< of the current case
  std::deque<std::unique_ptr<Workers>> kept_;  ///< of other engines, least recently used first
  std::uint64_t next_workers_{1};
  WatchList watched_;
  std::deque<Retry> retries_;
  std::optional<Running> running_;
  Attempt* attempt_{nullptr};
  bool hold_released_{false};
};

}  // namespace kvcts::supervisor
