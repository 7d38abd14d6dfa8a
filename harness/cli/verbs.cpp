#include "cli/verbs/verbs.hpp"

namespace kvcts::cli {
namespace {

constexpr std::string_view cases = "Cases", failures = "Failures", suite = "The suite itself", certificates = "Certificates",
                           reference = "Reference";

constexpr std::string_view statuses_plain = "0 done, 2 wrong input";
constexpr std::string_view statuses_verdicts =
    "0 every verdict as expected, 1 some unexpected, 2 wrong input, 3 internal error, 4 nothing selected, 5 incomplete";

}  // namespace

// One table: the verbs, in the order of the help.
const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table{
      {cases, "list", "", "", "List the suites, or the cases of a selection before you run it",
       "list --suite smoke --where 'dtype == bf16'", "0 done, 2 wrong input, 4 nothing selected", list_verb::declare},
      {cases, "run", "", "", "Run a selection, store each result as it happens, and write the reports",
       "run --suite smoke --out runs/smoke", statuses_verdicts, run_verb::declare},
      {cases, "report", "", "", "Write the reports of a run again from its store, or print them for a CI system",
       "report runs/smoke --for markdown", statuses_verdicts, report_verb::declare},
      {cases, "compare", "", "", "Compare two runs to see what is new, fixed, missing or slower",
       "compare runs/before runs/after", "0 nothing new fails, 1 something does, 2 wrong input", compare_verb::declare},
      {cases, "history", "", "", "Keep many runs in one file: new, flaky and slow cases, and since which night",
       "history show new --since 2026-11-01", statuses_plain, history_verb::declare},
      {cases, "merge", "", "", "Merge the shards of one plan into one run, to get one report",
       "merge runs/whole runs/1 runs/2 runs/3", statuses_verdicts, merge_verb::declare},
      {failures, "repro", "", "", "Run one case alone, phase by phase, to see what went wrong",
       "repro 'seeds/xformers-t4#wrong-inner-order'",
       "0 verdict as expected, 1 unexpected, 2 wrong input, 3 internal error, 5 it did not run", repro_verb::declare},
      {failures, "repro", "--bytes", "dump",
       "Show the bytes of a region in words: which element is there, and which belongs there",
       "repro --bytes seeds/xformers-t4 --region consumer/g0/r0/kv.L0", statuses_plain, dump_verb::declare},
      {failures, "explain", "", "", "Explain a word of the output, a case, or anything in cases/", "explain axis-permuted",
       statuses_plain, explain_verb::declare},
      {failures, "explain", "--schema", "schema", "Show the keys of a kind of YAML file, as JSON Schema or as a table",
       "explain --schema case --reference", statuses_plain, schema_verb::declare},
      {failures, "minimize", "", "",
       "Shrink a failing case to the smallest one that fails alike, to read it or to report it",
       "minimize museum/m174-ucx-10671", "0 done, 2 wrong input, or the case does not fail", minimize_verb::declare},
      {reference, "check", "", "", "Predict whether two caches fit through a connector, before anything moves",
       "check --producer vllm-0.25.1:flash_attn --consumer sglang-0.5.9:fa3",
       "0 compatible, 10 compatible with conversion, 11 refused, 12 silently wrong, 13 ambiguous; of several archs the "
       "worst",
       check_verb::declare},
      {reference, "layouts", "", "", "List the layouts, or draw one: tensors, strides, and who is in which byte",
       "layouts vllm-xformers", statuses_plain, layouts_verb::declare},
      {reference, "layouts", "--shape", "describe",
       "Find every layout that a tensor of some shape can be, and the fact that would settle it",
       "layouts --shape 2,9,16,8,64 --dtype fp16", "0 one reading, 1 no layout fits, 2 wrong input, 13 ambiguous",
       describe_verb::declare},
      {reference, "golden", "", "", "List, verify or show golden tensors", "golden verify vllm-fa-nhd",
       "0 done, 1 a check failed, 2 wrong input, 4 nothing selected", golden_verb::declare},
      {reference, "doctor", "", "", "Show what this machine supports, and which cases it will skip", "doctor",
       statuses_plain, doctor_verb::declare},
      {suite, "conformance", "", "", "Test a transport plug-in against its claims and its header", "conformance nixl-tcp",
       "0 it conforms, 1 something is broken, 2 wrong input", conformance_verb::declare},
      {suite, "conformance", "--rules", "rules", "Test how engines behave at the edges of their API, to notice changes",
       "conformance --rules --engine ucx-tcp",
       "0 as stated, 1 a rule changed, 2 wrong input, 4 nothing selected, 5 nothing ran", rules_verb::declare},
      {suite, "inject", "", "sabotage", "Measure how many injected faults a suite detects and names",
       "inject --suite smoke --fault 'transport/*'", "0 every fault detected, 1 some not, or a false alarm, 2 wrong input",
       sabotage_verb::declare},
      {certificates, "certify", "", "", "Run a profile with a product, and pack the evidence for a second party",
       "certify --profile core --product product.yaml --key vendor.key --out acme.kvcert",
       "0 certified, 1 a case failed, 2 wrong input, 3 internal error, 5 incomplete", certify_verb::declare},
      {certificates, "challenge", "", "",
       "Write a challenge that a vendor's run has to answer, so that it cannot be prepared", "challenge --negatives 24",
       statuses_plain, challenge_verb::declare},
      {certificates, "verify", "", "", "Check a certificate's evidence again: one line per check, one verdict",
       "verify acme.kvcert --key vendor.pem --replay 5",
       "0 accepted, 1 rejected, 2 wrong input, 5 something was not checked", verify_verb::declare},
      {certificates, "key", "", "", "Make, show or rotate the key that signs certificates", "key new vendor.key",
       statuses_plain, key_verb::declare},
  };
  return table;
}

}  // namespace kvcts::cli
