#include "cli/run/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

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
#include "cli/paths.hpp"
#include "cli/provenance.hpp"
#include "cli/report/console.hpp"
#include "cli/report/phases.hpp"
#include "cli/report/picture.hpp"
#include "cli/report/repro.hpp"
#include "cli/report/summary.hpp"
#include "cli/report/text.hpp"
#include "cli/report/write.hpp"
#include "cli/run/plan.hpp"
#include "cli/stored.hpp"
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
  std::vector<std::size_t> leaders;                                    ///< items
  std::unordered_map<std::string, std::vector<std::size_t>> members;   ///< execution -> items, the leader first
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
    own.evidence = evidence_of(own.facts.value("engine_claims", nlohmann::json()), spec.arch, [&] { return devices_for(engine ? engine->plugin : ""); });
  }
  return own;
}

class Run {
 public:
  Run(const catalogue::Catalogue& catalogue, const RunOptions& options, Plan& plan, store::RunStore& store)
      : catalogue_(catalogue), options_(options), plan_(plan), store_(store), out_(options.json ? std::cerr : std::cout),
        terminal_(report::terminal_of(options.json ? STDERR_FILENO : STDOUT_FILENO)), console_(out_, terminal_) {}

  /// Runs what has no result yet; returns how the sitting ended.
  void sit() {
    std::set<std::string> wanted;
    for (const auto& planned : store_.missing()) wanted.insert(planned.id);
    const auto planned = static_cast<std::int64_t>(plan_.items().size());
    console_.begin(short_name(options_.select), planned, planned - static_cast<std::int64_t>(wanted.size()));
    for (const Item& item : plan_.items()) {
      if (!item.decided || !wanted.contains(item.planned.id)) continue;
      store_.record(*item.decided);
      console_.finished(*item.decided);
    }
    const Queue queue = queue_of(plan_, wanted);
    supervisor::Summary summary;
    if (!queue.leaders.empty()) summary = supervise(queue);
    console_.end();
    if (failure_) std::rethrow_exception(failure_);
    for (const auto& left : summary.left_behind) fmt::print(stderr, "kvcts run: a process could not be ended: {}\n", left);
    if (summary.interrupted) {
      store_.finish(store::Ending::interrupted, "interrupted");
    } else if (out_of_time_) {
      fail_required(fmt::format("budget of {} s used up", options_.select.budget));
      store_.finish(store::Ending::budget, fmt::format("budget of {} s used up", options_.select.budget));
    } else {
      store_.finish(store::Ending::complete);
    }
  }

  std::ostream& out() { return out_; }
  const report::Terminal& terminal() const { return terminal_; }

 private:
  supervisor::Summary supervise(const Queue& queue) {
    const supervisor::Jobs jobs{queue.leaders.size(), [&](std::size_t i) { return plan_.items()[queue.leaders[i]].planned.id; },
                                [&](std::size_t i) { return plan_.resolve(queue.leaders[i]); }};
    supervisor::Options options;
    options.devices = devices_for;
    options.jobs = options_.jobs;
    options.hold = options_.hold;
    options.watch_asked = options_.watch_ms.has_value();
    options.watch_ms = options_.watch_ms.value_or(options.watch_ms);
    options.tick_ms = 50;
    std::unordered_map<std::string, const std::vector<std::size_t>*> by_id;
    for (const std::size_t leader : queue.leaders) {
      const auto& planned = plan_.items()[leader].planned;
      by_id[planned.id] = &queue.members.at(planned.execution);
    }
    supervisor::Handlers handlers;
    handlers.on_result = [&](CaseResult&& result) { const auto& members = *by_id.at(result.id); take(std::move(result), members); };
    handlers.on_tick = [&](const std::vector<supervisor::Running>& running) {
      for (const auto& r : running) {
        if (started_.insert(r.id).second) console_.started(r.id);
      }
      guarded([&] { store_.tick(); });
      console_.tick();
    };
    handlers.on_message = [&](const std::string& line) { console_.say(line); };
    const auto end = Clock::now() + std::chrono::duration<double>(options_.select.budget);
    handlers.stop = [&, end] {
      if (options_.select.budget > 0 && Clock::now() > end) out_of_time_ = true;
      return out_of_time_ || failure_ != nullptr;
    };
    return supervisor::run_cases(jobs, options, handlers);
  }

  void take(CaseResult result, const std::vector<std::size_t>& members) {
    // Not begun: the store has no result of it, so that --resume goes on with it.
    if (result.outcome == Outcome::not_run) return;
    draw(result, members.front());
    for (const std::size_t member : members) {
      const Item& item = plan_.items()[member];
      CaseResult own = as_member(result, item, plan_, catalogue_);
      plan_.judge(own, item);
      guarded([&] { store_.record(own); });
      console_.finished(own);
    }
  }

  /// What --require names and the clock left out is stored as a failure; a later sitting may still run it.
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

