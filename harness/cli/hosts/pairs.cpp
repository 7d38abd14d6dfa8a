#include "cli/hosts/pairs.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include "cli/exit.hpp"
#include "cli/program.hpp"
#include "cli/report/text.hpp"
#include "cli/report/view.hpp"
#include "run/store/reader.hpp"

namespace kvcts::cli::hosts {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto look_every = 50ms;
constexpr auto write_every = 2s, log_interval = 5s;

/// Worse is more.
int rank(int exit) {
  constexpr int order[] = {exit_as_expected, exit_incomplete, exit_unexpected, exit_own_error, exit_interrupted};
  return static_cast<int>(std::ranges::find(order, exit) - std::begin(order));
}

/// A pair's Exit as this call's: that it did not start leaves something planned that was not run.
int as_ours(int exit) {
  if (exit == exit_usage || exit == exit_nothing_selected) return exit_incomplete;
  return rank(exit) <= rank(exit_interrupted) ? exit : exit_own_error;
}

std::string file_name(std::string host) {
  for (char& c : host)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '_' && c != '@') c = '-';
  return host;
}

/// Starts and watches the pairs of one round after another.
class Runner {
 public:
  Runner(Pairs& pairs, std::ostream& out) : pairs_(pairs), out_(out) {
    const char* stand_in = std::getenv("KVCTS_PAIR_PROGRAM");  // tests: in place of kvcts
    program_ = stand_in != nullptr ? stand_in : this_call()[0];
  }

  /// Returns the pairs that failed.
  std::vector<Link> round(std::vector<Link> waiting) {
    ++pairs_.rounds;
    planned_ += waiting.size();
    const std::size_t before = pairs_.runs.size();
    while (!waiting.empty() || !running_.empty()) {
      std::vector<Link> later;
      for (const Link& pair : waiting)
        if (!start(pair)) later.push_back(pair);
      waiting = std::move(later);
      for (auto child = running_.begin(); child != running_.end();) {
        int status = 0;
        if (::waitpid(child->first, &status, WNOHANG) != child->first) {
          ++child;
          continue;
        }
        ended(child->second, exit_code(status));
        child = running_.erase(child);
      }
      print_progress(false);
      std::this_thread::sleep_for(look_every);
    }
    print_progress(true);
    std::vector<Link> failed;
    for (std::size_t i = before; i < pairs_.runs.size(); ++i)
      if (pairs_.runs[i].failed()) failed.push_back(pairs_.runs[i].pair);
    return failed;
  }

 private:
  bool start(const Link& pair) {
    if (busy_.contains(pair.first) || busy_.contains(pair.second)) return false;
    busy_.insert({pair.first, pair.second});
    PairRun run;
    run.pair = pair, run.round = pairs_.rounds;
    const auto host = [&](int number) { return pairs_.hosts[static_cast<std::size_t>(number)]; };
    const auto given = [&](int number) { return pairs_.given[static_cast<std::size_t>(number)]; };
    run.name = file_name(host(pair.first)) + "+" + file_name(host(pair.second));
    if (const int times = ++tries_[pair]; times > 1) run.name += fmt::format(".{}", times);
    std::vector<std::string> words{
        program_, "run", "--hosts", given(pair.first) + "," + given(pair.second), "--out", (pairs_.out / run.name).string()};
    words.insert(words.end(), pairs_.selection.begin(), pairs_.selection.end());
    running_.emplace(start_program(words, log(run)), run);
    return true;
  }

  fs::path log(const PairRun& run) const { return pairs_.out / (run.name + ".log"); }

  void ended(PairRun run, int exit) {
    busy_.erase(run.pair.first), busy_.erase(run.pair.second);
    run.exit = exit;
    run.words = last_output(log(run));
    if (fs::exists(pairs_.out / run.name / "store.db")) {
      try {
        run.counts = store::RunReader::open(pairs_.out / run.name).counts();
        run.words = report::headline(*run.counts);
      } catch (const store::Error& error) {
        run.words = error.what();
      }
    }
    pairs_.runs.push_back(run);
    refuse_if_none_starts();
    if (run.failed()) out_ << pairs_.name(run.pair) << ": " << run.words << '\n' << std::flush;
  }

