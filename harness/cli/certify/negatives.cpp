#include "cli/certify/negatives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "cli/exit.hpp"
#include "connector/connector.hpp"
#include "matrix/expr.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {

namespace {

constexpr const char* rehearsal_engine = "memcpy";
constexpr int most_rounds = 40;

/// The negatives with the suite's own engine.
std::vector<CaseResult> rehearse(const Subject& subject, const std::vector<Negative>& negatives, std::uint64_t seed,
                                 int jobs) {
  std::vector<CaseResult> results(negatives.size());
  supervisor::Options how;
  how.jobs = jobs;
  supervisor::Handlers handlers;
  handlers.on_result = [&](std::size_t i, CaseResult&& result) { results[i] = std::move(result); };
  const auto injected = [&](std::size_t i) {
    ResolvedCase resolved = subject.resolve(negatives[i].selected, seed, rehearsal_engine);
    sabotage::put_into(negatives[i].injector, resolved);
    return resolved;
  };
  const auto summary =
      supervisor::run_cases({negatives.size(), [&](std::size_t i) { return negatives[i].id; }, injected}, how, handlers);
  if (summary.interrupted) throw supervisor::Interrupted();
  return results;
}

/// What is drawn from: fault injectors by class, and the cases that are run at all.
class Draw {
 public:
  Draw(const Subject& subject, const Challenge& challenge)
      : subject_(subject), challenge_(challenge), space_(subject.catalogue()) {
    for (auto& one : catalogue::load_fault_injectors(subject.catalogue()))
      if (!one.harmless && (one.kind == "connector" || one.kind == "planner"))
        by_class_[name(one.fault_class)].push_back(std::move(one));
    for (const auto& [fault_class, injectors] : by_class_) classes_.push_back(fault_class);
    for (std::size_t i = 0; i < subject.selection().size(); ++i)
      if (!subject.selection().declared(i)) cases_.push_back(i);
    // Naming takes as long as the memory is large: the smaller half will do.
    std::stable_sort(cases_.begin(), cases_.end(), [&](std::size_t a, std::size_t b) {
      return subject.selection().seconds(a) < subject.selection().seconds(b);
    });
    cases_.resize((cases_.size() + 1) / 2);
    if (cases_.empty()) throw UsageError("the profile has no case for this product that a challenge could be put into");
  }

  /// The negative of a place in the list, in a round; nothing where its fault injector has no case.
  std::optional<Negative> at(std::size_t place, int round) {
    const certificate::Digest dice = drawn(challenge_, fmt::format("negative {} round {}", place, round));
    const auto pick = [&](std::size_t which, std::size_t count) {
      return static_cast<std::size_t>(word_of(dice, which) % count);
    };
    const auto& injectors = by_class_.at(classes_[pick(0, classes_.size())]);
    const auto& injector = injectors[pick(1, injectors.size())];
    const std::size_t first = pick(2, cases_.size());
    for (std::size_t step = 0; step < cases_.size(); ++step) {
      const std::size_t selected = cases_[(first + step) % cases_.size()];
      if (!holds(injector.only, selected) || !holds(injector.likely, selected)) continue;
      try {
        if (!sabotage::fits(injector, subject_.resolve(selected, seed_of(challenge_), rehearsal_engine))) continue;
      } catch (const std::exception&) {
        continue;  // the run itself reports it
      }
      return Negative{injector.id + " @ " + subject_.selection().id(selected), selected, injector, {}};
    }
    return std::nullopt;
  }

 private:
  bool holds(const std::string& expression, std::size_t selected) {
    if (expression.empty()) return true;
    auto found = expressions_.find(expression);
    if (found == expressions_.end()) found = expressions_.emplace(expression, matrix::Expression(expression, space_)).first;
    nlohmann::json axes = subject_.selection().facts(selected).value("axes", nlohmann::json::object());
    axes["engine"] = rehearsal_engine;
    return found->second.evaluate(matrix::lookup_of(space_, axes), subject_.selection().id(selected));
  }

