// How fast a million ids are enumerated, filtered and written. The self-test runs it briefly and checks no time.
#include <benchmark/benchmark.h>

#include "matrix/select.hpp"

namespace kvcts::matrix {
namespace {

const Catalogue& catalogue() {
  static const Catalogue instance(catalogue::find_cases());
  return instance;
}

void load_catalogue(benchmark::State& state) {
  const auto cases = catalogue::find_cases();
  for (auto _ : state) {
    const Catalogue fresh(cases);
    fresh.check();
  }
}
BENCHMARK(load_catalogue)->Unit(benchmark::kMillisecond);

void enumerate_and_filter_full(benchmark::State& state) {
  Query query;
  query.suites = {"full"};
  query.where = "arch == cpu && (dtype.family == float || geometry.heads > 2)";
  std::int64_t considered = 0;
  for (auto _ : state) {
    const Selection selection = select(catalogue(), query);
    considered = selection.considered();
    benchmark::DoNotOptimize(selection.size());
  }
  state.SetItemsProcessed(state.iterations() * considered);
  state.counters["ids"] = static_cast<double>(considered);
}
BENCHMARK(enumerate_and_filter_full)->Unit(benchmark::kMillisecond)->Iterations(1);

void write_ids(benchmark::State& state) {
  Query query;
  query.suites = {"full"};
  const Selection selection = select(catalogue(), query);
  for (auto _ : state) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < selection.size(); ++i) bytes += selection.id(i).size();
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(selection.size()));
}
BENCHMARK(write_ids)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace kvcts::matrix

BENCHMARK_MAIN();
