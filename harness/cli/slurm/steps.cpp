#include "cli/slurm/steps.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <sstream>
#include <thread>

#include "cli/exit.hpp"
#include "cli/program.hpp"
#include "cli/report/text.hpp"
#include "process/procfs.hpp"
#include "run/store/error.hpp"
#include "run/store/reader.hpp"

namespace kvcts::cli::slurm {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

constexpr int most_attempts = 6;
constexpr auto look_every = 50ms;
constexpr int looks_between_words = 100;
// For a step that srun has left. Of a node that left the allocation squeue lists steps for ever: then the store's own lock
// keeps a second writer away, whose step is tried again.
constexpr auto end_patience = 5s;
constexpr auto silence = 40s;  // srun waits for ever for a step whose slurmstepd died
// A step's first line: where it is. Then a line every second for as long as it lives.
constexpr const char* begin = R"(printf '%s %s\n' "$SLURMD_NODENAME" "$SLURM_STEP_ID"
(while sleep 1 && kill -0 $$ && echo; do :; done) 2> /dev/null &
exec "$@")";

/// The last "done/planned" with which a line of a log begins.
std::int64_t cases_done(const fs::path& log) {
  std::istringstream lines(process::read_text_file(log));
  std::int64_t done = 0;
  for (std::string line; std::getline(lines, line);) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error == std::errc{} && end != line.data() + line.size() && *end == '/') done = value;
  }
  return done;
}

/// Where the step of this log was, and its number.
std::pair<std::string, std::string> place_of(const fs::path& log) {
  std::istringstream first(process::read_text_file(log).substr(0, 300));
  std::string node, number;
  first >> node >> number;
  const bool known = !number.empty() && std::ranges::all_of(number, [](unsigned char c) { return std::isdigit(c); });
  return known ? std::pair{node, number} : std::pair<std::string, std::string>{};
}

/// Two may not write one run: what is left of a step that srun has lost is ended first.
void make_sure_it_ended(const std::string& number, const fs::path& scratch) {
  const std::string step = std::string(std::getenv("SLURM_JOB_ID")) + "." + number;
  run_program({"scancel", "--quiet", "--signal=KILL", step});
  const auto until = std::chrono::steady_clock::now() + end_patience;
  while (std::chrono::steady_clock::now() < until) {
    if (run_program({"squeue", "--noheader", "--steps=" + step}, scratch) != 0 || process::read_text_file(scratch).empty())
      return;
    std::this_thread::sleep_for(200ms);
  }
}

/// Of a step's run; none where it was killed before it had a plan, at worst amid the first page of its store.
std::optional<store::Counts> counts_of(const fs::path& run) {
  if (!fs::exists(run / "store.db")) return std::nullopt;
  try {
    const auto reader = store::RunReader::open(run);
    return reader.planned() ? std::optional(reader.counts()) : std::nullopt;
  } catch (const store::Error&) {
    return std::nullopt;
  }
}

}  // namespace

Steps::Steps(const SlurmJob& job, fs::path parts, std::vector<SlurmNode> nodes, std::ostream& out)
    : job_(job), parts_(std::move(parts)), nodes_(std::move(nodes)), out_(out) {
  for (const std::string& feature : job_.features) {
    Step step;
    step.shard = static_cast<int>(steps_.size()) + 1;
    step.feature = constraint(nodes_, {feature});  // in this allocation
    step.over = is_over(step);
    steps_.push_back(step);
  }
}

fs::path Steps::folder(const Step& step) const { return parts_ / std::to_string(step.shard); }
fs::path Steps::log(const Step& step) const { return parts_ / fmt::format("{}.{}.log", step.shard, step.attempts); }

bool Steps::is_over(Step& step) const {
  const auto counts = counts_of(folder(step));
  if (counts) step.done = counts->decided;
  return counts && counts->decided == counts->planned;
}

