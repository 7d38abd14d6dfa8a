#include "cli/hosts/hosts.hpp"

#include <cstdlib>
#include <sstream>

#include "cli/exit.hpp"
#include "process/installation.hpp"
#include "process/procfs.hpp"

namespace kvcts::cli::hosts {

namespace {

bool is_here(const std::string& name) {
  const char* node = std::getenv("SLURMD_NODENAME");
  return name == "localhost" || (name == (node != nullptr ? node : process::host_name()));
}

/// Words that start a program there, with its input and output.
std::vector<std::string> way_to(const std::string& name) {
  if (std::getenv("SLURM_JOB_ID") != nullptr && name.find('@') == std::string::npos)
    return {"srun", "--quiet", "--overlap", "--ntasks=1", "--nodes=1", "--nodelist=" + name};
  std::vector<std::string> words;
  const char* ssh = std::getenv("KVCTS_SSH");
  std::istringstream text(ssh != nullptr ? ssh : "ssh -T -o BatchMode=yes -o ConnectTimeout=10");
  for (std::string word; text >> word;) words.push_back(word);
  words.push_back(name);
  return words;
}

}  // namespace

std::vector<supervisor::Host> parse(const std::vector<std::string>& words) {
  std::vector<supervisor::Host> out;
  bool away = words.empty();
  for (const std::string& word : words) {
    const auto equals = word.find('=');
    supervisor::Host host{word.substr(0, equals), {}, equals == std::string::npos ? "" : word.substr(equals + 1)};
    if (host.name.empty() || host.name[0] == '-')
      throw UsageError("--hosts: expected NAME, user@NAME or NAME=ADDRESS, found '" + word + "'");
    if (!is_here(host.name)) {
      host.start = way_to(host.name);
      host.start.push_back((process::program_folder() / "kvcts-host").string());
      host.start.emplace_back("far");
      away = true;
    }
    out.push_back(std::move(host));
  }
  if (!out.empty() && out.size() != 2)
    throw UsageError("--hosts: expected two hosts, the producer's and the consumer's, found " + std::to_string(out.size()));
  if (!away) throw UsageError("--hosts: both are this machine, which a run without --hosts tests");
  return out;
}

}  // namespace kvcts::cli::hosts
