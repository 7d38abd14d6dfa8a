#include "cli/slurm/slurm.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/exit.hpp"
#include "cli/program.hpp"
#include "cli/report/text.hpp"
#include "cli/run/rotation.hpp"
#include "cli/slurm/steps.hpp"
#include "cli/stored.hpp"
#include "process/installation.hpp"
#include "process/pointers.hpp"
#include "run/store/merge.hpp"

namespace kvcts::cli::slurm {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

bool in_allocation() { return std::getenv("SLURM_JOB_ID") != nullptr; }

bool is_here(const std::string& program) { return !process::find_tool(program).empty(); }

/// Where steps can run at a time, in this allocation.
int places_here(int jobs) {
  const char* cores = std::getenv("SLURM_JOB_CPUS_PER_NODE");
  return places(cores != nullptr ? cores : "", jobs);
}

fs::path parts_of(const fs::path& out) { return fs::path(out.string() + ".parts"); }

std::string script(const Options& options) {
  std::string text = "#!/bin/bash\n#SBATCH --job-name=kvcts --no-kill --requeue\n";
  for (const auto& one : options.sbatch) text += "#SBATCH " + one + "\n";
  text += "cd " + report::shell_word(fs::current_path().string()) + "\nexec";
  for (const auto& word : this_call())
    if (word != "--print") text += " " + report::shell_word(word);
  return text + "\n";
}

[[noreturn]] void allocate(const Options& options) {
  std::vector<std::string> words{"salloc", "--quiet", "--no-kill", "--job-name=kvcts"};
  words.insert(words.end(), options.sbatch.begin(), options.sbatch.end());
  for (const auto& word : this_call()) words.push_back(word);
  std::cout.flush();
  std::vector<char*> argv = process::pointers_to(words);
  ::execvp(argv[0], argv.data());
  throw std::system_error(errno, std::generic_category(), "cannot start salloc");
}

/// A head that is killed at any point of this does what is left of it when it is started again.
int finish(const catalogue::Catalogue& catalogue, const Job& job, const fs::path& out, bool as_json) {
  const fs::path parts = parts_of(out);
  std::ostream& said = as_json ? std::cerr : std::cout;
  Steps steps(job, parts, places_here(job.jobs), said);
  steps.run();
  if (!fs::exists(out)) opening([&] { store::merge(out, steps.runs(), command_line()); });
  const int status = print_run(&catalogue, out, out, {}, false, as_json);
  fs::remove(parts / "job.json");
  if (steps.lost_any())
    said << "logs of the steps: " << parts.string() << "\n";
  else
    fs::remove_all(parts);
  return status;
}

Job read_job(const fs::path& parts) {
  std::ifstream in(parts / "job.json");
  const json text = json::parse(in, nullptr, false);
  try {
    return {text.at("program"), text.at("shards"), text.at("jobs"), text.at("cases")};
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{}: expected what a run of Slurm was asked, found {}; start a new run",
                                 (parts / "job.json").string(), error.what()));
  }
}

}  // namespace

int run(const catalogue::Catalogue& catalogue, const RunOptions& run, const Options& options) {
  if (run.out.empty())
    throw UsageError(
        "expected --out DIR beside --on slurm, in a folder that all nodes share: it names the run if it is taken up");
  if (options.print) {
    std::cout << script(options);
    return exit_as_expected;
  }
  for (const char* program : {"salloc", "srun"})
    if (!is_here(program)) throw UsageError(fmt::format("no Slurm here: {} is not in PATH; leave out --on slurm", program));
  matrix::Query query = query_of(run.select);
  const matrix::Selection selection = matrix::select(catalogue, query);
  if (selection.empty()) throw NothingSelected(selection.why_empty());
  if (!in_allocation()) allocate(options);
  const fs::path out = fs::absolute(run.out), parts = parts_of(out);
  if (fs::exists(out) && !unfinished(out))
    throw UsageError(out.string() + ": already exists; choose another folder for the run");
  const int shards = options.shards > 0 ? options.shards : 2 * places_here(run.jobs);
  const Job job{words_without(this_call(), {"--print", "--json"}, {"--on", "--shards", "--sbatch-option", "--out"}),
                static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(shards), selection.size())), run.jobs,
                static_cast<std::int64_t>(selection.size())};
  if (unfinished(out)) {  // requeued, or its head has died
    const Job began = read_job(parts);
    if (began.program != job.program || (options.shards > 0 && began.shards != job.shards))
      throw UsageError(
          fmt::format("{} holds parts of another call; kvcts run --resume {} continues that", parts.string(), out.string()));
    return finish(catalogue, began, out, run.json);
  }
  fs::create_directories(parts);
  if (!run.rotate.empty()) query.times_ns = Rotation(run.rotate).times_ns();
  matrix::Group every{{}, job.shards};
  for (std::size_t i = 0; i < selection.size(); ++i) every.cases.push_back(i);
  write_shards(matrix::parts_of(selection, {every}, query.times_ns), parts);
  std::ofstream(parts / "job.json.new")
      << json{{"program", job.program}, {"shards", job.shards}, {"jobs", job.jobs}, {"cases", job.cases}}.dump(1);
  fs::rename(parts / "job.json.new", parts / "job.json");
  return finish(catalogue, job, out, run.json);
}

bool unfinished(const fs::path& out) { return fs::exists(parts_of(out) / "job.json"); }

int resume(const catalogue::Catalogue& catalogue, const fs::path& out, bool as_json) {
  if (!in_allocation()) {
    if (!is_here("salloc")) throw UsageError("no Slurm here: salloc is not in PATH; its run is resumed where there is one");
    allocate({});
  }
  return finish(catalogue, read_job(parts_of(fs::absolute(out))), fs::absolute(out), as_json);
}

}  // namespace kvcts::cli::slurm
