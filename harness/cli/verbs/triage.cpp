// kvcts triage: what the failures of a run have in common, as an axis expression, and whether cases that could refute it do.
#include "tools/triage/triage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/report/text.hpp"
#include "cli/run/plan.hpp"
#include "cli/stored.hpp"
#include "cli/trials.hpp"
#include "cli/verbs/verbs.hpp"
#include "matrix/ids.hpp"
#include "matrix/select.hpp"

namespace kvcts::cli::triage_verb {
namespace {

using nlohmann::json;
using triage::Explanation;
using triage::Observation;
using triage::Refuter;

struct Options {
  std::string run;
  std::vector<std::string> classes;
  bool execute{false}, waived{false};
  int cases{24}, rounds{3}, jobs{1};
};

/// Failures of a run that ended alike, and all that passed.
struct Group {
  std::string ending;
  std::vector<Observation> observations;
  std::int64_t failures{0};
};

/// What is looked at of an ending: outcome and class.
std::string ending_of(const CaseResult& r) {
  return std::string(name(r.outcome)) +
         (r.diagnosis.fault_class == FaultClass::none ? "" : " " + std::string(name(r.diagnosis.fault_class)));
}

bool failed(const CaseResult& r, bool waived) {
  return store::is_failure(r.verdict) || (waived && r.verdict == Verdict::xfail);
}

struct Run {
  std::vector<Group> groups;  ///< the largest first
  std::int64_t cases{0}, passes{0};
};

Run read(const Options& o) {
  Run run;
  std::map<std::string, std::vector<Observation>> failures;
  std::vector<Observation> passes;
  opening([&] {
    store::RunReader::open(o.run).for_each([&](const store::Row& row) {
      ++run.cases;
      if (!row.decided) return;
      const json axes = row.result.facts.is_object() ? row.result.facts.value("axes", json::object()) : json::object();
      const bool fails = failed(row.result, o.waived);
      if (fails)
        failures[ending_of(row.result)].push_back({row.planned.id, axes, true});
      else if (row.result.outcome == Outcome::pass)
        passes.push_back({row.planned.id, axes, false});
    });
  });
  run.passes = static_cast<std::int64_t>(passes.size());
  for (auto& [ending, observations] : failures) {
    Group group{ending, std::move(observations), 0};
    group.failures = static_cast<std::int64_t>(group.observations.size());
    group.observations.insert(group.observations.end(), passes.begin(), passes.end());
    run.groups.push_back(std::move(group));
  }
  std::stable_sort(run.groups.begin(), run.groups.end(),
                   [](const Group& a, const Group& b) { return a.failures > b.failures; });
  if (!o.classes.empty()) {
    std::vector<std::string> endings;
    for (const Group& g : run.groups) endings.push_back(g.ending);
    std::erase_if(run.groups, [&](const Group& g) {
      return std::none_of(o.classes.begin(), o.classes.end(),
                          [&](const std::string& c) { return g.ending == c || g.ending.ends_with(" " + c); });
    });
    if (run.groups.empty())
      throw UsageError(fmt::format("--class expects one that failures of this run have ({}), found '{}'",
                                   fmt::join(endings, ", "), fmt::join(o.classes, "', '")));
  }
  return run;
}

/// What became of cases that could have refuted a rule.
struct Trial {
  std::size_t held{0}, must_fail{0}, must_pass{0}, other{0};
  std::vector<std::pair<Refuter, std::string>> against;  ///< and how they ended
};

class Triage {
 public:
  Triage(const Options& o, const Globals& globals, const catalogue::Catalogue& cat)
      : o_(o), globals_(globals), cat_(cat), space_(cat), constraints_(space_), availability_(cat) {}

  int run() {
    const Run all = read(o_);
    json out{{"run", o_.run}, {"cases", all.cases}, {"passes", all.passes}, {"causes", json::array()}};
    std::int64_t failures = 0;
    for (const Group& g : all.groups) failures += g.failures;
    say("{}: {} failed, {} passed of {}\n", o_.run, report::plural(failures, "case"), report::thousands(all.passes),
        report::thousands(all.cases));
    bool refuted = false;
    for (std::size_t i = 0; i < all.groups.size(); ++i) {
      say("\n{}  {}: {}\n", i + 1, all.groups[i].ending, report::plural(all.groups[i].failures, "case"));
      out["causes"].push_back(look(all.groups[i], refuted));
    }
    if (all.groups.empty()) say("no unexpected failures\n");
    if (globals_.json) fmt::print("{}\n", out.dump(2));
    return refuted ? exit_unexpected : exit_as_expected;
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) const {
    if (globals_.json) return;
    fmt::print(text, std::forward<Args>(args)...);
    std::fflush(stdout);
  }