void Steps::start(Step& step) {
  ++step.attempts;
  std::vector<std::string> words{"srun",
                                 "--exact",
                                 "--nodes=1",
                                 "--ntasks=1",
                                 "--input=none",
                                 fmt::format("--cpus-per-task={}", job_.jobs),
                                 fmt::format("--job-name=kvcts-{}", step.shard)};
  if (disturbed_) words.push_back("--overlap");  // a step whose slurmstepd died keeps its cores for ever
  if (!step.feature.empty()) words.push_back("--constraint=" + step.feature);
  if (!step.away.empty() && share(nodes_, step.feature).nodes > 1) words.push_back("--exclude=" + step.away);
  words.insert(words.end(), {"sh", "-c", begin, "sh", job_.program[0], "run"});
  if (counts_of(folder(step))) {
    words.insert(words.end(), {"--resume", folder(step).string(), "--jobs", std::to_string(job_.jobs)});
  } else {
    fs::remove_all(folder(step));  // nothing to take up
    words.insert(words.end(), job_.program.begin() + 1, job_.program.end());
    words.insert(words.end(), {"--shard", folder(step).string() + ".shard", "--out", folder(step).string()});
  }
  step.srun = start_program(words, log(step));
  step.heard = 0, step.when = std::chrono::steady_clock::now();
}

/// Gives a step up that has been silent too long: its srun ends, and ended() finds how far it came.
void Steps::listen(Step& step) {
  std::error_code none;
  const std::uintmax_t bytes = fs::file_size(log(step), none), now = none ? 0 : bytes;
  const auto time = std::chrono::steady_clock::now();
  if (now > step.heard) step.heard = now, step.when = time;
  const bool begun = !place_of(log(step)).second.empty();  // else it waits for a place
  if ((begun || disturbed_) && time - step.when > silence) ::kill(step.srun, SIGKILL);
}

void Steps::ended(Step& step, int status) {
  step.srun = 0;
  const int code = exit_code(status);
  const auto [node, number] = place_of(log(step));
  step.over = is_over(step);
  if (!step.over && !number.empty()) {
    make_sure_it_ended(number, parts_ / "squeue");
    step.over = is_over(step);
  }
  step.empty = code == exit_nothing_selected && !fs::exists(folder(step));
  step.over = step.over || step.empty;
  disturbed_ = disturbed_ || WIFSIGNALED(status) || !step.over;
  if (step.over) return;
  if (number.empty() && WIFSIGNALED(status)) {  // it only waited
    --step.attempts;
    return;
  }
  if (code == exit_usage && step.attempts == 1)
    throw UsageError(fmt::format("shard {} did not start: {}", step.shard, last_output(log(step))));
  ++lost_;
  const std::string how =
      fmt::format("shard {}: lost{} after {} (exit {}: {})", step.shard, node.empty() ? "" : " on " + node,
                  report::plural(step.done, "case"), code, last_output(log(step)));
  if (step.attempts >= most_attempts)
    throw UsageError(fmt::format("{}; {} attempts; kvcts run --resume continues", how, step.attempts));
  out_ << how << ": taken up again\n" << std::flush;
  step.away = node;
}

void Steps::print_progress() {
  std::int64_t done = 0;
  int over = 0, running = 0;
  for (Step& step : steps_) {
    if (step.srun != 0) step.done = std::max(step.done, cases_done(log(step))), listen(step);
    done += step.done, over += step.over, running += step.srun != 0;
  }
  const std::string words = fmt::format("{}/{}, {} of {} shards, {} running", done, job_.cases, over, job_.shards, running);
  if (words != last_progress_) out_ << words << '\n' << std::flush;
  last_progress_ = words;
}

/// Gives each free place to the first shard that waits and may run there. Whether any shard is left.
bool Steps::start_some() {
  std::map<std::string, int> free;
  const auto places = [&](const std::string& feature) -> int& {
    return free.try_emplace(feature, share(nodes_, feature).places).first->second;
  };
  const auto take = [&](const Step& step) {
    --places("");
    if (!step.feature.empty()) --places(step.feature);
  };
  bool left = false;
  for (const Step& step : steps_)
    if (step.srun != 0) take(step), left = true;
  for (Step& step : steps_) {
    if (step.over || step.srun != 0) continue;
    left = true;
    if (places("") > 0 && places(step.feature) > 0) start(step), take(step);
  }
  return left;
}

void Steps::run() {
  for (int look = 1; start_some(); ++look) {
    for (Step& step : steps_) {
      int status = 0;
      if (step.srun != 0 && ::waitpid(step.srun, &status, WNOHANG) == step.srun) ended(step, status);
    }
    if (look % looks_between_words == 0) print_progress();
    std::this_thread::sleep_for(look_every);
  }
  print_progress();
}

std::vector<fs::path> Steps::runs() const {
  std::vector<fs::path> out;
  for (const Step& step : steps_)
    if (!step.empty) out.push_back(folder(step));
  return out;
}

}  // namespace kvcts::cli::slurm
