// What plug-in front does to an engine: the engine itself moves the wrong list and counts it, its name and claims are
// unchanged, and impossible faults are reported. Each body runs in a separate process, with a target in another one.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "case/catalogue/catalogue.hpp"
#include "engines/testing/isolated.hpp"
#include "engines/testing/placement.hpp"
#include "engines/transport/packages.hpp"
#include "testing/checkout.hpp"

namespace kvcts::testing {
namespace {

using transport::Descriptor;
using transport::Facts;
using transport::Op;
using transport::RegionId;
using transport::Session;
using Options = std::map<std::string, std::string>;

constexpr std::size_t slot = 4096, slots = 16;

/// Engines of cases/engines to put it in front of; those not built or installed are left out.
std::vector<Placement> engines() {
  const catalogue::Catalogue catalogue(std::filesystem::path(checkout::source()) / "cases");
  const auto built = transport::list_plugins();
  std::vector<Placement> all;
  for (const char* id : {"shm", "ucx-tcp", "nixl-tcp", "mooncake"}) {
    Placement setup = placement_of(catalogue.engines().at(id));
    const auto package = setup.environment.find(transport::package_variable);
    if (std::find(built.begin(), built.end(), setup.plugin) == built.end()) continue;
    if (package != setup.environment.end() && transport::package_folder(package->second).empty()) continue;
    all.push_back(std::move(setup));
  }
  return all;
}

/// `setup` with the front before it, wrong according to `options`.
Placement proxied(Placement setup, const Options& options) {
  setup.environment["KVCTS_FRONT_OF"] = std::exchange(setup.plugin, "kvcts_engine_front");
  for (const auto& [key, value] : options) setup.options["front." + key] = value;
  return setup;
}

/// One request of 16 slots, each to the same slot of the other side.
struct Transfer {
  Transfer(const Placement& setup, Op way) : target(start_target(setup)), session(open_initiator(setup)), op(way) {
    here.fill(1), there.fill(2);
    before_here = here.copy(), before_there = there.copy();
    local = session.register_region(here.region(0, here.size()));
    peer = session.add_peer(target->metadata({target->add(there.region(0, there.size()))}));
    std::vector<Descriptor> list;
    for (std::uint64_t i = 0; i < slots; ++i) list.push_back({local, i * slot, 0, i * slot, slot});
    const auto request = session.post(peer, op, std::move(list));
    EXPECT_EQ(session.wait(request).bytes.value_or(slots * slot), slots * slot) << "it reports like correct code";
    session.release(request);
    facts = session.facts();
  }
  /// The destination, the source, and their initial contents.
  std::string arrived() { return op == Op::write ? there.copy() : here.copy(); }
  std::string source() { return op == Op::write ? here.copy() : there.copy(); }
  const std::string& poison() const { return op == Op::write ? before_there : before_here; }
  const std::string& sent() const { return op == Op::write ? before_here : before_there; }
  std::string counted() { return facts[op == Op::write ? "bytes_written" : "bytes_read"]; }