  /// A wrong selection is wrong for every pair, in the same words; a host that does not answer only for its own.
  void refuse_if_none_starts() const {
    const PairRun& first = pairs_.runs.front();
    if (first.exit != exit_usage && first.exit != exit_nothing_selected) return;
    std::set<int> seen;
    bool share_a = pairs_.hosts.size() > 2, share_b = share_a;
    for (const auto& [pair, round, name, exit, counts, words] : pairs_.runs) {
      if (exit != first.exit || counts || words != first.words) return;
      const std::set<int> two{pair.first, pair.second};
      seen.insert(two.begin(), two.end());
      share_a = share_a && two.contains(first.pair.first), share_b = share_b && two.contains(first.pair.second);
    }
    if (seen.size() < pairs_.hosts.size() || share_a || share_b) return;
    const std::string why = fmt::format("no pair started; {}: {}", pairs_.name(first.pair), first.words);
    if (first.exit == exit_usage) throw UsageError(why);
    throw NothingSelected(why);
  }

  void print_progress(bool now) {
    const auto time = Clock::now();
    if (now || time - written_ > write_every) write_pages(pairs_), written_ = Clock::now();
    if (!now && time - logged_at_ < log_interval) return;
    std::string words = fmt::format("round {}: {}/{} pairs, {} failed, {} running", pairs_.rounds, pairs_.runs.size(),
                                    planned_, pairs_.failures(), running_.size());
    if (words != last_progress_) out_ << words << '\n' << std::flush;
    last_progress_ = std::move(words), logged_at_ = time;
  }

  Pairs& pairs_;
  std::ostream& out_;
  std::string program_;
  std::map<pid_t, PairRun> running_;
  std::set<int> busy_;
  std::map<Link, int> tries_;
  std::size_t planned_{0};
  Clock::time_point written_{Clock::now()}, logged_at_{Clock::now()};
  std::string last_progress_;
};

}  // namespace

bool PairRun::failed() const {
  if (exit == exit_as_expected) return false;
  return exit != exit_incomplete || !counts || store::failures(*counts) > 0 || store::ran(*counts) == 0;
}

std::string Pairs::name(const Link& pair) const {
  return hosts[static_cast<std::size_t>(pair.first)] + "-" + hosts[static_cast<std::size_t>(pair.second)];
}

std::string Pairs::command(const Link& pair) const {
  std::string text = "kvcts run --hosts " + report::shell_word(given[static_cast<std::size_t>(pair.first)] + "," +
                                                               given[static_cast<std::size_t>(pair.second)]);
  for (const std::string& word : selection) text += " " + report::shell_word(word);
  return text;
}

int Pairs::failures() const {
  return static_cast<int>(std::ranges::count_if(runs, [](const PairRun& run) { return run.failed(); }));
}

int Pairs::exit_status() const {
  int worst = exit_as_expected;
  for (const PairRun& run : runs)
    if (rank(as_ours(run.exit)) > rank(worst)) worst = as_ours(run.exit);
  return found && !found->none() && rank(worst) < rank(exit_unexpected) ? exit_unexpected : worst;
}

