// Specific to the NIXL plug-in; conformance_test.cpp has the common tests. Skipped if the package is not installed.
// Each body runs in a separate process, with a target in another one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "engines/testing/isolated.hpp"
#include "engines/transport/packages.hpp"

namespace kvcts::testing {
namespace {

using transport::Code;
using transport::Op;
using transport::Session;
using transport::TransportError;

constexpr std::size_t bytes = 1 << 20;

Placement nixl(const std::string& package, const std::string& transports, std::map<std::string, std::string> options) {
  return {"nixl",
          "kvcts_engine_nixl",
          2,
          std::move(options),
          {{transport::package_variable, package},
           {"UCX_TLS", transports},
           {"UCX_NET_DEVICES", "lo"},
           {"UCX_MEM_MMAP_HOOK_MODE", "none"},
           {"UCX_HANDLE_ERRORS", "none"},
           {"UCX_LOG_LEVEL", "fatal"},
           {"NIXL_LOG_LEVEL", "FATAL"}}};
}

class NixlPlugin : public ::testing::Test {
 protected:
  void isolated(const std::string& package, const std::function<void()>& body) {
    if (!package.empty() && transport::package_folder(package).empty()) GTEST_SKIP() << transport::package_missing(package);
    run_isolated(body);
  }

  /// Writes 1 MiB; returns how that ended, and the facts.
  static std::string write(const Placement& setup, transport::Facts* facts = nullptr) {
    Memory here(bytes), there(bytes);
    here.fill(1);
    const auto target = start_target(setup);
    Session session = open_initiator(setup);
    const auto local = session.register_region(here.region(0, bytes));
    const auto peer = session.add_peer(target->metadata({target->add(there.region(0, bytes))}));
    const std::string message = refusal([&] {
      const auto request = session.post(peer, Op::write, {{local, 0, 0, 0, bytes}});
      session.wait(request);
      session.release(request);
    });
    if (message.empty()) {
      EXPECT_TRUE(here.copy() == there.copy()) << "complete, and the bytes differ";
    }
    if (facts != nullptr) *facts = session.facts();
    return message;
  }
};

TEST_F(NixlPlugin, TakesThePathOfEachPersonality) {
  for (const std::string package : {"nixl-1.5.1", "nixl-1.2.0"}) {
    isolated(package, [&] {
      transport::Facts facts;
      ASSERT_EQ(write(nixl(package, "tcp", {{"path", "tcp"}}), &facts), "");
      EXPECT_EQ(facts["transport"], "tcp/lo");
      EXPECT_GE(std::stoull(facts["tcp_bytes_sent"]), bytes) << "by the kernel's count";
      EXPECT_EQ(facts["engine_bytes"], std::to_string(bytes)) << "by NIXL's own count";
    });
    isolated(package, [&] {
      transport::Facts facts;
      ASSERT_EQ(write(nixl(package, "tcp,cma", {{"path", "cma"}}), &facts), "");
      EXPECT_EQ(facts["transport"], "cma/memory");
      EXPECT_LT(std::stoull(facts["tcp_bytes_sent"]), 65536u);
    });
  }
}

TEST_F(NixlPlugin, FailsOnAnyPathButTheNamedOne) {
  isolated("nixl-1.5.1", [] {
    const std::string message = write(nixl("nixl-1.5.1", "tcp,cma", {{"path", "tcp"}}));
    EXPECT_NE(message.find("expected the path tcp; UCX chose cma/memory"), std::string::npos) << message;
  });
  isolated("nixl-1.5.1", [] {
    const std::string message = write(nixl("nixl-1.5.1", "tcp", {{"path", "cma"}}));
    EXPECT_NE(message.find("expected the path cma; UCX chose tcp/lo"), std::string::npos) << message;
  });
}

TEST_F(NixlPlugin, ReturnsExactErrorCodes) {
  isolated("nixl-1.5.1", [] {
    Memory there(4096);
    const Placement setup = nixl("nixl-1.5.1", "tcp", {{"guard", "off"}});
    const auto target = start_target(setup);
    Session session = open_initiator(setup);
    EXPECT_EQ(session.facts().at("exact_codes"), "yes");
    const auto peer = session.add_peer(target->metadata({target->add(there.region(0, 4096))}));
    // Unregistered memory: the C interface says "backend", NIXL says "not found".
    for (const std::uint64_t count : {1u, 2u}) {
      try {
        session.prepare(peer, Op::write, {count, transport::Descriptor{KVCTS_NO_REGION, 4096, 0, 0, 8}});
        ADD_FAILURE() << "accepted";
      } catch (const TransportError& error) {
        EXPECT_EQ(error.code(), Code::not_found);
        EXPECT_EQ(error.native(), -4);
      }
    }
  });
}

TEST_F(NixlPlugin, NamesTheMissingPackage) {
  isolated("", [] {
    const std::string message = refusal([] { open_initiator(nixl("nixl-0.0.0", "tcp", {})); });
    EXPECT_NE(message.find("engine package nixl-0.0.0 is not installed"), std::string::npos) << message;
    EXPECT_NE(message.find("./run_suite.sh install"), std::string::npos) << message;
  });
}

TEST_F(NixlPlugin, NamesWrongOptions) {
  for (const auto& [option, value] : std::map<std::string, std::string>{{"error_handling", "some"},
                                                                        {"lists", "long"},
                                                                        {"progress_thread", "yes"},
                                                                        {"path", "rdma"},
                                                                        {"guard", "maybe"}}) {
    isolated("nixl-1.5.1", [name = option, wrong = value] {
      const std::string message = refusal([&] { open_initiator(nixl("nixl-1.5.1", "tcp", {{name, wrong}})); });
      EXPECT_NE(message.find(name + " is \"" + wrong + "\", expected"), std::string::npos) << message;
    });
  }
}

}  // namespace
}  // namespace kvcts::testing
