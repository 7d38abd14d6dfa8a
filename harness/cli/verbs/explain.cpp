// kvcts explain: what a word of the suite means.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/nearest.hpp"
#include "cli/verbs/verbs.hpp"
#include "cli/words.hpp"
#include "diagnose/precedence.hpp"
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

int list_words(const Globals& globals) {
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
  if (subject.empty()) return list_words(globals);
  std::vector<const Word*> found;
  for (const Word& w : words()) {
    if (folded(w.name) == folded(subject)) found.push_back(&w);
  }
  if (found.empty() && subject.find('/') != std::string::npos) return explain_case(subject, globals);
  if (found.empty()) {
    std::vector<std::string> names;
    for (const Word& w : words()) names.push_back(w.name);
    throw UsageError(
        fmt::format("expected a fault class, an outcome, a verdict, a phase, a kind of evidence or a case id, found '{}'{}",
                    subject, catalogue::suggestion(subject, names)));
  }
  if (globals.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Word* w : found) all.push_back(as_json(*w));
    fmt::print("{}\n", all.dump(2));
  } else {
    for (const Word* w : found) print(*w);
  }
  return exit_as_expected;
}

/// Which family of hypotheses names a fault when several explain every byte: the first.
int list_precedence(const Globals& globals) {
  const std::vector<std::string> families = script::family_names();
  if (globals.json) {
    fmt::print("{}\n", nlohmann::json(families).dump(2));
    return exit_as_expected;
  }
  for (std::size_t i = 0; i < families.size(); ++i) fmt::print("{:>2}  {}\n", i + 1, families[i]);
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto subject = std::make_shared<std::string>();
  command.add_option("SUBJECT", *subject,
                     "Fault class, outcome, verdict, phase, kind of evidence, or case id; none: the list of words");
  auto precedence = std::make_shared<bool>(false);
  command.add_flag("--precedence", *precedence,
                   "Families of explanations of a scripted failure, in the order in which they name it");
  return [=, &globals] {
    if (*precedence && !subject->empty()) throw UsageError("--precedence takes no subject; leave one of them out");
    return *precedence ? list_precedence(globals) : explain(*subject, globals);
  };
}

}  // namespace kvcts::cli::explain_verb
