#include "cli/run/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "case/serialized_case.hpp"
#include "cli/exit.hpp"
#include "diagnose/run.hpp"
#include "matrix/ids.hpp"

namespace kvcts::cli {
namespace {

/// What a case needs and this machine has not. A case that our machine performs has neither engine nor connector.
std::optional<Availability::Lack> lack_of(const ResolvedCase& c, Availability& availability) {
  constexpr double gib = 1024.0 * 1024 * 1024;
  const auto needed = static_cast<double>(memory_needed(c)), there = static_cast<double>(availability.memory());
  if (const auto& lack = availability.lack(c.engine.name)) return lack;
  if (const auto& lack = availability.connector_lack(c.connector.name)) return lack;
  if (needed <= there || availability.broken(c.engine.name)) return std::nullopt;
  return Availability::Lack{
      {memory_lack},
      fmt::format("needs {:.1f} GiB of memory, this machine has {:.1f} GiB to give to one case", needed / gib, there / gib)};
}

}  // namespace

Plan::Plan(const catalogue::Catalogue& catalogue, const matrix::Query& query, const PlanOptions& options)
    : catalogue_(catalogue),
      selection_(matrix::select(catalogue, query)),
      seed_(options.seed),
      require_(options.require),
      by_id_(!query.ids.empty() &&
             std::none_of(query.ids.begin(), query.ids.end(),
                          [](const std::string& id) { return id.find_first_of("*?[") != std::string::npos; })),
      from_files_(!query.files.empty()),
      space_(catalogue),
      waivers_(space_),
      today_(matrix::today()) {
  Availability availability(catalogue);
  availability.check_names(options.require);
  items_.reserve(selection_.size());
  for (std::size_t i = 0; i < selection_.size(); ++i) items_.push_back(make_item(i, availability));
}

void Plan::keep(const std::vector<bool>& kept) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (kept[i]) items.push_back(std::move(items_[i]));
  items_ = std::move(items);
}

std::vector<std::int64_t> Plan::places() const {
  std::vector<std::int64_t> out;
  if (selection_.places().empty()) return out;
  for (const Item& item : items_) out.push_back(selection_.places()[item.selected]);
  return out;
}

ResolvedCase Plan::resolve(std::size_t item) const {
  const std::size_t i = items_[item].selected;
  CaseSpec spec = selection_.spec(i);
  if (seed_) spec.seed = *seed_;
  ResolvedCase resolved = kvcts::resolve(spec, catalogue_);
  resolved.facts.update(selection_.facts(i));
  if (items_[item].change) items_[item].change(resolved);
  return resolved;
}

void Plan::insert(std::size_t at, std::string id, std::size_t selected, Change change, Expected expected) {
  const auto original = std::find_if(items_.begin(), items_.end(),
                                     [&](const Item& item) { return item.selected == selected && !item.change; });
  const auto place = static_cast<std::size_t>(original - items_.begin());
  Item item = items_.at(place);
  item.change = std::move(change);
  ResolvedCase resolved = resolve(place);
  item.change(resolved);
  SerializedCase whole = serialize(resolved);
  item.planned = {std::move(id), std::move(whole.digest), std::move(whole.execution), {std::move(expected)}};
  if (item.decided)
    item.decided->id = item.planned.id, item.decided->case_digest = item.planned.digest,
    item.decided->execution = item.planned.execution;
  items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(at), std::move(item));
}

bool Plan::required(const Item& item) const {
  return item.needs != nullptr && std::any_of(require_.begin(), require_.end(), [&](const std::string& name) {
           return std::find(item.needs->all.begin(), item.needs->all.end(), name) != item.needs->all.end();
         });
}

