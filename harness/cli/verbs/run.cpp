// kvcts run: runs a selection, stores every result as it happens, and writes reports.
#include "cli/run/run.hpp"

#include <memory>

#include "cli/hosts/hosts.hpp"
#include "cli/hosts/pairs.hpp"
#include "cli/product.hpp"
#include "cli/slurm/slurm.hpp"
#include "cli/verbs/verbs.hpp"
#include "run/store/run.hpp"

namespace kvcts::cli::run_verb {

// One list: each option once, in the order of the help.
Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<RunOptions>();
  auto with = std::make_shared<std::vector<std::string>>();
  auto on = std::make_shared<std::string>();
  auto slurm = std::make_shared<slurm::SlurmOptions>();
  auto pairs = std::make_shared<std::string>();
  declare_selection(command, o->select);
  declare_subjects(command, o->select);
  command
      .add_option("--with", *with,
                  "Add suites of real connectors: vllm, sglang, stores, lmcache (comma-separated). Without their "
                  "environments cases are SKIPPED and the run is incomplete")
      .delimiter(',')
      .one_of({"vllm", "sglang", "stores", "lmcache"})
      .type_name("A,B");
  command.add_option("-j,--jobs", o->jobs, "Number of cases to run in parallel").show_default().range(1, 1024);
  command.add_option("--out", o->out, "Folder for the run (default: a new one in runs/)").type_name("DIR");
  auto resume = command.add_option("--resume", o->resume, "Resume the run in this folder").type_name("DIR");
  command.add_option("--seed", o->seed, "Use this seed in every case instead of its own").type_name("N");
  command
      .add_option("--require", o->require,
                  "Fail cases that need one of these and do not run: engines, their requirements, connectors, environments "
                  "(comma-separated)")
      .delimiter(',')
      .type_name("A,B");
  auto repeat =
      command.add_option("--repeat", o->repeat, "Run every case N times; a case that fails in only some tries is FLAKY")
          .type_name("N")
          .range(1, 100'000);
  command
      .add_option("--retry-failures", o->retries,
                  "Retry each failed case N times; it becomes FLAKY if a retry passes, never PASS. Skipped when more than "
                  "30 % of the cases failed")
      .type_name("N")
      .range(1, 1000)
      .excludes(repeat);
  command
      .add_option("--rotate", o->rotate,
                  "Record in FILE when each case last ran; --budget then prefers cases that never ran, changed, or failed "
                  "before, then the least recently run")
      .type_name("FILE");
  command
      .add_option("--max-failures", o->max_failures,
                  "Start no further case after N that did not end as expected; the rest is NOT_RUN until --resume")
      .type_name("N")
      .range(std::int64_t{1}, std::int64_t{1'000'000'000});
  // Read where the run's story is read: a store keeps the words of each session.
  command
      .add_flag(store::allow_incomplete_flag,
                "Exit with 0 instead of 5 when a planned case did not run; the headline still reports it")
      .no_value();
  command
      .add_option("--watch", o->watch_ms,
                  "Watch memory for late writes this long after each case (default: 1s in runs of up to 8 cases and for a "
                  "sample of longer ones; 0s where no writer is left)")
      .duration()
      .type_name("TIME");
  auto hosts_option =
      command
          .add_option("--hosts", o->hosts,
                      "Producer and consumer of each case on two hosts: nodes of the allocation that this runs in, or names "
                      "for ssh; NAME=ADDRESS chooses a rail")
          .delimiter(',')
          .type_name("A,B");
  auto on_option = command
                       .add_option("--on", *on,
                                   "Run shards as steps of one Slurm allocation: the one that this runs in, or a new one. "
                                   "--out is in a folder that all nodes share")
                       .one_of({"slurm"})
                       .type_name("slurm");
  command.add_option("--shards", slurm->shards, "Cut into N shards (default: two for each place of --jobs cores)")
      .type_name("N")
      .range(1, 10'000)
      .needs(on_option);
  command.add_option("--sbatch-option", slurm->sbatch, "Option of salloc or sbatch, e.g. --nodes=4; repeatable")
      .repeatable()
      .type_name("OPTION")
      .needs(on_option);
  command.add_flag("--print", slurm->print, "Print a script for sbatch that does the same, and run nothing")
      .needs(on_option);
  on_option.excludes(hosts_option);
  command
      .add_option("--pairs", *pairs,
                  "Run the selection over pairs of --hosts A,B,C,...: all of them, or as many as it takes to find one bad "
                  "host or link. Writes a matrix to --out")
      .one_of({"all", "find"})
      .type_name("all|find")
      .needs(hosts_option)
      .excludes(on_option);
  for (const char* flag : {"--shard", "--shard-times", "--budget", "--max-failures"})
    on_option.excludes(command.option(flag));
  command.add_flag("--hold", o->hold, "Keep a hung case alive so that you can attach a debugger");
  for (const char* flag :
       {"--suite",     "--engine", "--connector", "--store",          "--id",     "--where", "--failed", "--draw",
        "--draw-seed", "--cover",  "--shard",     "--shard-times",    "--budget", "--file",  "--with",   "--out",
        "--seed",      "--rotate", "--repeat",    "--retry-failures", "--on",     "--pairs"}) {
    resume.excludes(command.option(flag));
  }
  return [o, with, on, slurm, pairs, &globals] {
    o->json = globals.json;
    o->select.suites.insert(o->select.suites.end(), with->begin(), with->end());
    take_subjects(o->select);
    if (pairs->empty()) hosts::parse(o->hosts);  // wrong ones before anything else
    if (o->resume.empty() && o->select.suites.empty() && o->select.ids.empty() && o->select.files.empty() &&
        o->select.where.empty() && o->select.failed.empty()) {
      throw UsageError(
          "expected a selection: --suite, --engine, --connector, --store, --id, --where, --failed or --file (`kvcts list "
          "--help`), or --resume");
    }
    if (!pairs->empty()) return hosts::run_pairs(*o, *pairs);
    const bool of_slurm = !o->resume.empty() && slurm::unfinished(o->resume);
    o->cases = o->resume.empty() || of_slurm ? globals.cases : take_up(o->resume, globals.cases);
    const catalogue::Catalogue cat(catalogue::find_cases(o->cases), additions_here(o->cases));
    if (of_slurm) return slurm::resume(cat, o->resume, o->json);
    return on->empty() ? run_suite(cat, *o) : slurm::run(cat, *o, *slurm);
  };
}

}  // namespace kvcts::cli::run_verb
