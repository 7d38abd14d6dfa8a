// kvcts report --museum: the published bugs, how each ends, and whether all are caught and named.
#include "tools/museum/museum.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/names.hpp"
#include "cli/stored.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::museum_verb {
namespace {

using namespace museum;

struct Options {
  std::string run;  ///< folder of a run; "" = run them now
  std::vector<std::string> systems, classes;
};

Endings endings_of(const std::string& run) {
  Endings out;
  opening([&] {
    store::RunReader::open(run).for_each([&](const store::Row& row) {
      if (row.planned.id.starts_with("museum/"))
        out[row.planned.id] = {row.result.outcome, row.result.diagnosis.fault_class, row.result.message};
    });
  });
  if (out.empty())
    throw UsageError(
        fmt::format("expected a run with cases of the museum, found none in {}; `kvcts run --suite museum` makes one", run));
  return out;
}

nlohmann::json as_json(const Exhibit& e, const Endings& endings) {
  const Standing s = judge(e, endings);
  nlohmann::json cases = nlohmann::json::array();
  for (const auto* specs : {&e.cases, &e.controls}) {
    for (const CaseSpec& spec : *specs) {
      const auto found = endings.find(spec.id);
      nlohmann::json one{{"case", spec.id}, {"title", spec.title}};
      if (found != endings.end())
        one.update({{"outcome", name(found->second.outcome)},
                    {"class", found->second.fault_class},
                    {"message", found->second.message}});
      cases.push_back(std::move(one));
    }
  }
  nlohmann::json out{{"id", e.entry.id},
                     {"report", e.entry.report},
                     {"link", e.link()},
                     {"system", e.entry.system},
                     {"class", e.entry.fault_class},
                     {"data", e.entry.data},
                     {"date", e.entry.date},
                     {"version", e.entry.version},
                     {"expressed", e.expressed()},
                     {"cases", cases}};
  if (e.expressed())
    out.update({{"ran", s.ran},
                {"caught", s.caught},
                {"named", s.named},
                {"ending", s.ending},
                {"controls", s.controls},
                {"controls_good", s.controls_good}});
  else
    out.update({{"ending", s.ending}, {"reason", e.not_expressed}});
  return out;
}

nlohmann::json as_json(const Tally& t) {
  const auto part = [](const Tally::Part& p) {
    return nlohmann::json{
        {"entries", p.entries}, {"expressed", p.expressed}, {"ran", p.ran}, {"caught", p.caught}, {"named", p.named}};
  };
  return {{"confirmed", part(t.confirmed)},
          {"partial", part(t.partial)},
          {"controls", t.controls},
          {"controls_good", t.controls_good}};
}

void print_list(const std::vector<Exhibit>& exhibits, const Endings& endings) {
  std::map<std::string, std::vector<const Exhibit*>> systems;
  for (const Exhibit& e : exhibits) systems[e.entry.system].push_back(&e);
  for (const auto& [system, of] : systems) {
    fmt::print("{}\n", system);
    for (const Exhibit* e : of) {
      const Standing s = judge(*e, endings);
      std::string how = e->not_expressed;
      if (e->expressed()) {
        how = fmt::format("{}, {} of {} controls",
                          s.named    ? "named"
                          : s.caught ? "MISNAMED"
                          : s.ran    ? "MISSED"
                                     : "not run",
                          s.controls_good, s.controls);
      }
      fmt::print("  {}  {:<10}  {:<27}  {}: {}\n        {}{}; {}\n", e->entry.id, e->entry.date, name(e->entry.fault_class),
                 s.ending, how, e->entry.data == "partial" ? "partial data; " : "", e->entry.version, e->link());
    }
  }
  fmt::print("\n");
}

int show(const Options& options, const Globals& globals) {
  const catalogue::Catalogue cat(catalogue::find_cases(globals.cases));
  const std::vector<Exhibit> all = museum::read(cat);
  std::vector<Exhibit> exhibits = all;
  narrow(exhibits, all, options.systems, "--system expects one that the museum has",
         [](const Exhibit& e) { return e.entry.system; });
  narrow(exhibits, all, options.classes, "--class expects one that the museum has",
         [](const Exhibit& e) { return std::string(name(e.entry.fault_class)); });
  if (exhibits.empty()) throw NothingSelected("no entry has that system and that class");
  const bool whole = exhibits.size() == all.size();
  const Endings endings = options.run.empty() ? museum::run(exhibits, cat) : endings_of(options.run);
  const Tally sums = tally(exhibits, endings);
  const std::vector<std::string> lacks = missed(sums, whole);
  if (globals.json) {
    nlohmann::json entries = nlohmann::json::array();
    for (const Exhibit& e : exhibits) entries.push_back(as_json(e, endings));
    fmt::print("{}\n", nlohmann::json{{"entries", entries}, {"totals", as_json(sums)}, {"missed", lacks}}.dump(2));
  } else {
    print_list(exhibits, endings);
    fmt::print("{}targets    {}\n", summary(sums),
               lacks.empty() ? "met" : fmt::format("missed: {}", fmt::join(lacks, "; ")));
  }
  return lacks.empty() ? exit_as_expected : exit_unexpected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<Options>();
  command.add_option("RUN", options->run,
                     "Folder of a run of the suite museum; without one, run its cases now, in this process");
  command.add_option("--system", options->systems, "Show only bugs of this system; repeatable")
      .type_name("NAME")
      .repeatable();
  command.add_option("--class", options->classes, "Show only bugs of this fault class; repeatable")
      .type_name("CLASS")
      .repeatable();
  return [options, &globals] { return show(*options, globals); };
}

}  // namespace kvcts::cli::museum_verb
