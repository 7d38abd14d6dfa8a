// A run: plan, store, supervisor, console and reports together. Nothing here knows the inside of a case.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/plan.hpp"
#include "cli/selection.hpp"

namespace kvcts::cli {

struct RunOptions {
  SelectOptions select;
  int jobs{1};
  std::string out;     ///< run directory; "" = a new one below runs/
  std::string resume;  ///< run directory to resume
  std::string cases;   ///< --cases, as given
  std::optional<std::uint64_t> seed;
  std::vector<std::string> require;
  std::vector<std::string> hosts;  ///< --hosts, as given
  bool hold{false};
  std::optional<std::int64_t> watch_ms;  ///< --watch
  std::string rotate;                    ///< file that remembers what was run when; "" = none
  std::int64_t repeat{1};                ///< tries of every case
  std::int64_t retries{0};               ///< further tries of every case that failed
  std::int64_t max_failures{0};          ///< after so many a session starts no further case; 0 = no limit
  bool json{false};
  std::function<void(Plan&)> amend;  ///< what comes to the plan beside the selection; the same for every session
  std::function<nlohmann::json(const ResolvedCase&)> view;     ///< what workers learn of a case; {}: worker_view()
  std::function<std::string(const std::string& path)> digest;  ///< of a file: then results tell what code was mapped
  std::vector<std::string> hidden;                             ///< files that code under test finds empty
  bool aside{false};  ///< what people read goes to standard error: standard output is the caller's
};

/// No case is tried again where more of those that ran failed: then something is broken, and no case is flaky.
inline constexpr double most_failures_retried = 0.3;

/// For --resume: sets the environment that the run in `directory` began with, and returns its --cases. Throws UsageError
/// where this process was given others (`cases`: its --cases), so that all results of a run come from the same code.
std::string take_up(const std::filesystem::path& directory, const std::string& cases);

/// The words of this program's call.
std::vector<std::string> command_line();

/// Runs and reports. Returns an Exit.
int run_suite(const catalogue::Catalogue& catalogue, RunOptions options);

/// What a page says beside its own run; "" = nothing.
struct Beside {
  std::string since;    ///< folder of an earlier run: what changed
  std::string history;  ///< file of many: the nights before
};

/// Reports of a run directory: to standard output a summary, or results.json; or into the folder `out` all files. Returns
/// the run's Exit. `compatibility`: writes compatibility.md instead (into `out`, else beside the run) and returns 0.
/// `catalogue` may be null: then the page's filter knows axes but not the facts behind their values.
int print_run(const catalogue::Catalogue* catalogue, const std::filesystem::path& directory, const std::string& out,
              const Beside& beside, bool compatibility, bool json);

/// Where the time of the executions that passed went (report/phases.hpp). Returns 0.
int print_phases(const std::filesystem::path& directory, bool json);

}  // namespace kvcts::cli
