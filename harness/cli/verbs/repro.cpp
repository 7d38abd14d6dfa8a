// kvcts repro: runs one case alone, phase by phase, with the copy list and the first wrong bytes as coordinates.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "cli/devices.hpp"
#include "cli/product.hpp"
#include "cli/report/text.hpp"
#include "cli/run/fold.hpp"
#include "cli/run/plan.hpp"
#include "cli/scenario_text.hpp"
#include "cli/stored.hpp"
#include "cli/verbs/verbs.hpp"
#include "matrix/ids.hpp"
#include "process/sandbox/sandbox.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli::repro_verb {
namespace {

struct Options {
  std::string id, run;
  SelectOptions subjects;  ///< of which only these
  std::vector<std::string> files;
  std::optional<std::uint64_t> seed;
  bool hold{false}, as_run{false}, trace{false};
  int copies{16};
  std::int64_t repeat{1};
  std::optional<std::int64_t> watch_ms;  ///< --watch
};

std::string region_name(const std::vector<RegionRef>& regions, int number) {
  const auto at = static_cast<std::size_t>(number);
  return at < regions.size() ? regions[at].name : fmt::format("region {}", number);
}

/// "blocks 3 0 -> 1 2"; a request of one side alone: "producer's blocks 2".
std::string blocks_text(const Request& r) {
  if (r.producer_blocks.empty() && r.consumer_blocks.empty()) return "no blocks";
  if (r.consumer_blocks.empty()) return fmt::format("producer's blocks {}", fmt::join(r.producer_blocks, " "));
  if (r.producer_blocks.empty()) return fmt::format("consumer's blocks {}", fmt::join(r.consumer_blocks, " "));
  return fmt::format("blocks {} -> {}", fmt::join(r.producer_blocks, " "), fmt::join(r.consumer_blocks, " "));
}

void print_case(const ResolvedCase& c) {
  fmt::print("case      {}\n", c.id);
  if (!c.title.empty()) fmt::print("title     {}\n", report::visible(c.title));
  fmt::print("expected  {}\n", report::expected_text(c.expected));
  if (c.performer == Performer::machine) {
    fmt::print("arch {}, dtype {}, seed {}\n", c.arch, c.dtype, c.seed);
    for (const auto& line : scenario_lines(c.scenario)) fmt::print("{}\n", line);
    return;
  }
  fmt::print("arch {}, dtype {}, connector {}, engine {}, op {}, seed {}, {} deciding pass{}\n", c.arch, c.dtype,
             c.connector.name, c.engine.name, name(c.op), c.seed, c.passes, c.passes == 1 ? "" : "es");
  for (const Group& g : c.groups) {
    for (const auto& [side, cache] : {std::pair{"producer", &g.producer}, {"consumer", &g.consumer}}) {
      const auto& geometry = cache->ranks.front().geometry;
      fmt::print("{}  {}: {}; {} rank{}, {} layers, {} blocks of {} tokens, {} heads{}, head_dim {}\n", side, cache->layout,
                 cache->text, cache->ranks.size(), cache->ranks.size() == 1 ? "" : "s", geometry.layers, geometry.blocks,
                 geometry.block_size, geometry.heads, cache->ranks.size() == 1 ? "" : " per rank", geometry.head_dim);
    }
    for (const Request& r : g.requests)
      fmt::print("request   {} tokens, generation {}{}: {}\n", r.tokens, r.generation, r.transfer ? "" : ", not moved",
                 blocks_text(r));
  }
}

void print_plan(const ResolvedCase& c, const CaseResult& result, int most) {
  for (const auto& file : result.evidence_files) {
    if (file.kind != "plan") continue;
    const auto plan = nlohmann::json::parse(file.text, nullptr, false);
    if (!plan.is_object() || !plan.contains("sample")) return;
    const auto producer = regions(c, Side::producer), consumer = regions(c, Side::consumer);
    fmt::print("plan      {} copies, {} bytes{}\n", plan.value("copies", std::int64_t{0}),
               report::thousands(plan.value("bytes", std::int64_t{0})),
               plan.value("relayout", false) ? ", with relayout" : "");
    int shown = 0;
    for (const auto& copy : plan["sample"]) {
      if (++shown > most) break;
      // A copy is [src, src_offset, dst, dst_offset, bytes] or an object with those keys.
      const auto number = [&](std::size_t i, const char* key) {
        return copy.is_array() ? copy[i].get<std::int64_t>() : copy.value(key, std::int64_t{0});
      };
      fmt::print("  {} + {} -> {} + {}, {} bytes\n", region_name(producer, static_cast<int>(number(0, "src"))),
                 number(1, "src_offset"), region_name(consumer, static_cast<int>(number(2, "dst"))), number(3, "dst_offset"),
                 number(4, "bytes"));
    }
    if (const auto total = plan.value("copies", std::int64_t{0}); total > shown)
      fmt::print("  and {} more\n", total - std::min(shown, most));
    return;
  }
}

void print_result(const CaseResult& r) {
  if (!r.phases.empty()) fmt::print("phases   ");
  for (const PhaseTime& p : r.phases)
    fmt::print(" {} {}{}", name(p.phase), report::duration(p.ns), &p == &r.phases.back() ? "\n" : ",");
  if (r.checked_bytes > 0 && r.facts.value("scripted", false)) {
    fmt::print("bytes     {} checked; moved {}; wrong {}\n", report::thousands(r.checked_bytes),
               report::thousands(r.moved_bytes), report::thousands(r.wrong_bytes));
  } else if (r.checked_bytes > 0) {
    fmt::print("bytes     {} checked; planned {}, moved {}, expected {}; wrong {}\n", report::thousands(r.checked_bytes),
               report::thousands(r.planned_bytes), report::thousands(r.moved_bytes), report::thousands(r.expected_bytes),
               report::thousands(r.wrong_bytes));
  }
  for (const Finding& one : r.what_happened) fmt::print("happened  {}\n", report::visible(one.text));
  for (const WrongByte& w : r.first_wrong)
    fmt::print("  {} + {}: expected {}, found {}: {}\n", w.region, w.offset, w.expected, w.observed, w.where);
  constexpr int lines_shown = 60;                // of each piece of evidence; results.json has all that was kept
  constexpr std::size_t characters_shown = 160;  // of a line: C++ names of stacks can be thousands long
  for (const auto& file : r.evidence_files) {
    if (file.kind == "plan" || file.text.empty()) continue;
    fmt::print("{}\n", file.kind);
    std::size_t begin = 0;
    for (int line = 0; begin < file.text.size() && line < lines_shown; ++line) {
      const auto end = std::min(file.text.find('\n', begin), file.text.size());
      fmt::print("  | {}\n", report::cut(report::visible(file.text.substr(begin, end - begin)), characters_shown));
      begin = end + 1;
    }
  }
  const auto evidence = report::evidence_name(r);
  fmt::print("outcome   {}{}\n", report::ending_text(r), evidence.empty() ? "" : fmt::format(" ({})", evidence));
  if (!r.message.empty()) fmt::print("  {}\n", report::visible(r.message));
  if (!report::is_reported(r))
    fmt::print("diagnosis {}{}\n", r.diagnosis.exact ? "" : "(a guess) ", report::visible(r.diagnosis.text));
  for (std::size_t i = 1; i < r.diagnosis.causes.size(); ++i)
    fmt::print("  or       {}\n", report::visible(to_string(r.diagnosis.causes[i])));
  if (!r.diagnosis.what_to_do.empty()) fmt::print("look at   {}\n", report::visible(r.diagnosis.what_to_do));
  fmt::print("verdict   {}{}\n", name(r.verdict), r.waiver.empty() ? "" : " (waiver " + r.waiver + ")");
}

int status_of(const CaseResult& r) {
  if (r.outcome == Outcome::error || r.verdict == Verdict::error) return exit_own_error;
  if (store::is_failure(r.verdict)) return exit_unexpected;
  return store::was_executed(r.outcome) ? exit_as_expected : exit_incomplete;
}

/// Items of the plan: what ran before, then the case.
std::vector<std::size_t> order_of(const Plan& plan, const std::vector<std::string>& ids) {
  std::vector<std::size_t> order;
  for (const auto& id : ids) {
    const auto found =
        std::find_if(plan.items().begin(), plan.items().end(), [&](const Item& item) { return item.planned.id == id; });
    if (found != plan.items().end()) order.push_back(static_cast<std::size_t>(found - plan.items().begin()));
  }
  return order;
}

void print_watch(const ResolvedCase& c, const supervisor::Options& options) {
  const std::int64_t watched = supervisor::watch_ms(c, options);
  if (watched < 500) return;
  const std::string who = c.connector.kind == "program" ? "connector " + c.connector.name : "engine " + c.engine.name;
  fmt::print("watched   {} after its end{}\n", report::duration(watched * 1'000'000),
             options.watch_asked ? "" : ", because " + who + " could still write; --watch 0s skips this");
  std::fflush(stdout);
}

/// Runs the items in order, the last one until it fails.
CaseResult run_order(Plan& plan, const std::vector<std::size_t>& order, const ResolvedCase& c, const Options& o, bool json) {
  supervisor::Options options;
  options.devices = devices_for;
  options.hold = o.hold, options.trace_diagnosis = o.trace;
  if (!o.run.empty()) options.hidden = {std::filesystem::absolute(o.run).string()};
  options.watch_asked = o.watch_ms.has_value();
  options.watch_ms = o.watch_ms.value_or(options.watch_ms);
  if (!json) print_watch(c, options);
  options.keep_plans = true;
  supervisor::Handlers handlers;
  CaseResult result;
  const std::size_t chain = order.size() - 1;
  std::int64_t made = 0;
  bool seen = false;
  handlers.on_result = [&](std::size_t job, CaseResult&& r) {
    if (job < chain || seen || r.outcome == Outcome::not_run) return;
    plan.judge(r, plan.items()[order.back()]);
    ++made;
    seen = failed(r) || r.outcome == Outcome::error;
    result = std::move(r);
  };
  handlers.stop = [&] { return seen; };
  handlers.on_message = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const supervisor::Jobs jobs{chain + static_cast<std::size_t>(o.repeat),
                              [&](std::size_t i) { return plan.items()[order[std::min(i, chain)]].planned.id; },
                              [&](std::size_t i) { return plan.resolve(order[std::min(i, chain)]); }};
  if (supervisor::run_cases(jobs, options, handlers).interrupted) throw supervisor::Interrupted();
  if (!json && o.repeat > 1)
    fmt::print("tries     {}\n",
               seen ? fmt::format("try {} of up to {} failed", made, o.repeat) : report::tries_text(Tries{made, 0, 0, {}}));
  if (!json) print_plan(c, result, o.copies);
  return result;
}

void print_notes(const CaseResult& result, const std::optional<store::Row>& row, bool as_run) {
  if (row && !as_run && failed(row->result) && store::was_executed(result.outcome) && !failed(result))
    fmt::print("note      it ended {} in that run{}\n", report::ending_text(row->result),
               row->result.ran_before.empty() ? ": it does not always fail, --repeat N tries it N times"
                                              : ", after other cases in the same worker: --as-run runs them first");
  // What a sandbox refuses, libraries report in their own words.
  if (failed(result) && result.phase <= Phase::registration && !result.phases.empty() && process::why_no_sandbox().empty()) {
    const auto granted = result.facts.value("granted", std::vector<std::string>{});
    fmt::print(
        "sandbox   granted {}; KVCTS_SANDBOX=off tries without one, and reports/guide/isolation.md says what is in it\n",
        granted.empty() ? "nothing" : fmt::format("{}", fmt::join(granted, ", ")));
  }
}

int repro(Options o, const Globals& globals) {
  take_subjects(o.subjects);
  const catalogue::Catalogue cat(catalogue::find_cases(globals.cases), additions_here(globals.cases));
  if (matrix::is_matrix_id(o.id)) {
    matrix::Space space(cat);
    o.id = matrix::canonical_id(space, o.id);
  }
  const auto row = stored_case(o.run, o.id);
  if (o.as_run && !row) throw UsageError("--as-run needs --run DIR: the run whose order is replayed");

  matrix::Query query;
  query.ids = {o.id};
  for (const auto& file : o.files) query.files.emplace_back(file);
  std::vector<std::string> before;
  if (o.as_run) before = ran_before(store::RunReader::open(o.run), *row);
  for (const auto& id : before) query.ids.push_back(id);
  std::optional<std::uint64_t> seed = o.seed;
  if (!seed && row && row->decided) seed = row->result.seed;
  Plan plan(cat, query, {seed, {}});
  before.push_back(o.id);
  const std::vector<std::size_t> order = order_of(plan, before);
  if (order.empty() || plan.items()[order.back()].planned.id != o.id)
    throw UsageError(fmt::format("expected the id of a case, found '{}': {}", o.id, plan.selection().why_empty()));
  const Item& item = plan.items()[order.back()];
  if (row && row->planned.digest != item.planned.digest)
    fmt::print(stderr, "kvcts repro: warning: the data of this case have changed since that run (digest {} then, {} now)\n",
               row->planned.digest, item.planned.digest);

  CaseResult result;
  if (item.decided) {
    result = *item.decided;
    if (!globals.json) fmt::print("case      {}\n", result.id);
  } else {
    const ResolvedCase resolved = plan.resolve(order.back());
    if (!globals.json) {
      print_case(resolved);
      if (order.size() > 1) fmt::print("as run    after {} other cases in the same worker\n", order.size() - 1);
      std::fflush(stdout);
    }
    result = run_order(plan, order, resolved, o, globals.json);
  }
  if (globals.json) {
    fmt::print("{}\n", to_json(result).dump(2));
    return status_of(result);
  }
  print_result(result);
  print_notes(result, row, o.as_run);
  return status_of(result);
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<Options>();
  command.add_option("ID", o->id, "Case id").required();
  command.add_option("--file", o->files, "Case file that contains it, if it is not in cases/; repeatable")
      .type_name("YAML")
      .repeatable();
  declare_subjects(command, o->subjects);
  command.add_option("--run", o->run, "Run in which it failed: use its seed, and warn if its data changed since")
      .type_name("DIR");
  command.add_flag("--as-run", o->as_run, "First run what its worker ran before it in --run");
  command.add_option("--seed", o->seed, "Use this seed instead of its own").type_name("N");
  command.add_option("--copies", o->copies, "Number of planned copies to show").show_default().range(0, 64);
  command
      .add_option("--watch", o->watch_ms,
                  "Watch memory for late writes this long after the case (default: 1s; 0s where no writer is left)")
      .duration()
      .type_name("TIME");
  command.add_option("--repeat", o->repeat, "Run it until it fails, at most N times").type_name("N").range(1, 100'000);
  command.add_flag("--trace-diagnosis", o->trace, "Show what the search for a cause tried, with costs, and what fits");
  command.add_flag("--hold", o->hold, "Keep it alive when it hangs, so that you can attach a debugger");
  return [=, &globals] { return repro(*o, globals); };
}

}  // namespace kvcts::cli::repro_verb