  /// Explains, tries to refute, and explains again with what was learnt.
  json look(Group group, bool& refuted) {
    json rounds = json::array();
    for (int round = 1;; ++round) {
      const triage::Finding finding = triage::explain(group.observations, space_);
      json told = tell(finding);
      if (finding.parts.empty()) {
        rounds.push_back(told);
        break;
      }
      bool again = false;
      for (std::size_t p = 0; p < finding.parts.size(); ++p) {
        const auto tries =
            triage::refuters(finding.parts[p], group.observations, space_, constraints_, static_cast<std::size_t>(o_.cases),
                             [this](const std::string& id) { return runs_here(id); });
        if (o_.execute)
          again = !test(group, tries, told["parts"][p]) || again;
        else
          propose(tries, told["parts"][p]);
      }
      rounds.push_back(std::move(told));
      if (!again) break;
      if (round == o_.rounds) {
        refuted = true;
        break;
      }
      say("   again, with these results\n");
    }
    return {{"ending", group.ending}, {"failures", group.failures}, {"rounds", rounds}};
  }

  json tell(const triage::Finding& finding) const {
    json parts = json::array();
    for (const Explanation& e : finding.parts) {
      const std::string expression = e.rule.expression();
      say("   when       {}\n", expression);
      say("   explains   {} of {}, and holds for {} of {} that passed\n", e.failures.size(),
          report::plural(finding.failures, "failure"), e.against.size(), report::plural(finding.passes, "case"));
      list("   against", e.against);
      std::vector<std::string> others;
      for (const auto& rule : e.as_good) others.push_back(rule.expression());
      for (std::size_t i = 0; i < std::min<std::size_t>(others.size(), 3); ++i)
        say("   {:<10} {}\n", i == 0 ? "as good" : "", others[i]);
      if (others.size() > 3) say("   {:<10} and {} more\n", "", others.size() - 3);
      parts.push_back({{"when", expression},
                       {"explains", e.failures.size()},
                       {"failures", e.failures},
                       {"against", e.against},
                       {"as_good", others}});
    }
    if (!finding.unexplained.empty()) {
      say("   unexplained: {} that no axis distinguishes from passing cases\n",
          report::plural(static_cast<std::int64_t>(finding.unexplained.size()), "failure"));
      list("   such as", finding.unexplained);
    }
    return {{"parts", parts}, {"unexplained", finding.unexplained}};
  }

  void list(std::string_view head, const std::vector<std::string>& ids) const {
    for (std::size_t i = 0; i < std::min<std::size_t>(ids.size(), 5); ++i)
      say("   {:<10} {}\n", i == 0 ? head.substr(3) : "", ids[i]);
    if (ids.size() > 5) say("   {:<10} and {} more\n", "", ids.size() - 5);
  }

  /// A case that can be made and whose engine is there.
  bool runs_here(const std::string& id) {
    try {
      const CaseSpec spec = matrix::spec_from_id(space_, id);
      const ResolvedCase resolved = resolve(spec, cat_);
      return !availability_.lack(spec.engine) && !availability_.broken(spec.engine) &&
             memory_needed(resolved) <= availability_.memory();
    } catch (const std::exception&) {
      return false;
    }
  }

  void propose(const std::vector<Refuter>& tries, json& told) const {
    json cases = json::array();
    for (const Refuter& r : tries) cases.push_back({{"id", r.id}, {"must", r.fails ? "fail" : "pass"}, {"why", r.why}});
    told["refuting"] = cases;
    if (tries.empty()) {
      say("   refuting   none: every neighbour of these failures in the matrix was run or cannot run here\n");
      return;
    }
    const auto fail = std::count_if(tries.begin(), tries.end(), [](const Refuter& r) { return r.fails; });
    say("   refuting   {} would: {} must fail, {} must pass; --run runs them\n",
        report::plural(static_cast<std::int64_t>(tries.size()), "case"), fail,
        static_cast<std::ptrdiff_t>(tries.size()) - fail);
    for (std::size_t i = 0; i < std::min<std::size_t>(tries.size(), 6); ++i)
      say("              {}  {} ({})\n", tries[i].fails ? "fail" : "pass", tries[i].id, tries[i].why);
    if (tries.size() > 6) say("              and {} more\n", tries.size() - 6);
  }