  const Subject& subject_;
  const Challenge& challenge_;
  matrix::Space space_;
  std::map<std::string_view, std::vector<sabotage::FaultInjector>> by_class_;  // by name: the dice count in that order
  std::vector<std::string_view> classes_;
  std::vector<std::size_t> cases_;
  std::map<std::string, matrix::Expression> expressions_;
};

}  // namespace

std::string why_not_caught(const CaseResult& result, FaultClass fault_class) {
  if (result.outcome != Outcome::fail)
    return fmt::format("ended as {}, expected FAIL {}", name(result.outcome), name(fault_class));
  if (!result.diagnosis.exact || result.diagnosis.fault_class != fault_class)
    return fmt::format(
        "is FAIL {}, expected FAIL {}",
        result.diagnosis.fault_class == FaultClass::none ? "without a class" : name(result.diagnosis.fault_class),
        name(fault_class));
  return "";
}

std::vector<Negative> draw_negatives(const Subject& subject, const Challenge& challenge, int jobs) {
  Draw draw(subject, challenge);
  std::map<std::size_t, Negative> found;
  std::set<std::string> seen;
  const auto wanted = static_cast<std::size_t>(challenge.negatives);
  for (int round = 0; round < most_rounds && found.size() < wanted; ++round) {
    std::vector<Negative> tries;
    std::vector<std::size_t> places;
    for (std::size_t place = 0; place < wanted; ++place) {
      if (found.contains(place)) continue;
      auto one = draw.at(place, round);
      if (!one || !seen.insert(one->id).second) continue;
      tries.push_back(std::move(*one));
      places.push_back(place);
    }
    if (tries.empty()) continue;
    const auto results = rehearse(subject, tries, seed_of(challenge), jobs);
    for (const CaseResult& result : results)
      if ((result.outcome != Outcome::pass && result.outcome != Outcome::fail && result.outcome != Outcome::refused) ||
          (result.outcome == Outcome::fail && result.phase == Phase::registration))
        throw CannotRehearse(
            fmt::format("the suite's own engine {} does not run here: {}", rehearsal_engine, result.message));
    for (std::size_t i = 0; i < tries.size(); ++i) {
      if (!why_not_caught(results[i], tries[i].injector.fault_class).empty()) continue;
      tries[i].rehearsal = results[i];
      found.emplace(places[i], std::move(tries[i]));
    }
  }
  if (found.size() < wanted)
    throw UsageError(
        fmt::format("expected a profile with places for {} negatives, found {}; ask for fewer", wanted, found.size()));
  std::vector<Negative> out;
  for (auto& [place, one] : found) out.push_back(std::move(one));
  return out;
}

nlohmann::json blind_view(const ResolvedCase& resolved) {
  ResolvedCase view = case_from_json(worker_view(resolved));
  try {
    const auto connector = connector::make_connector(view.connector);
    for (const Side side : {Side::producer, Side::consumer}) connector->register_caches(view, side);
    view.copies = connector->plan(view, process::Progress()).copies;
  } catch (const std::exception&) {  // it refuses, which the worker has to see: no negative does
    return worker_view(resolved);
  }
  view.connector = {"list", "explicit", nlohmann::json::object()};
  if (view.reader.name.empty()) view.groups.clear();
  return worker_view(view);
}

void hide_negatives(Plan& plan, const std::vector<Negative>& negatives, const Challenge& challenge) {
  for (const Negative& one : negatives) {
    const std::size_t at = word_of(drawn(challenge, "place of " + one.id), 0) % (plan.items().size() + 1);
    plan.insert(at, one.id, one.selected,
                [injector = one.injector](ResolvedCase& resolved) { sabotage::put_into(injector, resolved); },
                {Outcome::fail, one.injector.fault_class, std::nullopt, ""});
  }
}

}  // namespace kvcts::cli
