// How near the kernels come to the speed of memory, on one core: each kernel and its yardstick over the same 64 MiB, in one
// run, then their ratio. `kvcts_kernels_bench --benchmark_min_time=0.01` is a quick look.
#include <benchmark/benchmark.h>
#include <xxhash.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/generate.hpp"
#include "kernels/poison.hpp"

namespace {

using namespace kvcts;
using layout::Axis;
using layout::Dtype;

constexpr std::int64_t buffer_bytes = std::int64_t{64} << 20;

std::vector<std::uint8_t>& buffer(int which) {
  static std::vector<std::uint8_t> buffers[2]{std::vector<std::uint8_t>(buffer_bytes, 1),
                                              std::vector<std::uint8_t>(buffer_bytes, 1)};
  return buffers[which];
}

/// A plane over the whole buffer, from axes written outermost first, packed.
layout::Plane packed(Dtype dtype, int width, std::vector<layout::Mode> modes,
                     layout::Component component = layout::Component::data) {
  layout::Plane plane;
  plane.component = component;
  plane.dtype = dtype;
  std::int64_t stride = width;
  for (auto mode = modes.rbegin(); mode != modes.rend(); ++mode) {
    mode->stride = stride;
    stride *= mode->extent;
  }
  plane.modes = std::move(modes);
  return plane;
}

struct Pool {
  layout::Plane plane;
  std::vector<kernels::BlockContent> content;
};

/// `modes` without the block axis, which gets as many blocks as fit and stands outermost.
Pool pool(Dtype dtype, int width, std::vector<layout::Mode> modes, layout::Component component = layout::Component::data) {
  std::int64_t block_bits = width, tokens = 1;
  for (const layout::Mode& mode : modes) {
    block_bits *= mode.extent;
    if (mode.axis == Axis::slot) tokens *= mode.extent;
  }
  const std::int64_t blocks = buffer_bytes * 8 / block_bits;
  modes.insert(modes.begin(), {Axis::block, blocks});
  Pool out{packed(dtype, width, std::move(modes), component), {}};
  for (std::int64_t b = 0; b < blocks; ++b) out.content.push_back({b, 1, b * tokens, 0, tokens});
  return out;
}

void memset_bench(benchmark::State& state) {
  auto& out = buffer(0);
  int value = 0;
  for (auto _ : state) {
    std::memset(out.data(), ++value, out.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * buffer_bytes);
}

void generate_bench(benchmark::State& state, const Pool& what) {
  auto& out = buffer(0);
  kernels::TagKey key;
  for (auto _ : state) {
    ++key.pass;
    kernels::generate(out, what.plane, what.content, key, 0);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * buffer_bytes);
}

void poison_bench(benchmark::State& state) {
  auto& out = buffer(0);
  std::uint64_t key = 0;
  for (auto _ : state) {
    kernels::fill_poison(++key, 0, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * buffer_bytes);
}

void equal_buffers() {
  std::memset(buffer(0).data(), 7, buffer_bytes);
  std::memset(buffer(1).data(), 7, buffer_bytes);
}

void memcmp_bench(benchmark::State& state) {
  equal_buffers();
  for (auto _ : state) benchmark::DoNotOptimize(std::memcmp(buffer(0).data(), buffer(1).data(), buffer_bytes));
  state.SetBytesProcessed(state.iterations() * buffer_bytes);
}

void compare_bench(benchmark::State& state, bool different) {
  equal_buffers();
  if (different) std::memset(buffer(0).data(), 8, buffer_bytes);
  for (auto _ : state) benchmark::DoNotOptimize(kernels::compare(buffer(0), buffer(1)));
  state.SetBytesProcessed(state.iterations() * buffer_bytes);
}

void xxh3_bench(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(XXH3_64bits(buffer(0).data(), buffer_bytes));
  state.SetBytesProcessed(state.iterations() * buffer_bytes);
}

void digest_bench(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(kernels::digest(buffer(0)));
  state.SetBytesProcessed(state.iterations() * buffer_bytes);
}

/// Keeps bytes/s by name, prints as usual, then the ratios.
class RatioReporter : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const auto bytes = run.counters.find("bytes_per_second");
      if (bytes != run.counters.end()) speed_[run.run_name.function_name] = bytes->second.value;
    }
  }

