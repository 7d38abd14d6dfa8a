// Evidence is taken while nothing under test runs: the workers stand still, with everything that they started.
#include "run/supervisor/case_executor.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;

namespace {

constexpr std::int64_t stop_patience_ms = 10'000;  // the launcher gives up earlier

/// Stops workers; whatever happens, they are resumed.
class Standstill {
 public:
  /// A sandbox stops as a whole.
  explicit Standstill(std::span<const std::unique_ptr<Child>> children) : children_(children) {
    for (const auto& child : children) {
      const auto shares = [&](const Child* other) { return &other->link() == &child->link() && child->link().sandboxed(); };
      if (child->lost() || child->start_failure() || std::ranges::any_of(stopped_, shares)) continue;
      child->stop();
      stopped_.push_back(child.get());
    }
  }
  ~Standstill() {
    std::vector<std::uint64_t> also;
    for (const auto& child : children_) {
      if (!child->has_counted()) continue;
      also.push_back(child->id());
      child->announcement_is_over();
    }
    for (Child* child : stopped_) child->resume(also);
  }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

  bool complete() const {
    return std::ranges::all_of(stopped_, [](const Child* child) { return child->left_moving() || child->lost(); });
  }
  /// What does not stop, in words; "" = all stands.
  std::string moving() const {
    std::string out;
    for (const Child* child : stopped_) {
      if (!child->left_moving())
        return "its processes did not stop within " + std::to_string(stop_patience_ms / 1000) + " s";
      for (const json& left : *child->left_moving())
        out += (out.empty() ? "could not be stopped: process " : ", ") + std::to_string(left.value("pid", 0)) + " (" +
               left.value("command", "") + ", state " + left.value("state", "") + ")";
    }
    return out;
  }

  std::vector<std::string> orphans() const {
    std::vector<std::string> all;
    for (const Child* child : stopped_) all.insert(all.end(), child->orphans().begin(), child->orphans().end());
    return all;
  }

 private:
  std::span<const std::unique_ptr<Child>> children_;
  std::vector<Child*> stopped_;
};

}  // namespace

/// The checker's answer, which nothing under test can have changed meanwhile. It may be asked nothing.
Task<json> CaseExecutor::stop_and_ask_checker(Attempt& a, std::optional<CheckerRequest> op, const json& reuse) {
  std::optional<Standstill> still;
  if (workers_) still.emplace(workers_->children);
  const std::int64_t patience = now_ns() + stop_patience_ms * ns_per_ms;
  while (still && !still->complete() && now_ns() < patience) {
    check_running();
    co_await wake_.wait(patience);
  }
  if (still && a.orphan.empty()) a.orphan = still->moving();
  a.orphans = still && !is_program(a.resolved) ? still->orphans() : std::vector<std::string>{};  // a program may keep some
  if (still && run_.options.digest) note_code(a);
  if (!op) co_return json();
  json request = {{"op", *op}, {"key", a.key}};
  if (!reuse.is_null()) request["reuse"] = reuse;
  checker_.request(std::move(request));
  co_return co_await checker_reply(&a.resolved);
}

/// From outside, while it stands: what it says of itself could be another file.
void CaseExecutor::note_code(Attempt& a) {
  json code = json::object();
  for (const auto& child : workers_->children) {
    if (child->link().far()) continue;  // kvcts-host compared what is installed there
    std::vector<pid_t> processes = programs_of(*child);
    processes.push_back(child->pid());
    for (const pid_t process : processes)
      for (const std::string& path : process::mapped_code(process))
        code[path] = run_.options.digest("/proc/" + std::to_string(process) + "/root" + path);
  }
  if (code.empty() || code == workers_->code) return;  // or they have ended
  a.result.facts.emplace("code", json::object()).first->update(code);
  workers_->code = std::move(code);
}

/// What has arrived at the moment when completion is reported. A program's producer says with it that its blocks are free,
/// or says so earlier of some.
Task<void> CaseExecutor::see(Attempt& a, const Child* who) {
  const std::int64_t since = now_ns();
  const bool producer = who != nullptr && who == workers_->children.front().get();
  const std::string freed = who != nullptr && is_program(a.resolved) ? who->freed() : std::string();
  if (who != nullptr && !producer) a.consumer_done = true;  // then its blocks have no reader left
  json reuse;
  if (is_program(a.resolved) && producer && !a.consumer_done) {
    reuse = freed.empty() ? json{{"request", ""}, {"word", "done"}} : json::parse(freed, nullptr, false);
    if (!reuse.is_object()) reuse = {{"request", ""}, {"word", freed}};
  }
  co_await stop_and_ask_checker(a, has_provider(a.resolved) ? std::nullopt : std::optional(CheckerRequest::see), reuse);
  if (freed.empty()) ++a.seen;
  a.seeing_ns += now_ns() - since;
}

/// Did the memory change since the last look? Keeps the first change and its call.
Task<void> CaseExecutor::peek_memory(Attempt& a, const char* call) {
  if (!a.compared || a.late) co_return;
  const json reply = co_await stop_and_ask_checker(a, CheckerRequest::recheck);
  if (!reply.contains("late")) co_return;
  LateWrite late = late_write_from_json(reply["late"]);
  if (!late.changed) co_return;
  a.late = std::move(late);
  a.late_call = call;
}

}  // namespace kvcts::supervisor
