#include "cli/verbs/verbs.hpp"

namespace kvcts::cli {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table{
      {"list", "The cases of a selection; without one, the suites", declare_list},
      {"run", "Runs a selection, stores every result as it happens, reports", declare_run},
      {"repro", "Runs one case alone, phase by phase", declare_repro},
      {"dump", "Bytes of a case in words: who is there, and who should be", declare_dump},
      {"minimize", "The smallest case that fails as this one does, as a file", declare_minimize},
      {"triage", "What the failures of a run have in common, and whether that holds", declare_triage},
      {"check", "What will come of a pair of caches and a connector, before anything moves", declare_check},
      {"describe", "What a tensor of some shape can be, and which fact would settle it", declare_describe},
      {"report", "The reports of a run, from its store", declare_report},
      {"museum", "Published faults: how each ends, and whether all are caught and named", declare_museum},
      {"rules", "How engines behave at the edges of what they promise, and what has changed", declare_rules},
      {"conformance", "A transport plug-in's claims, and what its header demands, held against what it does", declare_conformance},
      {"explain", "What a fault class, an outcome, a verdict, a kind of evidence or a case means", declare_explain},
      {"sabotage", "How much of what is wrong on purpose would a suite catch, and name?", declare_sabotage},
      {"golden", "Golden tensors: list, verify, show", declare_golden},
      {"layouts", "The layouts of the catalogue, or one of them drawn", declare_layouts},
      {"schema", "The keys of the files in cases/: JSON Schema or reference", declare_schema},
      {"doctor", "What this machine has, and what is skipped for want of what", declare_doctor},
  };
  return table;
}

}  // namespace kvcts::cli
