// Specific to the Mooncake plug-in; conformance_test.cpp has the common tests. Skipped if the packages are not
// installed. Each body runs in a separate process, with a target in another one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "engines/testing/isolated.hpp"
#include "engines/transport/packages.hpp"

namespace kvcts::testing {
namespace {

namespace fs = std::filesystem;
using transport::Code;
using transport::Op;
using transport::Session;
using transport::TransportError;

constexpr std::size_t bytes = 1 << 20;
const std::string newer = "mooncake-0.3.13.post1", older = "mooncake-0.3.12.post1";

Placement mooncake(const std::string& package, std::map<std::string, std::string> options = {}) {
  return {"mooncake",
          "kvcts_engine_mooncake",
          2,
          std::move(options),
          {{transport::package_variable, package},
           {"MC_FORCE_TCP", "1"},
           {"MC_LOG_LEVEL", "ERROR"},
           {"MC_TCP_ENABLE_CONNECTION_POOL", "1"},
           {"MC_TCP_STATUS_TIMEOUT_SEC", "1"},
           {"MC_TCP_PROGRESS_TIMEOUT_SEC", "1"}}};
}

class MooncakePlugin : public ::testing::Test {
 protected:
  void isolated(const std::function<void()>& body) {
    for (const auto& package : {newer, older}) {
      if (transport::package_folder(package).empty()) GTEST_SKIP() << transport::package_missing(package);
    }
    run_isolated(body);
  }
};

TEST_F(MooncakePlugin, CountsItsBytesOverTcpLikeTheKernel) {
  for (const auto& [here, there] :
       {std::pair(newer, newer), std::pair(older, older), std::pair(newer, older), std::pair(older, newer)}) {
    isolated([initiator = here, target_package = there] {
      const Placement setup = mooncake(initiator, {{"consumer_package", target_package}});
      Memory from(bytes), to(bytes);
      from.fill(1);
      const auto target = start_target(setup);
      Session session = open_initiator(setup);
      EXPECT_EQ("mooncake-" + session.plugin().version(), initiator);
      const auto local = session.register_region(from.region(0, bytes));
      const auto peer = session.add_peer(target->metadata({target->add(to.region(0, bytes))}));
      const auto request = session.post(peer, Op::write, {{local, 0, 0, 0, bytes}});
      session.wait(request);
      session.release(request);
      EXPECT_TRUE(from.copy() == to.copy());
      const auto facts = session.facts();
      EXPECT_EQ(facts.at("transport"), "tcp");
      EXPECT_GE(std::stoull(facts.at("tcp_bytes")), bytes);
      EXPECT_EQ(facts.at("engine_bytes"), std::to_string(bytes));
      EXPECT_EQ(facts.at("package"), initiator);
    });
  }
}

TEST_F(MooncakePlugin, SendsAListInBatches) {
  isolated([] {
    const Placement setup = mooncake(newer, {{"window", "7"}});
    Memory from(bytes), to(bytes);
    from.fill(1);
    const auto target = start_target(setup);
    Session session = open_initiator(setup);
    const auto local = session.register_region(from.region(0, bytes));
    const auto peer = session.add_peer(target->metadata({target->add(to.region(0, bytes))}));
    std::vector<transport::Descriptor> list;
    for (std::size_t i = 0; i < 64; ++i) list.push_back({local, i * 4096, 0, (63 - i) * 4096, 4096});
    const auto request = session.post(peer, Op::write, list);
    session.wait(request);
    EXPECT_EQ(session.facts().at("batches"), "10");
    const std::string source = from.copy(), found = to.copy();
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(source.substr(i * 4096, 4096), found.substr((63 - i) * 4096, 4096));
  });
}

TEST_F(MooncakePlugin, RefusesAnUnknownVersion) {
  isolated([] {
    const fs::path place = fs::temp_directory_path() / ("kvcts-mooncake-" + std::to_string(getpid()));
    const fs::path package = place / "mooncake-9.9.9";
    fs::create_directories(package / "mooncake");
    std::ofstream(package / "kvcts-pins") << "pinned\n";
    setenv(transport::packages_variable, place.c_str(), 1);
    const auto message = [] { return refusal([] { open_initiator(mooncake("mooncake-9.9.9")); }); };
    EXPECT_NE(message().find("there is no mooncake/engine.so"), std::string::npos) << message();
    fs::copy_file("/proc/self/exe", package / "mooncake/engine.so");  // an ELF file with another build ID
    EXPECT_NE(message().find("is of a version that this plug-in does not know (build ID "), std::string::npos) << message();
    std::ofstream(package / "mooncake/engine.so") << "no library";
    EXPECT_NE(message().find("(build ID none)"), std::string::npos) << message();
    fs::remove_all(place);
  });
}

TEST_F(MooncakePlugin, LoadsOneVersionPerProcess) {
  isolated([] {
    const Session first = open_initiator(mooncake(newer));
    const std::string message = refusal([] { open_initiator(mooncake(older)); });
    EXPECT_NE(message.find("this process runs mooncake-0.3.13.post1 already"), std::string::npos) << message;
  });
}

TEST_F(MooncakePlugin, NamesTheMissingPackage) {
  isolated([] {
    const std::string message = refusal([] { open_initiator(mooncake("mooncake-0.0.0")); });
    EXPECT_NE(message.find("engine package mooncake-0.0.0 is not installed"), std::string::npos) << message;
    EXPECT_NE(message.find("./run_suite.sh install"), std::string::npos) << message;
  });
}

TEST_F(MooncakePlugin, NamesWrongOptions) {
  for (const auto& [option, value] : std::map<std::string, std::string>{
           {"guard", "maybe"}, {"window", "many"}, {"ends", "some"}, {"peer_fault", "sleeps"}, {"peer_fault_at", "dawn"}}) {
    isolated([name = option, wrong = value] {
      const std::string message = refusal([&] { open_initiator(mooncake(newer, {{name, wrong}})); });
      EXPECT_NE(message.find(name + " is \"" + wrong + "\", expected"), std::string::npos) << message;
    });
  }
}

TEST_F(MooncakePlugin, TimesOutOnAStoppedPeerWhoseBytesArriveLate) {
  isolated([] {
    const Placement setup = mooncake(newer, {{"peer_fault", "stop"}, {"peer_resume_ms", "200"}});
    Memory from(4096), to(4096);
    from.fill(1);
    const std::string before = to.copy();
    const auto target = start_target(setup);
    Session session = open_initiator(setup);
    const auto local = session.register_region(from.region(0, 4096));
    const auto peer = session.add_peer(target->metadata({target->add(to.region(0, 4096))}));
    const auto request = session.post(peer, Op::write, {{local, 0, 0, 0, 4096}});
    const auto start = std::chrono::steady_clock::now();
    try {
      session.wait(request);
      ADD_FAILURE() << "completed";
    } catch (const TransportError& error) {
      EXPECT_EQ(error.code(), Code::timed_out) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(to.copy(), before) << "at the time of the failure";
    session.release(request);
    for (int i = 0; i < 500 && to.copy() == before; ++i) usleep(10'000);
    EXPECT_EQ(to.copy(), from.copy()) << "rule M11: written after it failed and was given back";
  });
}

}  // namespace
}  // namespace kvcts::testing
