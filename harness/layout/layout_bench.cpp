// What planners do: locate a row, cut a block or a head range into runs, find who owns a byte. The cache is a 32-layer model
// of 8 heads of 128 in bf16 with 4096 blocks of 16.
#include <benchmark/benchmark.h>

#include "layout/template.hpp"

namespace kvcts::layout {
namespace {

const Geometry model{.layers = 32, .blocks = 4096, .block_size = 16, .heads = 8, .head_dim = 128};
const Scheme bf16{"bf16", Dtype::bf16, {}, {}};

const char* const texts[] = {"L x K B N H C", "L x K B H N C", "L x B H N K C", "L x { K=0 B H C/x N C%x ; K=1 B H C N }"};

void locate_row(benchmark::State& state) {
  const Cache cache = instantiate(texts[state.range(0)], model, bf16);
  std::int64_t n = 0;
  for (auto _ : state) {
    ++n;
    benchmark::DoNotOptimize(locate(cache.planes[0], {{0, 0, n % 4096, n % 16, n % 8, n % 128}}));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(locate_row)->DenseRange(0, 3);

void inverse_byte(benchmark::State& state) {
  const Cache cache = instantiate(texts[state.range(0)], model, bf16);
  std::int64_t bit = 0;
  for (auto _ : state) {
    bit = (bit + 7919 * 16) % (4096LL * 16 * 8 * 128 * 16);
    benchmark::DoNotOptimize(inverse(cache.planes[0], bit));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(inverse_byte)->DenseRange(0, 3);

/// One block of all heads; then half of the heads of it.
void runs_of_block(benchmark::State& state) {
  const Cache cache = instantiate(texts[state.range(0)], model, bf16);
  const std::int64_t heads = state.range(1);
  std::int64_t block = 0;
  std::int64_t count = 0;
  for (auto _ : state) {
    block = (block + 1) % 4096;
    count += static_cast<std::int64_t>(
        runs(cache.planes[0], {{{0, 0, block, 0, 0, 0}}, {{1, 1, block + 1, 16, heads, 128}}}).size());
  }
  state.counters["runs"] = static_cast<double>(count) / static_cast<double>(state.iterations());
}
BENCHMARK(runs_of_block)->ArgsProduct({{0, 1, 2, 3}, {8, 4}});

void runs_of_everything(benchmark::State& state) {
  const Cache cache = instantiate(texts[state.range(0)], model, bf16);
  for (auto _ : state) benchmark::DoNotOptimize(runs(cache.planes[0], {{{0, 0, 0, 0, 0, 0}}, {{1, 1, 4096, 16, 4, 128}}}));
}
BENCHMARK(runs_of_everything)->DenseRange(0, 3);

void overlaps_of_cache(benchmark::State& state) {
  const Cache cache = instantiate(texts[state.range(0)], model, bf16);
  for (auto _ : state) benchmark::DoNotOptimize(overlaps(cache, 0));
}
BENCHMARK(overlaps_of_cache)->DenseRange(0, 3);

void instantiate_model(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(instantiate(texts[state.range(0)], model, bf16, {"L", ""}));
}
BENCHMARK(instantiate_model)->DenseRange(0, 3);

}  // namespace
}  // namespace kvcts::layout

BENCHMARK_MAIN();