  /// A drawing for a failure, but not for the thousandth of its kind: nobody looks at that, and drawings take more room than results.
  void draw(CaseResult& result, std::size_t item) {
    constexpr int most = 50;
    const auto plan = report::take_plan(result);
    if (!report::has_picture(result.outcome) || ++drawn_[report::ending_words(result)] > most) {
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
  std::ostream& out_;
  report::Terminal terminal_;
  report::ConsoleReporter console_;
  std::set<std::string> started_;
  std::unordered_map<std::string, int> drawn_;  ///< by how it ended
  std::exception_ptr failure_;
  bool out_of_time_{false};
};

/// What a sitting needs to run the cases of its run again, and its --resume to go on.
report::Repro repro_of(const RunOptions& options) {
  report::Repro repro = report::repro_here(options.cases);
  for (const auto& file : options.select.files) repro.files.push_back(fs::absolute(file).lexically_normal().string());
  repro.seed = options.seed.value_or(0);
  return repro;
}

/// The store of the run and the plan it was made with.
store::RunStore open_store(const RunOptions& options, const Plan& plan) {
  if (!options.resume.empty()) return opening([&] { return store::RunStore::open(options.resume, command_line()); });
  store::RunInfo info;
  info.suite = short_name(options.select);
  info.selection = to_text(options.select);
  info.seed = options.seed.value_or(0);
  info.version = KVCTS_VERSION;
  info.left_out = plan.selection().left_out();
  if (plan.selection().whole() > 0) {
    SelectOptions whole = options.select;
    whole.shard.clear();
    const matrix::Query query = query_of(options.select);
    info.part = {{"shard", query.shard}, {"shards", query.shards}, {"whole", plan.selection().whole()}, {"selection", to_text(whole)}, {"places", plan.selection().places()}};
  }
  info.machine = doctor::machine();
  info.provenance = provenance(catalogue::find_cases(options.cases), golden_folder());
  info.repro = report::to_json(repro_of(options));
  std::string folder_name = info.suite;
  for (char& c : folder_name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '-';
  }
  const fs::path directory = options.out.empty() ? store::new_run_directory("runs", folder_name) : fs::path(options.out);
  auto store = opening([&] { return store::RunStore::create(directory, info, command_line()); });
  std::vector<store::PlannedCase> planned;
  planned.reserve(plan.items().size());
  for (const Item& item : plan.items()) planned.push_back(item.planned);
  store.plan(planned);
  return store;
}

int print_reports(const store::RunReader& reader, const fs::path& directory, std::ostream& out, const report::Terminal& terminal, bool json,
                  const catalogue::Catalogue* catalogue) {
  const report::RunView view = report::load(reader);
  std::optional<matrix::Space> space;
  if (catalogue) space.emplace(*catalogue);
  const report::Files files = report::write_reports(reader, view, directory, space ? &*space : nullptr);
  if (json) {
    report::write_json(reader, view, std::cout);
  } else {
    out << fmt::format("results in {}: {}, {}, {}\n", directory.string(), files.html.filename().string(), files.junit.filename().string(),
                       files.json.filename().string());
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
    throw UsageError(fmt::format("the run in {} began with {}, this sitting has {}: its results would not be of one kind; give what it began with, or start a new run",
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
  if (!fs::equivalent(first, catalogue::find_cases(cases), none)) refuse("the case data in " + first.string(), "those in " + cases);
  return cases;
}

int run_suite(const catalogue::Catalogue& catalogue, RunOptions options) {
  if (!options.resume.empty()) {
    const store::RunInfo info = opening([&] { return store::RunReader::open(options.resume).info(); });
    options.select = selection_from_text(info.selection);
    if (info.seed != 0) options.seed = info.seed;
  }
  Plan plan(catalogue, query_of(options.select), {options.seed, options.require});
  if (plan.items().empty()) throw NothingSelected(plan.selection().why_empty());
  store::RunStore store = open_store(options, plan);
  if (!options.resume.empty()) {
    std::vector<store::PlannedCase> planned;
    for (const Item& item : plan.items()) planned.push_back(item.planned);
    if (const auto drift = store.plan(planned)) {
      throw UsageError(fmt::format("the run cannot go on, the catalogue or the program has changed since: {}; start a new run", drift.text()));
    }
  }
  Run run(catalogue, options, plan, store);
  run.sit();
  return print_reports(store.reader(), store.directory(), run.out(), run.terminal(), options.json, &catalogue);
}

int print_run(const catalogue::Catalogue* catalogue, const std::filesystem::path& directory, const std::string& out, bool compatibility, bool json) {
  return opening([&] {
    const auto reader = store::RunReader::open(directory);
    if (compatibility) {
      const auto files = report::write_compatibility(reader, out.empty() ? directory : fs::path(out));
      std::cout << fmt::format("{}\n{}\n", files.markdown.string(), files.html.string());
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
    return print_reports(reader, out, std::cout, report::terminal_of(STDOUT_FILENO), json, catalogue);
  });
}

int print_phases(const std::filesystem::path& directory, bool json) {
  return opening([&] {
    const report::PhaseShares shares = report::phase_shares(store::RunReader::open(directory));
    if (json) {
      nlohmann::json phases = nlohmann::json::object();
      for (int p = 0; p < phase_count; ++p) phases[std::string(name(static_cast<Phase>(p)))] = shares.ns[static_cast<std::size_t>(p)];
      phases["between"] = shares.other_ns;
      std::cout << nlohmann::json{{"executions", shares.executions}, {"ns", phases}, {"run_ns", shares.run_ns}, {"detection", shares.detection()}}.dump(2) << '\n';
    } else {
      std::cout << report::phases_text(shares);
    }
    std::cout.flush();
    return int{exit_as_expected};
  });
}

}  // namespace kvcts::cli
