#include "cli/run/run.hpp"
#include "cli/hosts/hosts.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <unordered_map>

#include "case/evidence.hpp"
#include "cli/devices.hpp"
#include "cli/doctor/doctor.hpp"
#include "cli/exit.hpp"
#include "cli/history/page.hpp"
#include "cli/provenance.hpp"
#include "cli/report/compare.hpp"
#include "cli/report/console.hpp"
#include "cli/report/phases.hpp"
#include "cli/report/picture.hpp"
#include "cli/report/repro.hpp"
#include "cli/report/summary.hpp"
#include "cli/report/text.hpp"
#include "cli/report/write.hpp"
#include "cli/run/alone.hpp"
#include "cli/run/fold.hpp"
#include "cli/run/plan.hpp"
#include "cli/run/rotation.hpp"
#include "cli/stored.hpp"
#include "process/installation.hpp"
#include "process/procfs.hpp"
#include "run/store/store.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {

namespace fs = std::filesystem;

std::vector<std::string> command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> argv;
  for (std::string word; std::getline(in, word, '\0');) argv.push_back(word);
  return argv;
}

namespace {

using Clock = std::chrono::steady_clock;

/// The cases that go to the supervisor. Those that share an execution (they differ only in arch) are run once.
struct Queue {
  std::vector<std::size_t> leaders;                                   ///< items
  std::unordered_map<std::string, std::vector<std::size_t>> members;  ///< execution -> items, the leader first
};

Queue queue_of(const Plan& plan, const std::set<std::string>& wanted) {
  Queue queue;
  for (std::size_t i = 0; i < plan.items().size(); ++i) {
    const Item& item = plan.items()[i];
    if (item.decided || !wanted.contains(item.planned.id)) continue;
    auto& members = queue.members[item.planned.execution];
    if (members.empty()) queue.leaders.push_back(i);
    members.push_back(i);
  }
  return queue;
}

/// The result of an execution as the result of one of the cases that share it.
CaseResult as_member(const CaseResult& result, const Item& item, const Plan& plan, const catalogue::Catalogue& catalogue) {
  CaseResult own = result;
  own.id = item.planned.id;
  own.case_digest = item.planned.digest;
  if (own.id != result.id) {
    own.facts.update(plan.selection().facts(item.selected));
    const CaseSpec spec = plan.selection().spec(item.selected);
    const auto* engine = catalogue.engines().find(spec.engine);
    own.evidence = evidence_of(own.facts.value("engine_claims", nlohmann::json()), spec.arch,
                               [&] { return devices_for(engine ? engine->plugin : ""); });
  }
  return own;
}

class Run {
 public:
  Run(const catalogue::Catalogue& catalogue, const RunOptions& options, Plan& plan, store::RunStore& store,
      Rotation* rotation)
      : catalogue_(catalogue),
        options_(options),
        plan_(plan),
        store_(store),
        rotation_(rotation),
        out_(options.json || options.aside ? std::cerr : std::cout),
        terminal_(report::terminal_of(options.json || options.aside ? STDERR_FILENO : STDOUT_FILENO)),
        console_(out_, terminal_) {}

