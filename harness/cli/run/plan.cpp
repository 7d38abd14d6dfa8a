#include "cli/run/plan.hpp"

#include <fmt/format.h>

#include "case/written.hpp"
#include "cli/exit.hpp"
#include "matrix/ids.hpp"
#include "script/run.hpp"

namespace kvcts::cli {

Plan::Plan(const catalogue::Catalogue& catalogue, const matrix::Query& query, const PlanOptions& options)
    : catalogue_(catalogue), selection_(matrix::select(catalogue, query)), seed_(options.seed), from_files_(!query.files.empty()), space_(catalogue), waivers_(space_),
      today_(matrix::today()) {
  Availability availability(catalogue);
  availability.check_names(options.require);
  items_.reserve(selection_.size());
  for (std::size_t i = 0; i < selection_.size(); ++i) items_.push_back(make_item(i, options, availability));
}

ResolvedCase Plan::resolve(std::size_t item) const {
  const std::size_t i = items_[item].selected;
  CaseSpec spec = selection_.spec(i);
  if (seed_) spec.seed = *seed_;
  ResolvedCase resolved = kvcts::resolve(spec, catalogue_);
  resolved.facts.update(selection_.facts(i));
  return resolved;
}

void Plan::judge(CaseResult& result, const std::vector<Expected>& expected) {
  const matrix::Ruling ruling = waivers_.judge(result, expected, today_);
  result.verdict = ruling.verdict;
  result.waiver = ruling.waiver;
  // The machine had what the case needs, and something in this run broke it.
  if (result.outcome == Outcome::skipped && result.facts.contains("set_aside")) result.verdict = Verdict::unexpected;
}

Item Plan::make_item(std::size_t i, const PlanOptions& options, Availability& availability) {
  Item item;
  item.selected = i;
  item.planned.id = selection_.id(i);
  const auto decide = [&](Outcome outcome, std::string message) {
    CaseResult result;
    result.id = item.planned.id;
    result.outcome = outcome;
    result.message = std::move(message);
    result.facts = selection_.facts(i);
    item.decided = std::move(result);
  };
  CaseSpec spec = selection_.spec(i);
  if (seed_) spec.seed = *seed_;
  item.planned.expected = spec.expected;

  if (const auto declared = selection_.declared(i); declared && declared->outcome != Outcome::refused) {
    decide(declared->outcome, declared->reason);
  } else {
    try {
      ResolvedCase resolved = kvcts::resolve(spec, catalogue_);
      resolved.facts.update(selection_.facts(i));
      Written whole = written(resolved);
      item.planned.digest = std::move(whole.digest);
      item.planned.execution = std::move(whole.execution);
      if (const auto& lack = availability.lack(spec.engine); lack && !resolved.scripted()) decide(Outcome::skipped, lack->reason);
      constexpr double gib = 1024.0 * 1024 * 1024;
      const auto needed = static_cast<double>(memory_needed(resolved)), there = static_cast<double>(availability.memory());
      if (needed > there) {
        decide(Outcome::skipped, fmt::format("needs {:.1f} GiB of memory, this machine has {:.1f} GiB to give to one case", needed / gib, there / gib));
      }
      // The suite's own scripts are known to make sense; what is wrong in a user's is said before anything runs.
      if (from_files_ && resolved.scripted() && !item.decided) script::expect_playable(resolved.script);
    } catch (const std::exception& e) {
      // A case of the user's own file that cannot be stated is the user's mistake, not the suite's.
      if (from_files_) throw UsageError(fmt::format("{}: {}: {}", spec.declared_by, item.planned.id, e.what()));
      decide(Outcome::error, e.what());
    }
  }
  if (item.planned.digest.empty()) {
    // Never executed: what identifies it is its id.
    item.planned.digest = item.planned.execution = fmt::format("{:016x}", matrix::id_hash(item.planned.id));
  }
  if (item.decided) {
    CaseResult& result = *item.decided;
    result.case_digest = item.planned.digest;
    result.execution = item.planned.execution;
    result.seed = spec.seed;
    judge(result, item.planned.expected);
    if (result.outcome == Outcome::skipped && availability.lack(spec.engine) &&
        Availability::required(options.require, spec.engine, *availability.lack(spec.engine))) {
      result.verdict = Verdict::unexpected;
      result.message += "; --require says that it must be there";
    }
  }
  return item;
}

}  // namespace kvcts::cli
