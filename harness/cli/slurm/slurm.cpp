#include "cli/slurm/slurm.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "cli/availability.hpp"
#include "cli/exit.hpp"
#include "cli/program.hpp"
#include "cli/report/text.hpp"
#include "cli/run/rotation.hpp"
#include "cli/slurm/steps.hpp"
#include "cli/stored.hpp"
#include "process/installation.hpp"
#include "process/pointers.hpp"
#include "process/procfs.hpp"
#include "run/store/merge.hpp"

namespace kvcts::cli::slurm {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

bool in_allocation() { return std::getenv("SLURM_JOB_ID") != nullptr; }

bool is_here(const std::string& program) { return !process::find_tool(program).empty(); }

/// Of this allocation.
std::vector<SlurmNode> nodes_here(const fs::path& parts, int jobs) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const fs::path shown = parts / "nodes";
  if (run_program({"scontrol", "--oneliner", "show", "node", variable("SLURM_JOB_NODELIST")}, shown) != 0)
    std::cerr << fmt::format("scontrol: {}: all shards run on any node\n", last_output(shown));
  return nodes_of(variable("SLURM_JOB_CPUS_PER_NODE"), process::read_text_file(shown), jobs);
}

/// What a case needs of a node, by the names of --require. Its architecture only where an engine moves device memory:
/// elsewhere that is modelled.
std::vector<std::string> needs_of(const catalogue::Catalogue& catalogue, const CaseSpec& spec) {
  std::vector<std::string> needs = Availability(catalogue).needs(spec.engine, spec.connector).all;
  std::erase(needs, memory_lack);
  const auto* engine = catalogue.engines().find(spec.engine);
  if (engine && std::ranges::find(engine->grants, "cuda") != engine->grants.end() && spec.arch != "cpu")
    needs.push_back(spec.arch);
  return needs;
}

/// Cases by the feature that they need, after the number of nodes that have it: fewest first, "" last.
using Groups = std::map<std::pair<int, std::string>, matrix::SelectionGroup>;

/// `shards`: of all places; a group has as many of them as of the places.
Groups groups_of(const catalogue::Catalogue& catalogue, const matrix::Selection& selection,
                 const std::vector<SlurmNode>& nodes, int shards) {
  Groups groups;
  std::map<std::tuple<std::string, std::string, std::string>, std::string> known;
  const bool any = std::ranges::any_of(nodes, [](const SlurmNode& node) { return !node.features.empty(); });
  for (std::size_t i = 0; i < selection.size(); ++i) {
    const CaseSpec spec = any ? selection.spec(i) : CaseSpec();
    const auto [at, fresh] = known.try_emplace({spec.engine, spec.connector, spec.arch});
    if (fresh && any) at->second = constraint(nodes, needs_of(catalogue, spec));
    groups[{share(nodes, at->second).nodes, at->second}].cases.push_back(i);
  }
  const std::int64_t all = share(nodes, "").places;
  for (auto& [feature, group] : groups) {
    const std::int64_t own = (std::int64_t{shards} * share(nodes, feature.second).places + all - 1) / all;
    group.shards = static_cast<int>(std::min(own, std::ssize(group.cases)));
  }
  return groups;
}

fs::path parts_of(const fs::path& out) { return fs::path(out.string() + ".parts"); }

std::string script(const SlurmOptions& options) {
  std::string text = "#!/bin/bash\n#SBATCH --job-name=kvcts --no-kill --requeue\n";
  for (const auto& one : options.sbatch) text += "#SBATCH " + one + "\n";
  text += "cd " + report::shell_word(fs::current_path().string()) + "\nexec";
  for (const auto& word : this_call())
    if (word != "--print") text += " " + report::shell_word(word);
  return text + "\n";
}

