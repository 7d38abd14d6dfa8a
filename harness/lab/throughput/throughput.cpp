// kvcts-engine-throughput-LOOP ENGINE: measures the cost of the transport ABI. Sends the same lists through the
// plug-in, driven like a worker, and through a minimal loop of the engine's own calls, alternating in one process
// with one target; reports the median ratio. One program per loop: NIXL cannot share a process with another UCX.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "case/catalogue/catalogue.hpp"
#include "engines/support/failure.hpp"
#include "engines/testing/placement.hpp"
#include "lab/throughput/direct.hpp"

namespace kvcts::throughput {
namespace {

using transport::Descriptor;
using Clock = std::chrono::steady_clock;

struct Shape {
  std::uint64_t bytes, count;  ///< per descriptor; of the list
};
/// Blocks of one head, blocks, layers, one huge.
constexpr Shape shapes[] = {{4096, 4096}, {65536, 512}, {1 << 20, 32}, {64 << 20, 1}};
constexpr int not_here = 77;  // exit status: this engine cannot run on this machine

std::vector<Descriptor> permuted(std::uint64_t local, const Shape& shape) {
  std::vector<Descriptor> list;
  for (std::uint64_t i = 0; i < shape.count; ++i)
    list.push_back({local, i * shape.bytes, 0, (i * 2654435761u % shape.count) * shape.bytes, shape.bytes});
  return list;
}

/// Bytes per second over rounds that together last `least_seconds`.
template <class Move>
double speed(std::uint64_t bytes, double least_seconds, Move&& move) {
  int rounds = 0;
  const auto begin = Clock::now();
  double seconds = 0;
  do {
    move();
    ++rounds;
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } while (seconds < least_seconds);
  return static_cast<double>(bytes) * rounds / seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Throws unless every descriptor's bytes are at their destination.
void check(testing::Memory& from, testing::Memory& to, const std::vector<Descriptor>& list, const char* what) {
  for (const auto& d : list) {
    if (std::memcmp(from.data() + d.local_offset, to.data() + d.remote_offset, d.bytes) != 0)
      throw std::runtime_error(std::string(what) + " did not move the list");
  }
}

nlohmann::json measure(const catalogue::EngineEntry& engine, int turns, double seconds) {
  const testing::Placement placement = testing::placement_of(engine);
  const auto target = testing::start_target(placement);  // before anything is loaded here
  for (const auto& [key, value] : placement.environment) setenv(key.c_str(), value.c_str(), 1);
  transport::Session session(transport::Plugin::load(transport::find_plugin(placement.plugin)),
                             {.name = "throughput", .options = placement.options});
  nlohmann::json rows = nlohmann::json::array();
  for (const Shape& shape : shapes) {
    const std::uint64_t bytes = shape.bytes * shape.count;
    testing::Memory from(bytes), to(bytes);
    from.fill(shape.bytes);
    const auto local = session.register_region(from.region(0, bytes));
    const auto remote = target->add(to.region(0, bytes));
    const std::string metadata = target->metadata({remote});
    const auto peer = session.add_peer(metadata);
    const auto list = permuted(local, shape);
    const auto request = session.prepare(peer, transport::Op::write, list);
    const auto through_abi = [&] {
      if (!session.start(request)) session.wait(request);
    };
    const auto loop = direct({{from.data(), bytes}, metadata, list}, to.data());
    loop->move();
    check(from, to, list, "the direct loop");
    to.fill(1);
    through_abi();
    check(from, to, list, "the plug-in");
    std::vector<double> ratios, abi, own;
    for (int turn = 0; turn < turns; ++turn) {
      const auto of_loop = [&] { own.push_back(speed(bytes, seconds, [&] { loop->move(); })); };
      const auto of_abi = [&] { abi.push_back(speed(bytes, seconds, through_abi)); };
      turn % 2 == 0 ? (of_loop(), of_abi()) : (of_abi(), of_loop());
      ratios.push_back(abi.back() / own.back());
    }
    rows.push_back({{"bytes", shape.bytes},
                    {"count", shape.count},
                    {"direct", median(own)},
                    {"abi", median(abi)},
                    {"ratio", median(ratios)}});
    session.release(request);
    session.remove_peer(peer);
    session.deregister(local);
    target->remove(remote);
  }
  return {{"engine", engine.id}, {"version", session.plugin().version()}, {"turns", turns}, {"rows", rows}};
}

}  // namespace
}  // namespace kvcts::throughput

int main(int argc, char** argv) {
  CLI::App app("Measure the cost of the transport ABI.");
  std::string engine, cases;
  int turns = 9;
  double seconds = 0.05;
  app.add_option("ENGINE", engine, "an engine of cases/engines")->required();
  app.add_option("--cases", cases, "folder of the catalogue")->required();
  app.add_option("--turns", turns, "turns of each way")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "minimum seconds per turn")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    const kvcts::catalogue::Catalogue catalogue{std::filesystem::path(cases)};
    std::cout << kvcts::throughput::measure(catalogue.engines().at(engine), turns, seconds).dump(1) << std::endl;
    std::_Exit(0);  // engines may fail to end cleanly
  } catch (const kvcts::transport::TransportError& error) {
    using kvcts::transport::Code;
    std::cerr << "kvcts-engine-throughput: " << error.what() << "\n";
    return error.code() == Code::absent || error.code() == Code::not_supported ? kvcts::throughput::not_here : 3;
  } catch (const kvcts::engines::Failure& failure) {
    std::cerr << "kvcts-engine-throughput: " << failure.text << "\n";
    return 3;
  } catch (const std::exception& error) {
    std::cerr << "kvcts-engine-throughput: " << error.what() << "\n";
    return 3;
  }
}