  /// Runs what has no result yet. `tonight`: what a rotation chose, to be said; or "".
  void sit(const std::string& tonight) {
    std::set<std::string> wanted;
    for (const auto& planned : store_.missing()) wanted.insert(planned.id);
    const auto planned = static_cast<std::int64_t>(plan_.items().size());
    console_.begin(short_name(options_.select), planned, planned - static_cast<std::int64_t>(wanted.size()));
    if (!tonight.empty()) console_.log(tonight);
    for (const Item& item : plan_.items()) {
      if (!item.decided || !wanted.contains(item.planned.id)) continue;
      store_.record(*item.decided);
      finished(*item.decided);
    }
    Queue queue = queue_of(plan_, wanted);
    long_first(queue);
    supervisor::Summary summary;
    if (!queue.leaders.empty()) summary = supervise(queue, options_.repeat, false);
    std::string note = tonight;
    if (options_.retries > 0 && !summary.interrupted && stopped_.empty() && !failure_) {
      std::string retried;
      const Queue again = failed_queue(retried);
      if (!retried.empty()) console_.log(retried);
      note += (note.empty() || retried.empty() ? "" : "; ") + retried;
      if (!again.leaders.empty()) summary = supervise(again, options_.retries, true);
    }
    if (!summary.interrupted && stopped_.empty() && !failure_)
      guarded([&] {
        if (const std::string words = try_alone(plan_, store_, supervisor_options()); !words.empty()) console_.log(words);
      });
    console_.end();
    if (failure_) std::rethrow_exception(failure_);
    for (const auto& left : summary.left_behind) fmt::print(stderr, "kvcts run: a process could not be ended: {}\n", left);
    if (summary.interrupted) {
      store_.finish(store::Ending::interrupted, "interrupted");
    } else if (!stopped_.empty()) {
      fail_required(stopped_);
      store_.finish(store::Ending::budget, stopped_);
    } else {
      store_.finish(store::Ending::complete, note);
    }
  }

  std::ostream& out() { return out_; }
  const report::Terminal& terminal() const { return terminal_; }

