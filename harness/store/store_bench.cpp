// What a result costs the supervisor: recording (group commits to disk included) and reading back.
#include <benchmark/benchmark.h>

#include "store/sample.hpp"

namespace kvcts::store {
namespace {

void record(benchmark::State& state) {
  const int cases = static_cast<int>(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    sample::TemporaryDirectory dir;
    auto store = RunStore::create(dir.path(), sample::info(), {});
    const auto plan = sample::plan(cases);
    store.plan(plan);
    state.ResumeTiming();
    for (const auto& planned : plan) store.record(sample::passed(planned));
    store.flush();
  }
  state.SetItemsProcessed(state.iterations() * cases);
}
BENCHMARK(record)->Arg(2000)->Unit(benchmark::kMillisecond);

void read(benchmark::State& state) {
  const int cases = static_cast<int>(state.range(0));
  sample::TemporaryDirectory dir;
  auto store = RunStore::create(dir.path(), sample::info(), {});
  const auto plan = sample::plan(cases);
  store.plan(plan);
  for (const auto& planned : plan) store.record(sample::passed(planned));
  store.finish(Ending::complete);
  for (auto _ : state) {
    std::int64_t bytes = 0;
    RunReader::open(dir.path()).for_each([&](const Row& row) { bytes += row.result.checked_bytes; });
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(state.iterations() * cases);
}
BENCHMARK(read)->Arg(2000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvcts::store

BENCHMARK_MAIN();
