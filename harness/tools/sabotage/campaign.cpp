#include "tools/sabotage/campaign.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "case/resolve/resolve.hpp"
#include "matrix/expr.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::sabotage {

namespace {

using catalogue::Catalogue;
using matrix::Selection;

/// A case of the selection that may host a fault injector.
struct Candidate {
  std::size_t index{0};
  nlohmann::json axes;
};

constexpr std::size_t first_round = 4, control_cases = 48, most_cases = 256;  // per fault injector

/// What noticed, from an unexpected result.
std::vector<std::string> checks_of(const CaseResult& r) {
  if (r.outcome != Outcome::fail) return {"outcome"};
  if (r.phase == Phase::complete)
    return {r.diagnosis.fault_class == FaultClass::read_before_ready ? "completion" : "late write"};
  std::set<std::string> found;
  for (const auto& wrong : r.first_wrong) {
    if (wrong.region.starts_with("producer/"))
      found.insert("source");
    else if (wrong.region.starts_with("reader/"))
      found.insert("reader");
    else if (wrong.where.starts_with("guard"))
      found.insert("guard");
    else if (wrong.where.starts_with("padding"))
      found.insert("padding");
    else
      found.insert("bytes");
  }
  if (r.wrong_bytes == 0) found.insert(r.diagnosis.fault_class == FaultClass::false_success ? "count" : "outcome");
  return {found.begin(), found.end()};
}

/// Failures of the machine say nothing about a fault injector.
bool says_nothing(Outcome outcome) {
  return outcome == Outcome::skipped || outcome == Outcome::not_run || outcome == Outcome::unsupported ||
         outcome == Outcome::error;
}

/// The cases that have a place for one fault injector, found on demand: a suite has thousands, most fault injectors need
/// one.
struct Queue {
  std::vector<const Candidate*> ahead;  ///< likely ones first, each part in the suite's order
  std::size_t looked_at{0};
  std::vector<const Candidate*> places;
};

class Campaign {
 public:
  Campaign(const Catalogue& catalogue, const Selection& selection, const std::vector<FaultInjector>& injectors,
           const CampaignOptions& options)
      : catalogue_(catalogue), selection_(selection), options_(options), space_(catalogue) {
    for (std::size_t i = 0; i < selection_.size(); ++i) {
      if (selection_.declared(i)) continue;
      nlohmann::json axes = selection_.facts(i).value("axes", nlohmann::json::object());
      const std::string engine = axes.value("engine", "memcpy");
      if (engine == "memcpy" || engine == "shm") candidates_.push_back({i, std::move(axes)});
    }
    for (const auto& s : injectors) {
      rows_.emplace_back().injector = s;
      queues_.push_back({in_order(s), 0, {}});
    }
  }

  std::vector<CampaignRow> run() {
    // In rounds, so that most fault injectors need few cases: a result arrives only after memory was watched for late
    // writes.
    for (std::size_t part = first_round;; part *= 4) {
      std::vector<Job> jobs;
      for (std::size_t s = 0; s < rows_.size(); ++s) {
        if (rows_[s].skipped() || rows_[s].caught) continue;
        const std::size_t limit = rows_[s].injector.harmless ? control_cases : most_cases;
        const std::size_t end = std::min(limit, rows_[s].tried + part);
        for (std::size_t i = rows_[s].tried; i < end && place(s, i) != nullptr; ++i) jobs.push_back({s, i});
      }
      if (jobs.empty()) break;
      execute(jobs);
    }
    return std::move(rows_);
  }

 private:
  struct Job {
    std::size_t injector{0}, place{0};
  };

  bool holds(const std::string& expression, const Candidate& candidate) {
    auto found = expressions_.find(expression);
    if (found == expressions_.end()) found = expressions_.emplace(expression, matrix::Expression(expression, space_)).first;
    return found->second.evaluate(matrix::lookup_of(space_, candidate.axes), selection_.id(candidate.index));
  }

  std::vector<const Candidate*> in_order(const FaultInjector& injector) {
    std::vector<const Candidate*> likely, rest;
    for (const auto& candidate : candidates_) {
      if (!injector.only.empty() && !holds(injector.only, candidate)) continue;
      (!injector.likely.empty() && holds(injector.likely, candidate) ? likely : rest).push_back(&candidate);
    }
    likely.insert(likely.end(), rest.begin(), rest.end());
    return likely;
  }

