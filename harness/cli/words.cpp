#include "cli/words.hpp"

#include <array>
#include <utility>

#include "case/outcome.hpp"

namespace kvcts::cli {
namespace {

using Text = std::pair<std::string_view, std::string_view>;  // meaning, advice

constexpr std::array<Text, outcome_count> outcomes{{
    {"Every byte of every region, on both sides, is what the oracle says, guards, padding and free blocks included.", ""},
    {"Bytes are wrong, the counts disagree, or the code under test raised an untyped exception. A fault class names the "
     "cause.",
     "Read the diagnosis; `kvcts repro ID` shows the copy list and the first wrong bytes in logical coordinates."},
    {"The code under test said no, cleanly and before any byte moved.",
     "Right where the pair cannot be moved correctly; a finding where it can."},
    {"A phase passed its deadline. Stalled: progress stood still. Runaway: it went on and could not have ended in time.",
     "The result says what the data looked like and has the stacks; `kvcts repro ID --hold` keeps it alive for a debugger."},
    {"The process under test died or broke the protocol; the signal or exit status is given.",
     "The result has the phase, the last output and what had been written until then."},
    {"Of several tries of one case (`kvcts run --repeat`, `--retry-failures`) some failed and some did not. Never a pass, "
     "whatever the last try did.",
     "The rest of the result is that of the first try that failed; its repro line tries as often as it takes to see it "
     "again."},
    {"Backend, architecture, engine or connector declare that they cannot do this; the constraint has its reason.",
     "Nothing was run. `kvcts list` shows the reasons."},
    {"This machine lacks something that the case needs; it is named.",
     "`kvcts doctor` says what is missing. The run is incomplete unless the case's suite lists that as optional; `kvcts run "
     "--require NAME` makes it a failure."},
    {"The clock ran out or the run was interrupted before this case.",
     "The run is incomplete; `kvcts run --resume DIR` goes on."},
    {"The suite itself failed. It says nothing about the code under test.",
     "Report it with the output of `kvcts repro ID`."},
}};

constexpr std::array<Text, verdict_count> verdicts{{
    {"The outcome is one that the case declares.", ""},
    {"The outcome is none that the case declares.", "`kvcts repro ID` runs it alone."},
    {"The outcome is not as declared, and a waiver of cases/waivers covers it, with reason, owner and expiry.", ""},
    {"The outcome is as declared although a waiver expects otherwise.", "The defect may be mended: remove the waiver."},
    {"A waiver covers the outcome, but its date has passed. Counts as a failure.", "Mend the defect or renew the waiver."},
    {"Nothing was judged: the machine lacks something.", ""},
    {"Nothing was judged: the case was not reached.", ""},
    {"Nothing was judged: the suite itself failed.", ""},
}};

constexpr std::array<Text, evidence_count> evidences{{
    {"The case ran on this machine's CPU with the facts of that architecture. No code of the architecture was executed.",
     ""},
    {"Code for the architecture was compiled, not executed.", ""},
    {"Code ran on a device of that very architecture, which the suite itself found on this machine.", ""},
}};

constexpr std::array<Text, phase_count> phases{{
    {"Names of the catalogue become numbers: layouts, block ids, expected outcome.", ""},
    {"The checker makes fresh memory files for every region of both sides.", ""},
    {"The checker poisons all memory and writes the tags of the producer.", ""},
    {"The connector looks at its tensors; the engine registers the regions and meets its peer.", ""},
    {"The connector turns two caches and two lists of block ids into copies.", ""},
    {"The engine is given the copies and moves bytes.", ""},
    {"The engine is asked until it says that all is done.", ""},
    {"A reader gathers keys and values as an attention kernel would.", ""},
    {"The checker compares every byte of every region with the oracle.", ""},
    {"The checker looks for the simplest fault that explains all bytes that were observed.", ""},
}};

const std::vector<Word>& headline_words() {
  static const std::vector<Word> all{
      {"headline", "incomplete",
       "Something planned was not run, or nothing ran at all. Exit status 5, unless something is wrong as well.",
       "The headline says why; `kvcts run --resume DIR` goes on after a budget, `--allow-incomplete` ends with 0 instead."},
      {"headline", "optional",
       "A lack of this machine that the case's suite accepts (key `optional` of cases/suites): without those cases it is "
       "complete.",
       "`kvcts run --require NAME` makes it a failure."},
      {"headline", "left out",
       "Cases of the selection that `--budget` did not plan, because their estimated times do not fit.",
       "They are no part of the run; raise the budget, or take shards."},
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
    for (const FaultClass& c : fault_classes())
      w.push_back({"fault class", std::string(c.name), std::string(c.meaning), std::string(c.check)});
    return w;
  }();
  return all;
}

}  // namespace kvcts::cli