[[noreturn]] void allocate(const SlurmOptions& options) {
  std::vector<std::string> words{"salloc", "--quiet", "--no-kill", "--job-name=kvcts"};
  words.insert(words.end(), options.sbatch.begin(), options.sbatch.end());
  for (const auto& word : this_call()) words.push_back(word);
  std::cout.flush();
  std::vector<char*> argv = process::pointers_to(words);
  ::execvp(argv[0], argv.data());
  throw std::system_error(errno, std::generic_category(), "cannot start salloc");
}

/// A head that is killed at any point of this does what is left of it when it is started again.
int finish(const catalogue::Catalogue& catalogue, const SlurmJob& job, std::vector<SlurmNode> nodes, const fs::path& out,
           bool as_json) {
  const fs::path parts = parts_of(out);
  std::ostream& console = as_json ? std::cerr : std::cout;
  Steps steps(job, parts, std::move(nodes), console);
  steps.run();
  if (!fs::exists(out)) opening([&] { store::merge(out, steps.runs(), command_line()); });
  const int status = print_run(&catalogue, out, out, {}, false, as_json);
  fs::remove(parts / "job.json");
  if (steps.lost_any())
    console << "logs of the steps: " << parts.string() << "\n";
  else
    fs::remove_all(parts);
  return status;
}

SlurmJob read_job(const fs::path& parts) {
  std::ifstream in(parts / "job.json");
  const json text = json::parse(in, nullptr, false);
  try {
    return {text.at("program"), text.at("shards"), text.at("jobs"), text.at("cases"), text.at("features")};
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{}: expected what a run of Slurm was asked, found {}; start a new run",
                                 (parts / "job.json").string(), error.what()));
  }
}

}  // namespace

int run(const catalogue::Catalogue& catalogue, const RunOptions& run, const SlurmOptions& options) {
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
  SlurmJob job{words_without(this_call(), {"--print", "--json"}, {"--on", "--shards", "--sbatch-option", "--out"}),
               options.shards, run.jobs, static_cast<std::int64_t>(selection.size())};
  if (unfinished(out)) {  // requeued, or its head has died
    const SlurmJob began = read_job(parts);
    if (began.program != job.program || (options.shards > 0 && began.shards != job.shards))
      throw UsageError(
          fmt::format("{} holds parts of another call; kvcts run --resume {} continues that", parts.string(), out.string()));
    return finish(catalogue, began, nodes_here(parts, began.jobs), out, run.json);
  }
  fs::create_directories(parts);
  if (!run.rotate.empty()) query.times_ns = Rotation(run.rotate).times_ns();
  std::vector<SlurmNode> nodes = nodes_here(parts, run.jobs);
  std::vector<matrix::SelectionGroup> groups;
  const int shards = job.shards > 0 ? job.shards : std::min(2 * share(nodes, "").places, 10'000);
  for (auto& [feature, group] : groups_of(catalogue, selection, nodes, shards)) {
    job.features.insert(job.features.end(), static_cast<std::size_t>(group.shards), feature.second);
    groups.push_back(std::move(group));
  }
  write_shards(matrix::parts_of(selection, groups, query.times_ns), parts);
  json text{{"program", job.program}, {"shards", job.shards}, {"jobs", job.jobs}, {"cases", job.cases}};
  text["features"] = job.features;
  std::ofstream(parts / "job.json.new") << text.dump(1);
  fs::rename(parts / "job.json.new", parts / "job.json");
  return finish(catalogue, job, std::move(nodes), out, run.json);
}

bool unfinished(const fs::path& out) { return fs::exists(parts_of(out) / "job.json"); }

int resume(const catalogue::Catalogue& catalogue, const fs::path& out, bool as_json) {
  if (!in_allocation()) {
    if (!is_here("salloc")) throw UsageError("no Slurm here: salloc is not in PATH; its run is resumed where there is one");
    allocate({});
  }
  const fs::path parts = parts_of(fs::absolute(out));
  const SlurmJob job = read_job(parts);
  return finish(catalogue, job, nodes_here(parts, job.jobs), fs::absolute(out), as_json);
}

}  // namespace kvcts::cli::slurm
