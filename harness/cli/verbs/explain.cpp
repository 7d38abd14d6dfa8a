// kvcts explain: what a word of the suite means.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/nearest.hpp"
#include "cli/verbs/verbs.hpp"
#include "cli/words.hpp"
#include "diagnose/precedence.hpp"
#include "matrix/axes.hpp"
#include "matrix/select.hpp"

namespace kvcts::cli::explain_verb {
namespace {

nlohmann::json as_json(const Word& w) {
  return {{"kind", w.kind}, {"name", w.name}, {"meaning", w.meaning}, {"advice", w.advice}};
}

void print(const Word& w) {
  fmt::print("{} ({})\n  {}\n", w.name, w.kind, w.meaning);
  if (!w.advice.empty()) fmt::print("  {}\n", w.advice);
}

/// "read-back", "xfail" and "as-expected" are accepted for "read back", "XFAIL" and "as expected".
std::string folded(std::string text) {
  for (char& c : text) c = c == ' ' || c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

int list_text(const Globals& globals) {
  if (globals.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Word& w : words()) all.push_back(as_json(w));
    fmt::print("{}\n", all.dump(2));
    return exit_as_expected;
  }
  std::string kind;
  for (const Word& w : words()) {
    if (w.kind != kind) fmt::print("{}{}\n", kind.empty() ? "" : "\n", kind = w.kind);
    fmt::print("  {:<27} {}\n", w.name, w.meaning);
  }
  return exit_as_expected;
}

/// What cases/ has under this name: an axis, a layout, an engine, a suite, ...
std::vector<Word> in_catalogue(const catalogue::Catalogue& cat, const std::string& subject) {
  std::vector<Word> out;
  if (const matrix::Axis* axis = matrix::find_axis(subject))
    out.push_back({"axis", subject, std::string(axis->doc), "`kvcts explain --schema axes` lists all axes."});
  const auto look = [&](const char* kind, const auto& entries, const std::string& advice = "") {
    if (const auto* entry = entries.find(subject)) out.push_back({kind, subject, entry->title, advice});
  };
  look("layout", cat.layouts(), "`kvcts layouts " + subject + "` draws it.");
  look("backend", cat.backends());
  look("dtype", cat.dtypes());
  look("geometry", cat.geometries());
  look("architecture", cat.archs());
  look("connector", cat.connectors());
  look("engine", cat.engines());
  look("suite", cat.suites(), "`kvcts list --suite " + subject + "` lists its cases.");
  return out;
}

/// A case: its document, what it expects, and what is known of it before it runs.
int explain_case(const std::string& id, const Globals& globals) {
  const catalogue::Catalogue cat(catalogue::find_cases(globals.cases));
  matrix::Query query;
  query.ids = {id};
  const matrix::Selection found = matrix::select(cat, query);
  if (found.empty()) throw UsageError(fmt::format("expected the id of a case, found '{}': {}", id, found.why_empty()));
  const CaseSpec spec = found.spec(0);
  const auto declared = found.declared(0);
  if (globals.json) {
    nlohmann::json out{{"case", catalogue::to_document(spec)}, {"facts", found.facts(0)}};
    if (declared)
      out["declared"] = {
          {"outcome", name(declared->outcome)}, {"constraint", declared->constraint}, {"reason", declared->reason}};
    fmt::print("{}\n", out.dump(2));
    return exit_as_expected;
  }
  fmt::print("{}", catalogue::to_yaml(spec));
  if (declared) fmt::print("# {} by {}: {}\n", name(declared->outcome), declared->constraint, declared->reason);
  return exit_as_expected;
}

int explain(const std::string& subject, const Globals& globals) {
  if (subject.empty()) return list_text(globals);
  const std::string wanted = folded(subject);
  std::vector<Word> found;
  for (const Word& w : words()) {
    const std::string name = folded(w.name);
    const bool plural = name + "s" == wanted || (name.ends_with('y') && name.substr(0, name.size() - 1) + "ies" == wanted);
    if (name == wanted || plural || name == wanted + "es") found.push_back(w);
  }
  if (found.empty() && subject.find('/') != std::string::npos) return explain_case(subject, globals);
  if (found.empty()) found = in_catalogue(catalogue::Catalogue(catalogue::find_cases(globals.cases)), subject);
  if (found.empty()) {
    std::vector<std::string> names;
    for (const Word& w : words()) names.push_back(w.name);
    throw UsageError(fmt::format("expected a word of the output, the id of anything in cases/, or a case id, found '{}'{}",
                                 subject, catalogue::suggestion(subject, names)));
  }
  if (globals.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Word& w : found) all.push_back(as_json(w));
    fmt::print("{}\n", all.dump(2));
  } else {
    for (const Word& w : found) print(w);
  }
  return exit_as_expected;
}

/// Which family of hypotheses names a fault when several explain every byte: the cheapest.
int list_precedence(const Globals& globals) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [family, cost, classes] : scenario::generator_costs()) {
    std::vector<std::string_view> names;
    for (const FaultClass one : classes) names.push_back(name(one));
    if (!globals.json)
      fmt::print("{:>4.2f}  {}: {}\n", cost, family,
                 names.empty() ? "any class" : fmt::format("{}", fmt::join(names, ", ")));
    all.push_back({{"family", family}, {"cost", cost}, {"classes", names}});
  }
  if (globals.json) fmt::print("{}\n", all.dump(2));
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto subject = std::make_shared<std::string>();
  command.add_option("SUBJECT", *subject,
                     "A word of the output, the id of anything in cases/, or a case id; without it, list the words");
  auto precedence = std::make_shared<bool>(false);
  command.add_flag("--precedence", *precedence,
                   "List the families of explanations of a scripted failure with what they cost and the classes that they "
                   "name: of those that fit the cheapest names it");
  return [=, &globals] {
    if (*precedence && !subject->empty()) throw UsageError("--precedence takes no subject; leave one of them out");
    return *precedence ? list_precedence(globals) : explain(*subject, globals);
  };
}

}  // namespace kvcts::cli::explain_verb