std::string Pairs::headline() const {
  const auto all = hosts.size() * (hosts.size() - 1) / 2;
  if (!over) return fmt::format("{} of {} pairs have run, {} failed", runs.size(), all, failures());
  if (!found) {
    if (failures() == 0)
      return fmt::format("No pair failed: {} of {} hosts", report::plural(std::ssize(runs), "pair"), hosts.size());
    return fmt::format("{} of {} failed", failures(), report::plural(std::ssize(runs), "pair"));
  }
  const std::string tested = fmt::format("{} of {} links tested in {}", found->tested, all, report::plural(rounds, "round"));
  if (found->none()) return fmt::format("No pair failed: {}", tested);
  std::string certain, open;
  for (const int host : found->hosts) certain += ", node " + hosts[static_cast<std::size_t>(host)];
  for (const Link& link : found->links) certain += ", link " + name(link);
  for (const Link& link : found->open) open += ", " + name(link);
  if (found->single()) return fmt::format("Found: {} ({})", certain.substr(2), tested);
  if (certain.empty() && hosts.size() == 2)
    return fmt::format("{} fails: two hosts cannot tell their link from themselves", open.substr(2));
  if (certain.empty() && found->open.size() == 1)
    return fmt::format("Not certain: {} failed, but not each time ({})", open.substr(2), tested);
  if (certain.empty() && failures() == std::ssize(runs))
    return fmt::format("Every pair failed: look for what all hosts share ({})", tested);
  return fmt::format("More than one: {}{}{} ({})", certain.empty() ? "" : certain.substr(2),
                     certain.empty() || open.empty() ? "" : "; ", open.empty() ? "" : "not explained: " + open.substr(2),
                     tested);
}

std::optional<Link> Pairs::suspect() const {
  for (const PairRun& run : runs) {
    const auto& [a, b] = run.pair;
    if (!run.failed()) continue;
    if (!found || found->none() || std::ranges::find(found->links, run.pair) != found->links.end()) return run.pair;
    if (std::ranges::find(found->hosts, a) != found->hosts.end() || std::ranges::find(found->hosts, b) != found->hosts.end())
      return run.pair;
    if (found->hosts.empty() && found->links.empty()) return run.pair;
  }
  return {};
}

std::string Pairs::next_step() const {
  const auto pair = suspect();
  return pair ? "Run it again: " + command(*pair) : "";
}

int run_pairs(const RunOptions& run, const std::string& how) {
  if (run.out.empty()) throw UsageError("expected --out DIR beside --pairs: every pair has its run below it");
  if (run.hosts.size() < 2) throw UsageError("expected two or more hosts in --hosts beside --pairs");
  std::set<std::string> names;
  for (const std::string& host : run.hosts)
    if (host.empty() || !names.insert(file_name(host.substr(0, host.find('=')))).second)
      throw UsageError(fmt::format("--hosts: expected hosts that differ, found '{}' twice", host));
  Pairs pairs;
  pairs.given = run.hosts;
  for (const std::string& host : run.hosts) pairs.hosts.push_back(host.substr(0, host.find('=')));
  pairs.out = fs::absolute(run.out);
  if (fs::exists(pairs.out)) throw UsageError(pairs.out.string() + ": already exists; choose another folder for the run");
  fs::create_directories(pairs.out);
  pairs.selection = words_without(this_call(), {"--json"}, {"--hosts", "--pairs", "--out"});
  pairs.selection.erase(pairs.selection.begin());
  std::ostream& out = run.json ? std::cerr : std::cout;
  Runner runner(pairs, out);
  const int hosts = static_cast<int>(pairs.hosts.size());
  if (how == "find" && run.max_failures == 0) pairs.selection.insert(pairs.selection.end(), {"--max-failures", "1"});
  if (how == "all") {
    std::vector<Link> all;
    for (const auto& round : tournament(hosts)) all.insert(all.end(), round.begin(), round.end());
    runner.round(all);
  } else {
    GroupTesting testing(hosts);
    for (std::vector<Link> round = testing.next(); !round.empty(); round = testing.next()) {
      out << fmt::format("round {}: {}, {} of the busiest host\n", testing.rounds(),
                         report::plural(std::ssize(round), "pair"), busiest(round));
      testing.failed(runner.round(round));
      pairs.found = testing.verdict();
    }
  }
  pairs.over = true;
  write_pages(pairs);
  out << pairs.headline() << '\n';
  if (const std::string next = pairs.next_step(); !next.empty()) out << next << '\n';
  out << "results in " << pairs.out.string() << ": index.html, pairs.json\n";
  if (run.json) std::cout << to_json(pairs).dump(2) << '\n';
  out.flush(), std::cout.flush();
  return pairs.exit_status();
}

}  // namespace kvcts::cli::hosts
