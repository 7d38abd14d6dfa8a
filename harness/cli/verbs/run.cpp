// kvcts run: runs a selection, stores every result as it happens, reports.
#include "cli/run/run.hpp"

#include <memory>

#include "case/catalogue/certification.hpp"
#include "cli/verbs/verbs.hpp"
#include "run/store/run.hpp"

namespace kvcts::cli::run_verb {

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<RunOptions>();
  auto with = std::make_shared<std::vector<std::string>>();
  declare_selection(command, o->select);
  command
      .add_option("--with", *with,
                  "Suites of real connectors beside the others, comma separated: vllm, lmcache; without its environment the "
                  "cases are SKIPPED and the run is incomplete")
      .delimiter(',')
      .one_of({"vllm", "lmcache"})
      .type_name("A,B");
  command.add_option("-j,--jobs", o->jobs, "Cases at once").show_default().range(1, 1024);
  command.add_option("--out", o->out, "Folder of the run (default: a new one below runs/)").type_name("DIR");
  auto resume = command.add_option("--resume", o->resume, "Go on with the run in this folder").type_name("DIR");
  command.add_option("--seed", o->seed, "Seed of every case, instead of its own").type_name("N");
  command
      .add_option("--require", o->require,
                  "Engines, what they need, connectors or environments, comma separated: a case that needs one and does not "
                  "run is a failure")
      .delimiter(',')
      .type_name("A,B");
  auto repeat =
      command.add_option("--repeat", o->repeat, "Run every case N times; one that failed in some of its tries is FLAKY")
          .type_name("N")
          .range(1, 100'000);
  command
      .add_option("--retry-failures", o->retries,
                  "Run every case that failed N times more: FLAKY if one of them does not fail, never PASS; not where more "
                  "than 30 % of the cases failed")
      .type_name("N")
      .range(1, 1000)
      .excludes(repeat);
  command
      .add_option("--rotate", o->rotate,
                  "Remember in FILE what was run when; with --budget the choice is by it: never run, changed, failed "
                  "before, then what was run longest ago")
      .type_name("FILE");
  // Read where the run's story is read: a store keeps the words of each sitting.
  command
      .add_flag(store::allow_incomplete_flag,
                "End with 0 instead of 5 when something planned was not run; the headline still says so")
      .no_value();
  command
      .add_option("--watch", o->watch_ms,
                  "Look for late writes so long behind the end of a case (default: 1s for a run of up to 8 cases and for a "
                  "sample of a longer one, 0s where nobody is left to write)")
      .duration()
      .type_name("TIME");
  command.add_flag("--hold", o->hold, "Keep a hung case alive for a debugger");
  for (const char* flag : {"--suite", "--id", "--where", "--draw", "--draw-seed", "--cover", "--shard", "--budget", "--file",
                           "--with", "--out", "--seed", "--rotate", "--repeat", "--retry-failures"}) {
    resume.excludes(command.option(flag));
  }
  return [o, with, &globals] {
    o->json = globals.json;
    o->select.suites.insert(o->select.suites.end(), with->begin(), with->end());
    if (o->resume.empty() && o->select.suites.empty() && o->select.ids.empty() && o->select.files.empty() &&
        o->select.where.empty()) {
      throw UsageError("expected a selection: --suite, --id, --where or --file (`kvcts list --help`), or --resume");
    }
    o->cases = o->resume.empty() ? globals.cases : take_up(o->resume, globals.cases);
    const catalogue::Catalogue cat(catalogue::find_cases(o->cases), catalogue::additions_here());
    return run_suite(cat, *o);
  };
}

}  // namespace kvcts::cli::run_verb
