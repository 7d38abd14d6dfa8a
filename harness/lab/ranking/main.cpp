// kvcts_layout_ranking: which layout of the catalogue is fastest for which use, on this machine's CPU. write_page.py
// turns its JSON into a page.
#include <fmt/format.h>
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lab/bench/machine.hpp"
#include "lab/ranking/contender.hpp"
#include "lab/ranking/uses.hpp"

namespace kvcts::ranking {
namespace {

using nlohmann::json;

struct Options {
  std::string cases, layouts = "*", json_file;
  std::int64_t tokens{16384};
  int threads{1}, rows{5};
  double seconds{0.15};
  bool quick{false};
};

json as_json(const Contender& contender, const std::vector<Measurement>& measured, const Descriptors& pieces) {
  json uses = json::object();
  for (const Measurement& m : measured) {
    json& use = uses[std::string(m.use)];
    if (m.speed) {
      use = {{"bytes_per_second", m.speed->bytes_per_second}, {"of_memcpy", m.speed->of_memcpy}};
    } else {
      use = {{"why_not", m.why}};
    }
  }
  json out{{"layouts", contender.ids},
           {"template", contender.text},
           {"dtype", contender.dtype},
           {"latent", contender.latent()},
           {"block_size", contender.geometry.block_size},
           {"heads", contender.geometry.heads},
           {"head_dim", contender.geometry.head_dim},
           {"uses", uses},
           {"descriptors", {{"block", pieces.block}, {"bytes", pieces.bytes}}}};
  if (pieces.half_heads) out["descriptors"]["half_heads"] = *pieces.half_heads;
  return out;
}

std::string name_of(const json& contender) {
  const json& ids = contender.at("layouts");
  const auto others = ids.size() - 1;
  return ids.front().get<std::string>() + (others == 0 ? "" : fmt::format(" and {} more", others));
}

void print_ranking(const json& result, const UseName& use, bool latent, int rows) {
  std::vector<const json*> order;
  for (const json& c : result.at("contenders")) {
    if (c.at("latent") == latent && c.at("uses").at(use.id).contains("of_memcpy")) order.push_back(&c);
  }
  if (order.empty()) return;
  const auto ratio = [&](const json* c) { return c->at("uses").at(use.id).at("of_memcpy").get<double>(); };
  std::sort(order.begin(), order.end(), [&](const json* a, const json* b) { return ratio(a) > ratio(b); });
  fmt::print("\n{}: {}{}\n", use.id, use.words, latent ? ", latents" : "");
  for (std::size_t i = 0; i < order.size() && std::cmp_less(i, rows); ++i) {
    fmt::print("{:4}  {:6.2f} GB/s  {:5.2f} of memcpy  {}\n", i + 1,
               order[i]->at("uses").at(use.id).at("bytes_per_second").get<double>() / 1e9, ratio(order[i]),
               name_of(*order[i]));
  }
  if (std::cmp_greater(order.size(), rows)) fmt::print("      and {} more\n", order.size() - static_cast<std::size_t>(rows));
}

int run(const Options& options) {
  const catalogue::Catalogue catalogue(catalogue::find_cases(options.cases));
  std::vector<Left> left;
  const auto wanted = [&](const std::string& id) { return fnmatch(options.layouts.c_str(), id.c_str(), 0) == 0; };
  const std::vector<Contender> all = contenders(catalogue, wanted, options.tokens, left);
  if (all.empty() && left.empty()) {
    fmt::print(stderr, "no layout matches '{}': expected a glob such as 'vllm-*'; kvcts layouts lists them\n",
               options.layouts);
    return 2;
  }
  json result{{"machine", bench::machine()}, {"threads", options.threads}, {"tokens", options.tokens}, {"layers", 2}};
  result["contenders"] = json::array();
  result["left_out"] = json::array();
  for (const Left& one : left) result["left_out"].push_back({{"layout", one.id}, {"why", one.why}});
  std::size_t layouts = left.size();
  for (const Contender& contender : all) {
    layouts += contender.ids.size();
    result["contenders"].push_back(
        as_json(contender, measure_uses(contender, options.threads, options.seconds), descriptors(contender)));
  }
  fmt::print("{} layouts, {} distinct orders of bytes; executed on the CPU, {} thread{}; GPU: not measured here\n", layouts,
             all.size(), options.threads, options.threads == 1 ? "" : "s");
  for (const UseName& use : uses()) {
    for (const bool latent : {false, true}) print_ranking(result, use, latent, options.rows);
  }
  for (const Left& one : left) fmt::print("left out: {}: {}\n", one.id, one.why);
  if (!options.json_file.empty()) {
    std::ofstream out(options.json_file);
    out << result.dump(1) << '\n';
    if (!out) {
      fmt::print(stderr, "cannot write {}; name a file in a folder that exists\n", options.json_file);
      return 2;
    }
  }
  return 0;
}

}  // namespace
}  // namespace kvcts::ranking

int main(int argc, char** argv) {
  kvcts::ranking::Options options;
  CLI::App app{"Which layout of the catalogue is fastest for which use, on this machine's CPU"};
  app.add_option("--layouts", options.layouts, "layouts whose id matches this glob")->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens in the pool")->check(CLI::Range(1024, 1 << 24))->capture_default_str();
  app.add_option("--threads", options.threads, "number of threads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--seconds", options.seconds, "time for each layout and use")->capture_default_str();
  app.add_option("--rows", options.rows, "layouts shown for each use")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--json", options.json_file, "write all numbers to this file");
  app.add_option("--cases", options.cases, "directory of case data");
  app.add_flag("--quick", options.quick, "a small pool, each use a few times: that it runs, not how fast");
  CLI11_PARSE(app, argc, argv);
  if (options.quick) options.tokens = 1024, options.seconds = 0;
  try {
    return kvcts::ranking::run(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
}