  /// Runs them, adds what they say to the group. True: the rule held.
  bool test(Group& group, const std::vector<Refuter>& tries, json& told) {
    std::vector<ResolvedCase> cases;
    for (const Refuter& r : tries) cases.push_back(resolve(matrix::spec_from_id(space_, r.id), cat_));
    const auto results =
        cases.empty() ? std::vector<CaseResult>{} : run_until(cases, o_.jobs, [](const CaseResult&) { return false; });
    Trial trial;
    json ended = json::array();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Refuter& r = tries[i];
      const std::string how = ending_of(results[i]);
      const bool fails = how == group.ending, passes = results[i].outcome == Outcome::pass;
      ended.push_back({{"id", r.id}, {"must", r.fails ? "fail" : "pass"}, {"ended", how}, {"why", r.why}});
      if (!fails && !passes) {
        ++trial.other;  // another failure stands before this one
        continue;
      }
      ++(r.fails ? trial.must_fail : trial.must_pass);
      if (fails == r.fails)
        ++trial.held;
      else
        trial.against.emplace_back(r, how);
      if (fails || passes)
        group.observations.push_back({r.id, matrix::axes_of(space_, matrix::point_from_id(space_, r.id)), fails});
    }
    told["tested"] = {{"cases", ended},
                      {"held", trial.held},
                      {"against", trial.against.size()},
                      {"at_least", trial.against.empty() ? triage::lower_bound(trial.held) : 0.0}};
    say("   tested     {}: {} had to fail, {} had to pass; held in {}{}\n",
        report::plural(static_cast<std::int64_t>(trial.must_fail + trial.must_pass), "new case"), trial.must_fail,
        trial.must_pass, trial.held,
        trial.other == 0 ? "" : fmt::format("; {} more failed otherwise, which says nothing", trial.other));
    for (std::size_t i = 0; i < std::min<std::size_t>(trial.against.size(), 5); ++i) {
      const auto& [r, how] = trial.against[i];
      say("   {:<10} {} had to {} ({}), ended {}\n", i == 0 ? "against" : "", r.id, r.fails ? "fail" : "pass", r.why, how);
    }
    if (trial.against.size() > 5) say("   {:<10} and {} more\n", "", trial.against.size() - 5);
    if (!trial.against.empty()) return false;
    say("   confidence {}\n", trial.held == 0
                                  ? std::string("nothing could be tested")
                                  : fmt::format("right for at least {:.0f} % of such cases, with 95 % confidence",
                                                100 * triage::lower_bound(trial.held)));
    return true;
  }

  const Options& o_;
  const Globals& globals_;
  const catalogue::Catalogue& cat_;
  matrix::Space space_;
  matrix::Constraints constraints_;
  Availability availability_;
};

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<Options>();
  command.add_option("RUN", o->run, "Folder of a run").required().type_name("DIR");
  command
      .add_option("--class", o->classes,
                  "Look only at failures of this class, or with this outcome ('FAIL axis-permuted'); repeatable")
      .type_name("CLASS")
      .repeatable();
  command.add_flag("--waived", o->waived, "Include failures that a waiver covers");
  command.add_flag("--run", o->execute, "Run cases that would refute the rule found, and refine it");
  command.add_option("--most", o->cases, "Maximum number of such cases for each rule").show_default().range(1, 10'000);
  command.add_option("--rounds", o->rounds, "Maximum number of refinements").show_default().range(1, 20);
  command.add_option("-j,--jobs", o->jobs, "Number of cases to run in parallel").show_default().range(1, 1024);
  return [o, &globals] {
    const catalogue::Catalogue cat(catalogue::find_cases(globals.cases));
    return Triage(*o, globals, cat).run();
  };
}

}  // namespace kvcts::cli::triage_verb
