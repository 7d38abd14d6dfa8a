#include "cli/words.hpp"

#include <array>
#include <utility>

#include "case/outcome.hpp"
#include "cli/glossary.hpp"

namespace kvcts::cli {
namespace {

using Text = std::pair<std::string_view, std::string_view>;  // meaning, advice

constexpr std::array<Text, outcome_count> outcomes{{
    {"Every byte of every region on both sides is right, including guards, padding and free blocks.", ""},
    {"Bytes are wrong, counts disagree, or the code under test raised an undeclared exception. A fault class names the "
     "cause.",
     "Read the diagnosis; `kvcts repro ID` shows the copies and the first wrong bytes as coordinates."},
    {"The code under test declined cleanly, before any byte moved.",
     "Right where the pair cannot be moved correctly; a finding where it can."},
    {"A phase passed its deadline. Stalled: no progress. Runaway: progress, but too slow to end in time.",
     "The result has the stacks and what the memory looked like; `kvcts repro ID --hold` keeps it alive for a debugger."},
    {"The process under test died or broke the protocol; the signal or exit status is given.",
     "The result has the phase, the last output and the bytes written until then."},
    {"Some tries of one case failed and some did not (`kvcts run --repeat`, `--retry-failures`). Never a pass.",
     "The result shown is that of the first failing try; its repro line repeats until the failure comes back."},
    {"Backend, architecture, engine or connector declare that they cannot do this; the constraint has the reason.",
     "Nothing was run. `kvcts list --reasons` shows the reasons."},
    {"This machine lacks something that the case needs; the result names it.",
     "`kvcts doctor` shows what is missing. The run is incomplete unless the suite lists it as optional; `kvcts run "
     "--require NAME` makes it a failure."},
    {"Time ran out, or the run was interrupted, before this case.",
     "The run is incomplete; `kvcts run --resume DIR` continues it."},
    {"The suite itself failed. This says nothing about the code under test.",
     "Please report it with the output of `kvcts repro ID`."},
}};

constexpr std::array<Text, verdict_count> verdicts{{
    {"The outcome is one that the case declares.", ""},
    {"The outcome is not one that the case declares.", "`kvcts repro ID` runs the case alone."},
    {"The case failed as a waiver in cases/waivers predicts, with reason, owner and last day.", ""},
    {"The case ended as declared, although a waiver predicts a failure.", "The defect may be fixed: remove the waiver."},
    {"A waiver covers the failure, but its last day has passed. Counts as a failure.",
     "Fix the defect or renew the waiver."},
    {"Not judged: the machine lacks something.", ""},
    {"Not judged: the case was not reached.", ""},
    {"Not judged: the suite itself failed.", ""},
}};

constexpr std::array<Text, evidence_count> evidences{{
    {"The case ran on this CPU with the facts of that architecture. No code of the architecture was executed.", ""},
    {"Code for the architecture was compiled, not executed.", ""},
    {"Code ran on a device of exactly that architecture, which the suite itself found on this machine.", ""},
}};

constexpr std::array<Text, phase_count> phases{{
    {"Names of the catalogue become numbers: layouts, block ids, expected outcome.", ""},
    {"The checker makes fresh memory files for every region of both sides.", ""},
    {"The checker poisons all memory and writes the producer's tags.", ""},
    {"The connector inspects its tensors; the engine registers the regions and meets its peer.", ""},
    {"The connector turns two caches and two block tables into copies.", ""},
    {"The engine receives the copies and moves the bytes.", ""},
    {"The suite polls the engine until it reports completion.", ""},
    {"A reader gathers keys and values as an attention kernel would.", ""},
    {"The checker compares every byte of every region with the oracle.", ""},
    {"The checker searches for the simplest fault that explains all observed bytes.", ""},
}};

const std::vector<Word>& headline_words() {
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

template <std::size_t N, typename Enum>
void add(std::vector<Word>& all, const char* kind, const std::array<Text, N>& texts, Enum) {
  for (std::size_t i = 0; i < N; ++i) {
    all.push_back(
        {kind, std::string(name(static_cast<Enum>(i))), std::string(texts[i].first), std::string(texts[i].second)});
  }
}

}  // namespace

const std::vector<Word>& words() {
  static const std::vector<Word> all = [] {
    std::vector<Word> w;
    add(w, "outcome", outcomes, Outcome{});
    add(w, "verdict", verdicts, Verdict{});
    add(w, "evidence", evidences, Evidence{});
    add(w, "phase", phases, Phase{});
    w.insert(w.end(), headline_words().begin(), headline_words().end());
    w.insert(w.end(), glossary().begin(), glossary().end());
    for (const FaultClass fault : fault_classes())
      w.push_back({"fault class", std::string(name(fault)), std::string(meaning(fault)), std::string(advice(fault))});
    return w;
  }();
  return all;
}

}  // namespace kvcts::cli