  /// The i-th case that has a place for the fault injector; nullptr: there are fewer.
  const Candidate* place(std::size_t injector, std::size_t i) {
    Queue& queue = queues_[injector];
    while (queue.places.size() <= i && queue.looked_at < queue.ahead.size()) {
      const Candidate* candidate = queue.ahead[queue.looked_at++];
      try {
        if (fits(rows_[injector].injector, resolve(selection_.spec(candidate->index), catalogue_)))
          queue.places.push_back(candidate);
      } catch (const std::exception&) {  // the suite's own run reports it
      }
    }
    return i < queue.places.size() ? queue.places[i] : nullptr;
  }

  ResolvedCase injected(const Job& job) const {
    CaseSpec spec = selection_.spec(queues_[job.injector].places[job.place]->index);
    if (!options_.behind.empty()) spec.engine = options_.behind;
    ResolvedCase resolved = resolve(spec, catalogue_);
    (options_.behind.empty() ? put_into : put_proxy_into)(rows_[job.injector].injector, resolved);
    return resolved;
  }

  void execute(const std::vector<Job>& jobs) {
    const auto id_of = [&](std::size_t i) {
      return rows_[jobs[i].injector].injector.id + " @ " +
             selection_.id(queues_[jobs[i].injector].places[jobs[i].place]->index);
    };
    std::map<std::string, std::size_t> by_id;
    for (std::size_t i = 0; i < jobs.size(); ++i) by_id.emplace(id_of(i), i);
    std::map<std::size_t, std::pair<std::size_t, CaseResult>>
        first;  // fault injector -> place and result of its first catch
    supervisor::Options how;
    how.jobs = options_.jobs;
    supervisor::Handlers handlers;
    handlers.on_result = [&](std::size_t, CaseResult&& result) {
      const Job& job = jobs[by_id.at(result.id)];
      auto& row = rows_[job.injector];
      ++row.tried;
      if (says_nothing(result.outcome)) {
        if (options_.log && result.outcome != Outcome::not_run)
          options_.log(result.id + ": " + std::string(name(result.outcome)) + ": " + result.message);
        if (row.silent++ == 0) row.why_silent = result.message;
        return;
      }
      if (result.outcome == Outcome::pass) return;  // equal to correct code here, see fits()
      const auto known = first.find(job.injector);
      if (known == first.end() || job.place < known->second.first)
        first.insert_or_assign(job.injector, std::make_pair(job.place, std::move(result)));
    };
    const supervisor::Summary summary =
        supervisor::run_cases({jobs.size(), id_of, [&](std::size_t i) { return injected(jobs[i]); }}, how, handlers);
    if (summary.interrupted) throw supervisor::Interrupted();  // what did not run was not missed
    for (auto& [s, found] : first) {
      auto& row = rows_[s];
      const std::size_t index = queues_[s].places[found.first]->index;
      Catch one{selection_.id(index), selection_.suite(index), checks_of(found.second), std::move(found.second), false};
      one.named = one.result.diagnosis.exact && one.result.diagnosis.fault_class == row.injector.fault_class;
      row.tried = found.first + 1;  // the cases before it in the queue, and itself
      row.caught = std::move(one);
    }
  }

  const Catalogue& catalogue_;
  const Selection& selection_;
  const CampaignOptions& options_;
  matrix::Space space_;
  std::vector<CampaignRow> rows_;
  std::vector<Candidate> candidates_;
  std::vector<Queue> queues_;
  std::map<std::string, matrix::Expression> expressions_;
};

}  // namespace

std::vector<CampaignRow> run_campaign(const Catalogue& catalogue, const Selection& selection,
                                      const std::vector<FaultInjector>& injectors, const CampaignOptions& options) {
  return Campaign(catalogue, selection, injectors, options).run();
}

Totals totals_of(const std::vector<CampaignRow>& rows) {
  Totals totals;
  for (const auto& row : rows) {
    if (row.injector.harmless) {
      totals.false_alarms += row.caught.has_value();
      continue;
    }
    ++totals.injectors;
    totals.skipped += row.skipped();
    totals.caught += row.caught.has_value();
    totals.named += row.caught && row.caught->named;
  }
  return totals;
}

}  // namespace kvcts::sabotage
