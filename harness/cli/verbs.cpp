#include "cli/verbs/verbs.hpp"

namespace kvcts::cli {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table{
      {"list", "The cases of a selection; without one, the suites", list_verb::declare},
      {"run", "Runs a selection, stores every result as it happens, reports", run_verb::declare},
      {"repro", "Runs one case alone, phase by phase", repro_verb::declare},
      {"dump", "Bytes of a case in words: who is there, and who should be", dump_verb::declare},
      {"minimize", "The smallest case that fails as this one does, as a file", minimize_verb::declare},
      {"triage", "What the failures of a run have in common, and whether that holds", triage_verb::declare},
      {"check", "What will come of a pair of caches and a connector, before anything moves", check_verb::declare},
      {"describe", "What a tensor of some shape can be, and which fact would settle it", describe_verb::declare},
      {"report", "The reports of a run, from its store", report_verb::declare},
      {"compare", "What is new, fixed, vanished or slower from one run to another", compare_verb::declare},
      {"merge", "Shards of one plan, run in several places, become one run", merge_verb::declare},
      {"museum", "Published faults: how each ends, and whether all are caught and named", museum_verb::declare},
      {"rules", "How engines behave at the edges of what they promise, and what has changed", rules_verb::declare},
      {"conformance", "A transport plug-in's claims, and what its header demands, held against what it does",
       conformance_verb::declare},
      {"explain", "What a fault class, an outcome, a verdict, a kind of evidence or a case means", explain_verb::declare},
      {"sabotage", "How much of what is wrong on purpose would a suite catch, and name?", sabotage_verb::declare},
      {"challenge", "What a second party gives to a vendor before a run that is to be certified", challenge_verb::declare},
      {"certify", "Runs a profile with a product, and packs it for a second party", certify_verb::declare},
      {"verify", "Checks a package again: one line a check, one verdict", verify_verb::declare},
      {"key", "The key that signs certificates: new, show, rotate", key_verb::declare},
      {"golden", "Golden tensors: list, verify, show", golden_verb::declare},
      {"layouts", "The layouts of the catalogue, or one of them drawn", layouts_verb::declare},
      {"schema", "The keys of the files in cases/: JSON Schema or reference", schema_verb::declare},
      {"doctor", "What this machine has, and what is skipped for want of what", doctor_verb::declare},
  };
  return table;
}

}  // namespace kvcts::cli