 private:
  /// What takes long begins first, so that the end of a run is not one executor waiting for it. The others stay in the order
  /// of the plan, where cases of one engine stand together.
  void long_first(Queue& queue) const {
    constexpr double long_s = 2;
    std::vector<std::pair<double, std::size_t>> slow;
    std::erase_if(queue.leaders, [&](std::size_t leader) {
      const double seconds = seconds_of(plan_, plan_.items()[leader], rotation_);
      if (seconds >= long_s) slow.emplace_back(seconds, leader);
      return seconds >= long_s;
    });
    std::stable_sort(slow.begin(), slow.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::size_t> leaders;
    for (const auto& [seconds, leader] : slow) leaders.push_back(leader);
    leaders.insert(leaders.end(), queue.leaders.begin(), queue.leaders.end());
    queue.leaders = std::move(leaders);
  }

  supervisor::Options supervisor_options() const {
    supervisor::Options options;
    options.devices = devices_for;
    options.jobs = options_.jobs;
    options.hold = options_.hold;
    options.hidden = options_.hidden;
    options.hidden.push_back(fs::absolute(store_.directory()).string());
    options.watch_asked = options_.watch_ms.has_value();
    options.watch_ms = options_.watch_ms.value_or(options.watch_ms);
    options.view = options_.view;
    options.digest = options_.digest;
    options.hosts = hosts::parse(options_.hosts);
    return options;
  }

  /// Runs every leader `tries` times, all tries of one after another. `retry`: on top of the result that the store has.
  supervisor::Summary supervise(const Queue& queue, std::int64_t tries, bool retry) {
    const auto leader_of = [&](std::size_t job) { return queue.leaders[job / static_cast<std::size_t>(tries)]; };
    const supervisor::Jobs jobs{queue.leaders.size() * static_cast<std::size_t>(tries),
                                [&](std::size_t i) { return plan_.items()[leader_of(i)].planned.id; },
                                [&](std::size_t i) { return plan_.resolve(leader_of(i)); }};
    supervisor::Options options = supervisor_options();
    options.tick_ms = 50;
    supervisor::Handlers handlers;
    handlers.on_result = [&](std::size_t job, CaseResult&& result) {
      // Not begun: the store has no result of it, so that --resume runs it.
      if (result.outcome == Outcome::not_run) return;
      const std::size_t leader = leader_of(job);
      take(std::move(result), leader, queue.members.at(plan_.items()[leader].planned.execution), tries, retry);
    };
    handlers.on_tick = [&](const std::vector<supervisor::Running>& running) {
      const auto slowest = std::min_element(running.begin(), running.end(),
                                            [](const auto& a, const auto& b) { return a.since_ns < b.since_ns; });
      // CLOCK_MONOTONIC is what steady_clock reads.
      if (slowest == running.end())
        console_.slowest("", {});
      else
        // A comparison takes milliseconds; what takes long in this phase is the diagnosis.
        console_.slowest(slowest->id, Clock::time_point(std::chrono::nanoseconds(slowest->since_ns)),
                         slowest->phase == Phase::compare ? "diagnosing" : "");
      guarded([&] { store_.tick(); });
      console_.tick();
    };
    handlers.on_message = [&](const std::string& line) { console_.log(line); };
    handlers.stop = [&] {
      if (stopped_.empty()) stopped_ = why_stop(retry);
      return !stopped_.empty() || failure_ != nullptr;
    };
    const supervisor::Summary summary = supervisor::run_cases(jobs, options, handlers);
    open_.clear();  // what an interruption left half tried: where something failed, it is stored
    return summary;
  }

  /// Why no further case is started; "" = there is no reason. A retry is no further case.
  std::string why_stop(bool retry) const {
    if (options_.select.budget > 0 && Clock::now() > end_)
      return fmt::format("budget of {} s used up", options_.select.budget);
    if (retry || options_.max_failures == 0 || failures_ < options_.max_failures) return "";
    return fmt::format("stopped after {} (--max-failures)", report::plural(options_.max_failures, "failure"));
  }

  void finished(const CaseResult& result) {
    console_.finished(result);
    failures_ += store::ended_wrong(result.outcome, result.verdict);
  }

  /// Tries of one execution on their way: of each of the cases that share it.
  struct Open {
    std::vector<Fold> folds;
    std::int64_t seen{0};
    bool stored{false}, drawn{false};
  };

  void take(CaseResult result, std::size_t leader, const std::vector<std::size_t>& members, std::int64_t tries, bool retry) {
    Open& open = open_[leader];
    if (open.folds.empty()) {
      open.folds.assign(members.size(), Fold(retry));
      open.stored = retry;
      for (std::size_t m = 0; retry && m < members.size(); ++m)
        guarded([&] { open.folds[m].add(store_.reader().find(plan_.items()[members[m]].planned.id)->result); });
    }
    if (retry || open.drawn)
      result.picture = nullptr, report::take_plan(result);  // the first failure has the drawing
    else
      draw(result, leader);
    ++open.seen;
    bool failed_now = false;
    for (std::size_t m = 0; m < members.size(); ++m) {
      CaseResult own = as_member(result, plan_.items()[members[m]], plan_, catalogue_);
      if (!options_.select.shard.empty()) own.facts["host"] = host_;
      plan_.judge(own, plan_.items()[members[m]]);
      failed_now = failed_now || (failed(own) && open.folds[m].failures() == 0);
      open.folds[m].add(own);
    }
    open.drawn = open.drawn || failed_now;
    const bool last = open.seen == tries;
    // A failure is stored when it is seen: whatever ends this process, it is not forgotten.
    if (!last && !failed_now && !retry) return;
    for (std::size_t m = 0; m < members.size(); ++m) {
      std::optional<CaseResult> whole = open.folds[m].whole();
      if (!whole) continue;
      if (whole->tries.made > 1) plan_.judge(*whole, plan_.items()[members[m]]);
      guarded([&] { open.stored ? store_.replace(*whole) : store_.record(*whole); });
      if (last && !retry) finished(*whole);
      if (rotation_ != nullptr) rotation_->saw(*whole, store::now_ms());
    }
    open.stored = true;
    if (last) open_.erase(leader);
  }

  /// The executions that failed in this run, unless there are too many; `note` says how many and what becomes of them.
  Queue failed_queue(std::string& note) {
    std::int64_t ran = 0, failures = 0;
    std::set<std::string> wanted;
    store_.reader().for_each([&](const store::Row& row) {
      const CaseResult& r = row.result;
      if (!row.decided || !store::was_executed(r.outcome)) return;
      ++ran;
      if (!store::is_failure(r.verdict)) return;
      ++failures;
      if (r.tries.made == 0) wanted.insert(row.planned.id);
    });
    if (failures == 0) return {};
    if (ran > 1 && static_cast<double>(failures) > most_failures_retried * static_cast<double>(ran)) {
      note = fmt::format("not retried: {} of {} failed, more than {:.0f} %", report::thousands(failures),
                         report::plural(ran, "case"), 100 * most_failures_retried);
      return {};
    }
    Queue queue = queue_of(plan_, wanted);
    note = fmt::format("{} retried, {}", report::plural(std::ssize(wanted), "failed case"),
                       options_.retries == 1 ? "once" : fmt::format("{} times each", options_.retries));
    return queue;
  }

  /// What --require names and the clock left out is stored as a failure; a later session may still run it.
  void fail_required(const std::string& reason) {
    std::set<std::string> left;
    for (const auto& planned : store_.missing()) left.insert(planned.id);
    for (const Item& item : plan_.items()) {
      if (!left.contains(item.planned.id) || !plan_.required(item)) continue;
      CaseResult result;
      result.id = item.planned.id;
      result.outcome = Outcome::not_run;
      result.message = reason;
      result.case_digest = item.planned.digest;
      result.execution = item.planned.execution;
      result.facts = plan_.selection().facts(item.selected);
      plan_.judge(result, item);
      store_.record(result);
    }
  }

  /// A drawing for a failure, but not for the thousandth of its kind: no one looks at that, and drawings take more room than
  /// results.
  void draw(CaseResult& result, std::size_t item) {
    constexpr int most = 50;
    const auto plan = report::take_plan(result);
    if (!report::has_picture(result.outcome) || ++drawn_[report::ending_text(result)] > most) {
      result.picture = nullptr;
      return;
    }
    guarded([&] { report::add_picture(plan_.resolve(item), plan, result); });
  }

  /// The supervisor's loop is no place for exceptions: the first is kept, the run stops, and it is thrown at the end.
  template <class Function>
  void guarded(Function&& function) {
    if (failure_) return;
    try {
      function();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  const catalogue::Catalogue& catalogue_;
  const RunOptions& options_;
  Plan& plan_;
  store::RunStore& store_;
  Rotation* rotation_;
  std::ostream& out_;
  report::Terminal terminal_;
  report::ConsoleReporter console_;
  std::unordered_map<std::string, int> drawn_;  ///< by how it ended
  std::unordered_map<std::size_t, Open> open_;  ///< by leader
  std::exception_ptr failure_;
  const std::chrono::time_point<Clock, std::chrono::duration<double>> end_{
      Clock::now() + std::chrono::duration<double>(options_.select.budget)};
  const std::string host_{process::host_name()};
  std::int64_t failures_{0};  ///< of this session
  std::string stopped_;       ///< why it started no further case
};

/// What a session needs to run the cases of its run again, and its --resume to go on.
report::Repro repro_of(const RunOptions& options, const matrix::Query& query) {
  report::Repro repro = report::repro_here(options.cases);
  for (const auto& file : query.files) repro.files.push_back(fs::absolute(file).lexically_normal().string());
  repro.seed = options.seed.value_or(0);
  return repro;
}

/// The store of the run and the plan it was made with.
store::RunStore open_store(const RunOptions& options, const matrix::Query& query, const Plan& plan, std::int64_t left_out) {
  if (!options.resume.empty()) return opening([&] { return store::RunStore::open(options.resume, command_line()); });
  store::RunInfo info;
  info.suite = short_name(options.select);
  info.selection = to_text(options.select);
  info.seed = options.seed.value_or(0);
  info.version = KVCTS_VERSION;
  info.left_out = left_out;
  info.rotate = options.rotate;
  info.repeat = options.repeat;
  info.retries = options.retries;
  if (plan.selection().whole() > 0) {
    SelectOptions whole = options.select;
    whole.shard.clear(), whole.shard_times.clear();
    info.part = {{"shard", query.shard},
                 {"shards", query.shards},
                 {"whole", plan.selection().whole()},
                 {"selection", to_text(whole)},
                 {"places", plan.places()}};
    if (plan.selection().cut() != 0) info.part["times"] = fmt::format("{:016x}", plan.selection().cut());
  }
  info.machine = doctor::machine();
  info.provenance = provenance(catalogue::find_cases(options.cases), process::golden_folder());
  info.repro = report::to_json(repro_of(options, query));
  std::string folder_name = info.suite;
  for (char& c : folder_name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '-';
  const fs::path directory = options.out.empty() ? store::new_run_directory("runs", folder_name) : fs::path(options.out);
  auto store = opening([&] { return store::RunStore::create(directory, info, command_line()); });
  std::vector<store::PlannedCase> planned;
  planned.reserve(plan.items().size());
  for (const Item& item : plan.items()) planned.push_back(item.planned);
  store.plan(planned);
  return store;
}

/// The items that a run that is taken up has planned, by item.
std::vector<bool> planned_in(const store::RunReader& reader, const Plan& plan) {
  std::set<std::string> planned;
  reader.for_each([&](const store::Row& row) { planned.insert(row.planned.id); });
  std::vector<bool> out;
  for (const Item& item : plan.items()) out.push_back(planned.contains(item.planned.id));
  return out;
}

int print_reports(const store::RunReader& reader, const fs::path& directory, std::ostream& out,
                  const report::Terminal& terminal, bool json, const catalogue::Catalogue* catalogue,
                  const report::Around& around = {}) {
  const report::RunView view = report::load(reader);
  std::optional<matrix::Space> space;
  if (catalogue) space.emplace(*catalogue);
  const report::Files files = report::write_reports(reader, view, directory, space ? &*space : nullptr, around);
  if (json) {
    report::write_json(reader, view, std::cout);
  } else {
    out << fmt::format("results in {}: {}, {}, {}\n", directory.string(), files.html.filename().string(),
                       files.junit.filename().string(), files.json.filename().string());
    report::print_summary(out, view, terminal);
  }
  std::cout.flush();
  return view.exit_status;
}

}  // namespace

std::string take_up(const std::filesystem::path& directory, const std::string& cases) {
  const store::RunInfo info = opening([&] { return store::RunReader::open(directory).info(); });
  if (info.repro.empty()) return cases;  // a run of an earlier version
  const report::Repro began = report::repro_from_json(info.repro), now = report::repro_here(cases);
  const auto refuse = [&](const std::string& began_with, const std::string& here) {
    throw UsageError(
        fmt::format("the run in {} began with {}, this sitting has {}: its results would not be of one kind; give what it "
                    "began with, or start a new run",
                    directory.string(), began_with, here));
  };
  for (const auto& [name, value] : now.environment) {
    const auto known = began.environment.find(name);
    if (known == began.environment.end()) refuse("no " + name, name + "=" + value);
    if (known->second != value) refuse(name + "=" + known->second, name + "=" + value);
  }
  for (const auto& [name, value] : began.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (cases.empty()) return began.cases;
  std::error_code none;
  const fs::path first = catalogue::find_cases(began.cases);
  if (!fs::equivalent(first, catalogue::find_cases(cases), none))
    refuse("the case data in " + first.string(), "those in " + cases);
  return cases;
}

int run_suite(const catalogue::Catalogue& catalogue, RunOptions options) {
  bool by_store = false;
  if (!options.resume.empty()) {
    const store::RunInfo info = opening([&] { return store::RunReader::open(options.resume).info(); });
    options.select = selection_from_text(info.selection);
    if (info.seed != 0) options.seed = info.seed;
    options.repeat = info.repeat;
    options.retries = info.retries;
    options.rotate = info.rotate;
    // The times may be others by now: the store knows what this shard had planned.
    by_store = !options.rotate.empty() || !options.select.shard_times.empty();
    if (!options.select.shard_times.empty()) options.select.shard.clear(), options.select.shard_times.clear();
  }
  matrix::Query query = query_of(options.select);
  query.budget_s = options.rotate.empty() && !by_store ? query.budget_s / static_cast<double>(options.repeat) : 0;
  Plan plan(catalogue, query, {options.seed, options.require});
  if (plan.items().empty()) throw NothingSelected(plan.selection().why_empty());
  if (options.amend) options.amend(plan);
  std::optional<Rotation> rotation;
  if (!options.rotate.empty()) rotation.emplace(options.rotate);
  std::int64_t left_out = plan.selection().left_out();
  std::string tonight;
  if (rotation && options.resume.empty()) {
    const Tonight chosen = choose(plan, *rotation, options.select.budget, options.jobs, options.repeat);
    plan.keep(chosen.kept);
    left_out = chosen.left_out;
    tonight = chosen.words();
  }
  store::RunStore store = open_store(options, query, plan, left_out);
  if (by_store) plan.keep(planned_in(store.reader(), plan));
  if (!options.resume.empty()) {
    std::vector<store::PlannedCase> planned;
    for (const Item& item : plan.items()) planned.push_back(item.planned);
    if (const auto drift = store.plan(planned)) {
      throw UsageError(fmt::format(
          "the run cannot be resumed, the catalogue or the program has changed since: {}; start a new run", drift.text()));
    }
  }
  Run run(catalogue, options, plan, store, rotation ? &*rotation : nullptr);
  run.sit(tonight);
  if (rotation) rotation->save();
  return print_reports(store.reader(), store.directory(), run.out(), run.terminal(), options.json, &catalogue);
}

int print_run(const catalogue::Catalogue* catalogue, const std::filesystem::path& directory, const std::string& out,
              const Beside& beside, bool compatibility, bool json) {
  return opening([&] {
    const auto reader = store::RunReader::open(directory);
    if (compatibility) {
      std::cout << report::write_compatibility(reader, out.empty() ? directory : fs::path(out)).string() << "\n";
      return int{exit_as_expected};
    }
    if (out.empty()) {
      const report::RunView view = report::load(reader);
      if (json) {
        report::write_json(reader, view, std::cout);
      } else {
        report::print_summary(std::cout, view, report::terminal_of(STDOUT_FILENO));
      }
      std::cout.flush();
      return view.exit_status;
    }
    std::optional<report::Comparison> changes;
    std::optional<report::Nights> nights;
    if (!beside.since.empty()) changes = report::compare(store::RunReader::open(beside.since), reader);
    if (!beside.history.empty()) nights = history::nights_before(store::History::open(beside.history), reader.info());
    return print_reports(reader, out, std::cout, report::terminal_of(STDOUT_FILENO), json, catalogue,
                         {changes ? &*changes : nullptr, nights ? &*nights : nullptr});
  });
}

int print_phases(const std::filesystem::path& directory, bool json) {
  return opening([&] {
    const report::PhaseShares shares = report::phase_shares(store::RunReader::open(directory));
    if (json) {
      nlohmann::json phases = nlohmann::json::object();
      for (int p = 0; p < phase_count; ++p)
        phases[std::string(name(static_cast<Phase>(p)))] = shares.ns[static_cast<std::size_t>(p)];
      phases["between"] = shares.other_ns;
      std::cout << nlohmann::json{{"executions", shares.executions},
                                  {"ns", phases},
                                  {"run_ns", shares.run_ns},
                                  {"detection", shares.detection()}}
                       .dump(2)
                << '\n';
    } else {
      std::cout << report::phases_text(shares);
    }
    std::cout.flush();
    return int{exit_as_expected};
  });
}

}  // namespace kvcts::cli