  void Finalize() override {
    ConsoleReporter::Finalize();
    std::printf("\n%-34s %8s %8s  %s\n", "kernel", "GB/s", "ratio", "against");
    for (const auto& [name, yardstick] : pairs) {
      if (!speed_.contains(name) || !speed_.contains(yardstick)) continue;
      std::printf("%-34s %8.2f %8.2f  %s\n", name.c_str(), speed_[name] / 1e9, speed_[name] / speed_[yardstick],
                  yardstick.c_str());
    }
  }

  std::vector<std::pair<std::string, std::string>> pairs;

 private:
  std::map<std::string, double> speed_;
};

}  // namespace

int main(int argc, char** argv) {
  RatioReporter reporter;
  const auto measure = [&reporter](const std::string& name, const std::string& yardstick, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond);
    if (!yardstick.empty()) reporter.pairs.emplace_back(name, yardstick);
  };
  const auto generate = [&measure](const std::string& name, const Pool& what) {
    measure("generate/" + name, "memset", [what](benchmark::State& state) { generate_bench(state, what); });
  };

  measure("memset", "", memset_bench);
  generate("bf16/NHC128", pool(Dtype::bf16, 16, {{Axis::slot, 16}, {Axis::head, 8}, {Axis::channel, 128}}));
  generate("bf16/HNC128", pool(Dtype::bf16, 16, {{Axis::head, 8}, {Axis::slot, 16}, {Axis::channel, 128}}));
  generate("bf16/NC576", pool(Dtype::bf16, 16, {{Axis::slot, 64}, {Axis::channel, 576}}));
  generate("bf16/H C/8 N C%8",
           pool(Dtype::bf16, 16, {{Axis::head, 8}, {Axis::channel, 16, 0, 8}, {Axis::slot, 16}, {Axis::channel, 8}}));
  generate("bf16/HCN", pool(Dtype::bf16, 16, {{Axis::head, 8}, {Axis::channel, 128}, {Axis::slot, 16}}));
  generate("fp32/NHC128", pool(Dtype::fp32, 32, {{Axis::slot, 16}, {Axis::head, 8}, {Axis::channel, 128}}));
  generate("e4m3fn/NHC128", pool(Dtype::e4m3fn, 8, {{Axis::slot, 16}, {Axis::head, 8}, {Axis::channel, 128}}));
  generate("e4m3fn/NHC40", pool(Dtype::e4m3fn, 8, {{Axis::slot, 16}, {Axis::head, 8}, {Axis::channel, 40}}));
  generate("e4m3fn/HCN", pool(Dtype::e4m3fn, 8, {{Axis::head, 8}, {Axis::channel, 128}, {Axis::slot, 16}}));
  generate("int4/NHC128", pool(Dtype::int4, 4, {{Axis::slot, 16}, {Axis::head, 8}, {Axis::channel, 128}}));
  generate("int4/HCN", pool(Dtype::int4, 4, {{Axis::head, 8}, {Axis::channel, 128}, {Axis::slot, 16}}));
  generate("scale fp32/NH", pool(Dtype::fp32, 32, {{Axis::slot, 16}, {Axis::head, 8}}, layout::Component::scale));
  generate("scale e4m3fn/NHC8",
           pool(Dtype::e4m3fn, 8, {{Axis::slot, 16}, {Axis::head, 8}, {Axis::channel, 8}}, layout::Component::scale));
  measure("poison", "memset", poison_bench);
  measure("memcmp", "", memcmp_bench);
  measure("compare/equal", "memcmp", [](benchmark::State& state) { compare_bench(state, false); });
  measure("compare/all different", "memcmp", [](benchmark::State& state) { compare_bench(state, true); });
  measure("xxh3", "", xxh3_bench);
  measure("digest", "xxh3", digest_bench);

  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return 0;
}