  Memory here{slot * slots}, there{slot * slots};
  std::string before_here, before_there;
  std::unique_ptr<Target> target;
  Session session;
  Op op;
  RegionId local{0};
  transport::PeerId peer{0};
  Facts facts;
};

std::string number(std::size_t value) { return std::to_string(value); }

class InjectorProxy : public ::testing::TestWithParam<Placement> {
 protected:
  /// Runs `body` for writes and for reads.
  static void both_ways(const Options& options, const std::function<void(Transfer&)>& body) {
    for (const Op op : {Op::write, Op::read}) {
      run_isolated([&] {
        SCOPED_TRACE(op == Op::write ? "write" : "read");
        Transfer transfer(proxied(GetParam(), options), op);
        body(transfer);
      });
    }
  }
};

TEST_P(InjectorProxy, PassesEverythingThroughWithoutAFault) {
  both_ways({}, [](Transfer& t) {
    EXPECT_TRUE(t.arrived() == t.sent());
    EXPECT_EQ(t.counted(), number(slots * slot));
    const std::string stem = "kvcts_engine_" + t.session.plugin().engine();
    EXPECT_EQ(stem, GetParam().plugin) << "its name stays";
    EXPECT_EQ(t.facts["front_fault"], "none");
  });
}

TEST_P(InjectorProxy, LetsTheEngineCountTheEditedList) {
  both_ways({{"fault", "drop_every"}, {"n", "2"}}, [](Transfer& t) {
    std::string wanted = t.sent();
    for (std::size_t i = 1; i < slots; i += 2) wanted.replace(i * slot, slot, t.poison(), i * slot, slot);
    EXPECT_TRUE(t.arrived() == wanted) << "every second slot is unchanged";
    EXPECT_EQ(t.facts["descriptors"], number(slots / 2));
    EXPECT_EQ(t.counted(), number(slots / 2 * slot));
    EXPECT_EQ(t.facts["front_asked_descriptors"], number(slots));
    EXPECT_EQ(t.facts["front_asked_bytes"], number(slots * slot));
  });
}

TEST_P(InjectorProxy, ReversesTheListBeforeTheEngine) {
  both_ways({{"fault", "reverse_direction"}}, [](Transfer& t) {
    EXPECT_TRUE(t.arrived() == t.poison());
    EXPECT_TRUE(t.source() == t.poison());
    EXPECT_EQ(t.facts[t.op == Op::write ? "bytes_read" : "bytes_written"], number(slots * slot));
    EXPECT_EQ(t.counted(), "0");
  });
}

TEST_P(InjectorProxy, ChangesBytesInTransitAndKeepsTheSource) {
  both_ways({{"fault", "swap_nibbles"}}, [](Transfer& t) {
    std::string wanted = t.sent();
    for (char& one : wanted) one = static_cast<char>((one >> 4 & 15) | one << 4);
    EXPECT_TRUE(t.arrived() == wanted);
    EXPECT_TRUE(t.source() == t.sent());
    EXPECT_EQ(t.counted(), number(slots * slot));
  });
}

TEST_P(InjectorProxy, SendsExtraWritesThroughTheEngine) {
  both_ways({{"fault", "wipe_source"}}, [](Transfer& t) {
    EXPECT_TRUE(t.arrived() == t.sent());
    EXPECT_TRUE(t.source() == std::string(slots * slot, '\0'));
    if (t.op == Op::read) {
      EXPECT_EQ(t.facts["bytes_written"], number(slots * slot));
    }
  });
}

TEST_P(InjectorProxy, ReadsThePeerThroughTheEngine) {
  both_ways({{"fault", "skip_same"}, {"n", "1"}}, [](Transfer& t) {
    std::size_t skipped = 0;
    for (std::size_t i = 0; i < slots; ++i) skipped += t.arrived().compare(i * slot, slot, t.poison(), i * slot, slot) == 0;
    EXPECT_GT(skipped, 0u);
    EXPECT_LT(skipped, slots);
    if (t.op == Op::read) {
      EXPECT_EQ(t.counted(), number((2 * slots - skipped) * slot)) << "a look at the sources, then the rest of the list";
    }
  });
}

TEST_P(InjectorProxy, WritesLateBytesAfterTheCase) {
  for (const std::string fault : {"late_write", "early_success"}) {
    both_ways({{"fault", fault}, {"delay_us", "400000"}}, [&](Transfer& t) {
      EXPECT_TRUE(t.arrived() == (fault == "late_write" ? t.sent() : t.poison()));
      t.session.remove_peer(t.peer);  // as a case ends
      t.session.deregister(t.local);
      std::string wanted = t.sent();
      for (std::size_t i = wanted.size() - 64; fault == "late_write" && i < wanted.size(); ++i)
        wanted[i] = static_cast<char>(~wanted[i]);
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (t.arrived() != wanted && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_TRUE(t.arrived() == wanted) << fault;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, InjectorProxy, ::testing::ValuesIn(engines()), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ProxyOptions, ReadFaultsAreRefusedForAWriteOnlyEngine) {
  run_isolated([] {
    const Placement writes_only{"hostile", "kvcts_engine_hostile", 2, {{"mode", "claim:can_read=0"}}, {}};
    EXPECT_EQ(refusal([&] { open_initiator(proxied(writes_only, {{"fault", "reverse_direction"}})); }),
              "hostile: open: not supported: fault reverse_direction needs an engine that reads and writes; hostile does "
              "not read");
    EXPECT_EQ(refusal([&] { open_initiator(proxied(writes_only, {{"fault", "drop_every"}, {"n", "2"}})); }), "");
  });
}

TEST(ProxyOptions, MistakesAreRefusedByTheOwnerOfTheOption) {
  run_isolated([] {
    const Placement shm{"shm", "kvcts_engine_shm", 2, {}, {}};
    EXPECT_NE(refusal([&] { open_initiator(proxied(shm, {{"fault", "nothing_known"}})); }).find("there is no fault"),
              std::string::npos);
    EXPECT_NE(refusal([&] { open_initiator(proxied(shm, {{"fault", "repeat"}, {"n", "-1"}})); }).find("front.n is -1"),
              std::string::npos);
    Placement unknown = shm;
    unknown.options["colour"] = "red";
    EXPECT_NE(refusal([&] { open_initiator(proxied(unknown, {})); }).find("unknown option \"colour\""), std::string::npos);
  });
}

}  // namespace
}  // namespace kvcts::testing
