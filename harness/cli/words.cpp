#include "cli/words.hpp"

#include "case/outcome.hpp"
#include "cli/glossary.hpp"

namespace kvcts::cli {
namespace {

const std::vector<Word>& headline_text() {
  static const std::vector<Word> all{
      {"headline", "incomplete",
       "A planned case did not run, or none ran at all. Exit status 5, unless something failed, too.",
       "The headline says why; `kvcts run --resume DIR` continues after a budget, `--allow-incomplete` exits with 0 "
       "instead."},
      {"headline", "optional",
       "Something this machine lacks that the suite accepts (key `optional` of cases/suites); the run is complete without "
       "those cases.",
       "`kvcts run --require NAME` makes it a failure."},
      {"headline", "left out", "Cases that `--budget` did not plan, because their estimated times do not fit.",
       "They are not part of the run; raise the budget or use shards."},
  };
  return all;
}

template <class Enum>
void add(std::vector<Word>& all, const char* kind, int count) {
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    all.push_back({kind, std::string(name(value)), std::string(meaning(value)), std::string(advice(value))});
  }
}

}  // namespace

const std::vector<Word>& words() {
  static const std::vector<Word> all = [] {
    std::vector<Word> w;
    add<Outcome>(w, "outcome", outcome_count);
    add<Verdict>(w, "verdict", verdict_count);
    add<Evidence>(w, "evidence", evidence_count);
    add<Phase>(w, "phase", phase_count);
    w.insert(w.end(), headline_text().begin(), headline_text().end());
    w.insert(w.end(), glossary().begin(), glossary().end());
    for (const FaultClass fault : fault_classes())
      w.push_back({"fault class", std::string(name(fault)), std::string(meaning(fault)), std::string(advice(fault))});
    return w;
  }();
  return all;
}

}  // namespace kvcts::cli
