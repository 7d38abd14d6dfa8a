#include "cli/slurm/nodes.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace kvcts::cli::slurm {
namespace {

constexpr std::size_t most_nodes = 10'000;

/// Of each node's line.
std::vector<std::vector<std::string>> features_in(const std::string& shown) {
  std::vector<std::vector<std::string>> out;
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);) {
    const std::string key = " ActiveFeatures=";
    const auto at = line.find(key);
    if (at == std::string::npos) continue;
    std::istringstream names(line.substr(at + key.size(), line.find(' ', at + 1) - at - key.size()));
    out.emplace_back();
    for (std::string name; std::getline(names, name, ',');) out.back().push_back(name);
  }
  return out;
}

}  // namespace

std::vector<SlurmNode> nodes_of(const std::string& cpus_per_node, const std::string& shown, int jobs) {
  std::vector<SlurmNode> nodes;
  std::istringstream kinds(cpus_per_node);
  for (std::string one; std::getline(kinds, one, ',');) {
    int cores = 0, times = 1;
    if (std::sscanf(one.c_str(), "%d(x%d)", &cores, &times) < 1) continue;
    for (int i = 0; i < times && nodes.size() < most_nodes; ++i) nodes.push_back({std::max(cores / jobs, 1), {}});
  }
  if (nodes.empty()) nodes.emplace_back();
  if (const auto features = features_in(shown); features.size() == nodes.size())
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].features = features[i];
  return nodes;
}

Share share(const std::vector<SlurmNode>& nodes, const std::string& feature) {
  Share out;
  for (const SlurmNode& node : nodes)
    if (feature.empty() || std::ranges::find(node.features, feature) != node.features.end())
      ++out.nodes, out.places += node.places;
  return out;
}

std::string constraint(const std::vector<SlurmNode>& nodes, const std::vector<std::string>& needs) {
  std::string out;
  for (const std::string& need : needs)
    if (const int with = share(nodes, need).nodes; with > 0 && with < share(nodes, out).nodes) out = need;
  return out;
}

}  // namespace kvcts::cli::slurm
