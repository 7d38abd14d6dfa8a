#include "cli/run/alone.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "cli/report/text.hpp"
#include "cli/run/fold.hpp"
#include "cli/stored.hpp"

namespace kvcts::cli {
namespace {

using Items = std::vector<std::size_t>;

class Trial {
 public:
  Trial(Plan& plan, store::RunStore& store, supervisor::Options options)
      : plan_(plan), store_(store), options_(std::move(options)) {
    for (std::size_t i = 0; i < plan_.items().size(); ++i) item_of_.emplace(plan_.items()[i].planned.id, i);
  }

  std::string run() {
    constexpr std::ptrdiff_t first_few = 8;
    collect();
    Items few, rest;
    for (const auto& [engine, leaders] : by_engine_)
      few.insert(few.end(), leaders.begin(), leaders.begin() + std::min(first_few, std::ssize(leaders)));
    std::set<std::size_t> passed = pass(few, true);
    for (const auto& [engine, leaders] : by_engine_)
      if (std::ssize(leaders) > first_few && first_of(leaders, passed))
        rest.insert(rest.end(), leaders.begin() + first_few, leaders.end());
    passed.merge(pass(rest, true));
    for (const auto& [engine, leaders] : by_engine_) {
      const auto one = first_of(leaders, passed);
      if (!one) continue;
      const bool in_order = !pass(after_the_same(*one), false).contains(*one);
      for (const std::size_t leader : leaders)
        for (const std::size_t member : passed.contains(leader) ? members_.at(leader) : Items()) tell(member, in_order);
    }
    if (few.empty()) return "";
    return fmt::format("{} of {} that failed after others in their worker pass alone", passed.size(),
                       report::plural(std::ssize(few) + std::ssize(rest), "case"));
  }

 private:
  /// The executions to try, by engine and connector.
  void collect() {
    constexpr std::int64_t slow_start_ms = 30'000;
    std::map<std::string, std::size_t> leader_of;  // of an execution
    store_.reader().for_each([&](const store::Row& row) {
      const CaseResult& r = row.result;
      const bool tried = r.tries.made > 0 || (r.facts.is_object() && r.facts.contains("alone"));
      if (!row.decided || !store::is_failure(r.verdict) || !store::was_executed(r.outcome) || r.outcome == Outcome::hang ||
          r.phase == Phase::complete || r.ran_before.empty() || tried)
        return;
      const std::size_t item = item_of_.at(row.planned.id);
      const auto [leader, is_new] = leader_of.emplace(row.planned.execution, item);
      members_[leader->second].push_back(item);
      if (!is_new) return;
      const ResolvedCase resolved = plan_.resolve(item);
      if (resolved.connector.options.is_object() &&
          resolved.connector.options.value("start_ms", std::int64_t{0}) >= slow_start_ms)
        return;
      by_engine_[resolved.engine.name + " " + resolved.connector.name].push_back(item);
    });
  }

  static std::optional<std::size_t> first_of(const Items& items, const std::set<std::size_t>& among) {
    const auto found = std::ranges::find_if(items, [&](std::size_t item) { return among.contains(item); });
    return found == items.end() ? std::nullopt : std::optional(*found);
  }

  /// What its worker ran before it, and the item.
  Items after_the_same(std::size_t item) const {
    Items out;
    const store::RunReader& reader = store_.reader();
    for (const std::string& id : ran_before(reader, *reader.find(plan_.items()[item].planned.id)))
      if (const auto found = item_of_.find(id); found != item_of_.end()) out.push_back(found->second);
    out.push_back(item);
    return out;
  }

  /// Those that end as expected: each in a worker of its own (`fresh`), or all in one, in this order.
  std::set<std::size_t> pass(const Items& items, bool fresh) const {
    std::set<std::size_t> out;
    if (items.empty()) return out;
    const supervisor::Jobs jobs{items.size(), [&](std::size_t i) { return plan_.items()[items[i]].planned.id; },
                                [&](std::size_t i) { return plan_.resolve(items[i]); }};
    supervisor::Options options = options_;
    options.watch_all = 0;
    (fresh ? options.cases_per_worker : options.jobs) = 1;
    supervisor::Handlers handlers;
    handlers.on_result = [&](std::size_t job, CaseResult&& result) {
      plan_.judge(result, plan_.items()[items[job]]);
      if (store::was_executed(result.outcome) && !failed(result)) out.insert(items[job]);
    };
    if (supervisor::run_cases(jobs, options, handlers).interrupted) out.clear();
    return out;
  }

  void tell(std::size_t item, bool in_order) {
    CaseResult result = store_.reader().find(plan_.items()[item].planned.id)->result;
    result.facts["alone"] = {
        {"outcome", "PASS"}, {"after_the_same", in_order ? "fails" : "passes"}, {"said", result.message}};
    result.message = in_order ? "depends on what ran before it in the worker: alone, in a fresh one, it passes"
                              : "does not always fail: it passes alone in a fresh worker, and after the same cases";
    result.diagnosis = {};
    store_.replace(result);
  }

  Plan& plan_;
  store::RunStore& store_;
  const supervisor::Options options_;
  std::unordered_map<std::string, std::size_t> item_of_;
  std::map<std::string, Items> by_engine_;  ///< leaders
  std::map<std::size_t, Items> members_;    ///< leader -> failures that share its execution
};

}  // namespace

std::string try_alone(Plan& plan, store::RunStore& store, supervisor::Options options) {
  return Trial(plan, store, std::move(options)).run();
}

}  // namespace kvcts::cli