void Plan::judge(CaseResult& result, const Item& item) {
  const matrix::Ruling ruling = waivers_.judge(result, item.planned.expected, today_);
  result.verdict = ruling.verdict;
  result.waiver = ruling.waiver;
  if (result.outcome != Outcome::skipped && result.outcome != Outcome::not_run) return;
  if (required(item)) {
    result.verdict = Verdict::unexpected;
    result.message += "; --require says that it must run";
    return;
  }
  // The machine had what the case needs, and something in this run broke it.
  if (result.facts.contains("set_aside")) {
    result.verdict = Verdict::unexpected;
    return;
  }
  if (result.outcome != Outcome::skipped) return;
  // What a worker finds lacking goes by the name of what it was to start.
  std::vector<std::string> names = result.facts.value("lack", std::vector<std::string>{});
  if (names.empty() && item.needs != nullptr) names = item.needs->started;
  if (names.empty()) names = {"unknown"};
  result.facts["lack"] = {{"name", names.front()}, {"optional", selection_.optional(item.selected, names)}};
}

const Availability::Needs* Plan::needs_of(const std::string& engine, const std::string& connector,
                                          const Availability& availability) {
  const auto [at, fresh] = needs_.try_emplace({engine, connector});
  if (fresh) at->second = availability.needs(engine, connector);
  return &at->second;
}

Item Plan::make_item(std::size_t i, Availability& availability) {
  Item item;
  item.selected = i;
  item.planned.id = selection_.id(i);
  const auto decide = [&](Outcome outcome, std::string message) -> CaseResult& {
    CaseResult result;
    result.id = item.planned.id;
    result.outcome = outcome;
    result.message = std::move(message);
    result.facts = selection_.facts(i);
    return item.decided.emplace(std::move(result));
  };
  CaseSpec spec = selection_.spec(i);
  if (seed_) spec.seed = *seed_;
  item.planned.expected = spec.expected;
  bool broken = false;
  std::string misnamed;

  if (const auto declared = selection_.declared(i); declared && declared->outcome != Outcome::refused) {
    decide(declared->outcome, declared->reason);
  } else {
    try {
      ResolvedCase resolved = kvcts::resolve(spec, catalogue_);
      resolved.facts.update(selection_.facts(i));
      SerializedCase whole = serialize(resolved);
      item.planned.digest = std::move(whole.digest), item.planned.execution = std::move(whole.execution);
      item.needs = needs_of(resolved.engine.name, resolved.connector.name, availability);
      if (const auto lack = lack_of(resolved, availability)) {
        decide(Outcome::skipped, lack->reason).facts["lack"] = lack->names;
        if (lack->no_file && by_id_) misnamed = lack->reason;
      } else if (const auto& failed = availability.broken(resolved.engine.name)) {
        supervisor::decide(*failed, std::nullopt, decide(Outcome::error, ""));
        broken = true;
      }
      // The suite's own scenarios are known to make sense; what is wrong in a user's is said before anything runs.
      if (from_files_ && !item.decided) scenario::expect_playable(resolved.scenario);
    } catch (const std::system_error&) {
      throw;  // the machine cannot even be asked: that is no case's fault
    } catch (const std::exception& e) {
      // A case of the user's own file that cannot be stated is the user's mistake, not the suite's.
      if (from_files_) throw UsageError(fmt::format("{}: {}: {}", spec.declared_by, item.planned.id, e.what()));
      decide(Outcome::error, e.what());
    }
  }
  if (!misnamed.empty()) throw UsageError(misnamed);
  if (item.planned.digest.empty())  // never executed: what identifies it is its id
    item.planned.digest = item.planned.execution = fmt::format("{:016x}", matrix::id_hash(item.planned.id));
  if (item.decided) {
    CaseResult& result = *item.decided;
    result.case_digest = item.planned.digest;
    result.execution = item.planned.execution;
    result.seed = spec.seed;
    judge(result, item);
    // A case may expect code under test to crash or to hang, but not before it was given anything to do.
    if (broken && result.verdict == Verdict::as_expected) result.verdict = Verdict::unexpected;
  }
  return item;
}

}  // namespace kvcts::cli
