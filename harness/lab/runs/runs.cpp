// kvcts_runs [CASES]: time to merge and compare runs of this many results, relative to reading one of them once.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cli/report/compare.hpp"
#include "run/store/merge.hpp"
#include "run/store/sample.hpp"
#include "run/store/store.hpp"

namespace {

using namespace kvcts;
namespace fs = std::filesystem;

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Every `shards`-th case of `cases`, starting at `shard`; every 1,000th fails.
fs::path made(const fs::path& folder, int cases, int shard, int shards) {
  store::RunInfo info = store::sample::info();
  info.part = {{"shard", shard},
               {"shards", shards},
               {"whole", cases},
               {"selection", "--suite sample"},
               {"places", nlohmann::json::array()}};
  std::vector<store::PlannedCase> planned;
  for (int i = shard - 1; i < cases; i += shards) {
    info.part["places"].push_back(i);
    planned.push_back(store::sample::planned(i));
  }
  store::RunStore store = store::RunStore::create(folder, info, {"kvcts", "run"});
  store.plan(planned);
  int n = 0;
  for (const store::PlannedCase& c : planned) {
    CaseResult result;
    result.id = c.id;
    const bool fails = ++n % 1000 == 0;
    result.outcome = fails ? Outcome::fail : Outcome::pass;
    result.verdict = fails ? Verdict::unexpected : Verdict::as_expected;
    result.case_digest = c.digest, result.execution = c.execution;
    result.facts = {
        {"axes",
         {{"engine", n % 2 == 0 ? "memcpy" : "shm"}, {"connector", "reference"}, {"op", "write"}, {"dtype", "bf16"}}}};
    result.wall_ns = 2'000'000 + n % 1000;
    store.record(result);
  }
  store.finish(store::Ending::complete);
  return folder;
}

}  // namespace

int main(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 100'000, shards = 8;
  if (cases < shards) {
    fmt::print(stderr, "kvcts_runs: expected a number of cases of at least {}, found '{}'\n", shards, argv[1]);
    return 2;
  }
  const store::sample::TemporaryDirectory folder;
  std::vector<fs::path> parts;
  for (int shard = 1; shard <= shards; ++shard)
    parts.push_back(made(folder.path() / std::to_string(shard), cases, shard, shards));
  const fs::path whole = folder.path() / "whole", other = made(folder.path() / "other", cases, 1, 1);
  const double merging = seconds([&] { store::merge(whole, parts, {"kvcts", "merge"}); });
  const store::RunReader before = store::RunReader::open(whole), after = store::RunReader::open(other);
  const double reading = seconds([&] { before.for_each([](const store::Row&) {}); });
  const double comparing = seconds([&] { report::compare(before, after); });
  fmt::print(
      "{} results: merge of {} shards {:.2f} s, compare {:.2f} s; reading one run {:.2f} s, so {:.1f} and {:.1f} times "
      "that\n",
      cases, shards, merging, comparing, reading, merging / reading, comparing / reading);
}
