// What the transport ABI costs: each engine's own rate, beside a plain loop of memmove over the same list in the same run.
// Arguments: bytes of a descriptor, number of descriptors. Counters: bytes/s; items = descriptors.
#include <benchmark/benchmark.h>

#include <cstring>

#include "engines/testing/target.hpp"

namespace kvcts::testing {
namespace {

using transport::Descriptor;
using transport::Op;
using transport::Session;

std::vector<Descriptor> permuted(std::uint64_t local, std::uint64_t bytes, std::uint64_t count) {
  std::vector<Descriptor> list;
  for (std::uint64_t i = 0; i < count; ++i) list.push_back({local, i * bytes, 0, (i * 2654435761u % count) * bytes, bytes});
  return list;
}

void counters(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1));
  state.SetItemsProcessed(state.iterations() * state.range(1));
}

void direct(benchmark::State& state) {
  const auto bytes = static_cast<std::uint64_t>(state.range(0)), count = static_cast<std::uint64_t>(state.range(1));
  Memory from(bytes * count), to(bytes * count);
  from.fill(1);
  to.fill(2);
  const auto list = permuted(0, bytes, count);
  for (auto _ : state) {
    for (const auto& d : list) std::memmove(to.data() + d.remote_offset, from.data() + d.local_offset, d.bytes);
    benchmark::ClobberMemory();
  }
  counters(state);
}

/// One target a placement for the whole run, all started before this process loads any engine: UCX does not live through a
/// fork.
std::map<std::string, std::unique_ptr<Target>>& targets() {
  static std::map<std::string, std::unique_ptr<Target>> all;
  return all;
}
Target* target_of(const Placement& placement) {
  auto& target = targets()[placement.name];
  if (!target) target = start_target(placement);
  return target.get();
}

/// Prepared once, posted again and again: what a KV transfer of a running server is.
void engine(benchmark::State& state, const Placement& placement) {
  const auto bytes = static_cast<std::uint64_t>(state.range(0)), count = static_cast<std::uint64_t>(state.range(1));
  Memory from(bytes * count), to(bytes * count);
  from.fill(1);
  to.fill(2);
  Target* const target = target_of(placement);
  for (const auto& [key, value] : placement.environment) setenv(key.c_str(), value.c_str(), 1);
  Session session(transport::Plugin::load(transport::find_plugin(placement.plugin)),
                  {.name = "bench", .role = transport::Role::producer, .options = placement.options});
  const auto local = session.register_region(from.region(0, from.size()));
  const auto remote = target->add(to.region(0, to.size()));
  const auto peer = session.add_peer(target->metadata({remote}));
  const auto request = session.prepare(peer, Op::write, permuted(local, bytes, count));
  for (auto _ : state) {
    session.start(request);
    session.wait(request);
  }
  counters(state);
  session.release(request);
  session.remove_peer(peer);
  target->remove(remote);
}

/// A whole case: register, exchange, connect, move 64 KiB, and undo it.
void whole_case(benchmark::State& state, const Placement& placement) {
  constexpr std::uint64_t bytes = 65536;
  Memory from(bytes), to(bytes);
  from.fill(1);
  Target* const target = target_of(placement);
  for (const auto& [key, value] : placement.environment) setenv(key.c_str(), value.c_str(), 1);
  Session session(transport::Plugin::load(transport::find_plugin(placement.plugin)),
                  {.name = "bench", .role = transport::Role::producer, .options = placement.options});
  for (auto _ : state) {
    const auto local = session.register_region(from.region(0, bytes));
    const auto remote = target->add(to.region(0, bytes));
    const auto peer = session.add_peer(target->metadata({remote}));
    const auto request = session.post(peer, Op::write, permuted(local, 4096, 16));
    session.wait(request);
    session.release(request);
    session.remove_peer(peer);
    session.deregister(local);
    target->remove(remote);
  }
  state.SetItemsProcessed(state.iterations());
}

void lists(benchmark::internal::Benchmark* bench) {
  bench->Args({64, 16384})->Args({4096, 4096})->Args({65536, 256})->UseRealTime();
}

const std::vector<Placement> placements{
    {"memcpy", "kvcts_engine_memcpy", 1, {}, {}},
    {"shm", "kvcts_engine_shm", 2, {}, {}},
    {"ucx_tcp",
     "kvcts_engine_ucx",
     2,
     {},
     {{"UCX_TLS", "tcp,self"}, {"UCX_NET_DEVICES", "lo"}, {"UCX_MEM_MMAP_HOOK_MODE", "none"}}}};

[[maybe_unused]] const bool registered = [] {
  lists(benchmark::RegisterBenchmark("direct", direct));
  const auto built = transport::list_plugins();
  for (const auto& placement : placements) {
    if (std::find(built.begin(), built.end(), placement.plugin) == built.end()) continue;
    if (placement.processes == 2) target_of(placement);
    lists(benchmark::RegisterBenchmark(("engine/" + placement.name).c_str(),
                                       [&placement](benchmark::State& state) { engine(state, placement); }));
    benchmark::RegisterBenchmark(("case/" + placement.name).c_str(), [&placement](benchmark::State& state) {
      whole_case(state, placement);
    })->UseRealTime();
  }
  return true;
}();

}  // namespace
}  // namespace kvcts::testing

BENCHMARK_MAIN();
