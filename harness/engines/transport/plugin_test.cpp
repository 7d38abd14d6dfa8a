// Plug-ins that break the ABI: each yields one clear, typed error, and the host survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "engines/transport/packages.hpp"
#include "engines/transport/session.hpp"
#include "testing/checkout.hpp"
#include "testing/temporary_folder.hpp"

namespace kvcts::transport {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

fs::path hostile(const std::string& kind) {
  return fs::path(checkout::build()) / "harness/engines/transport/hostile" / ("kvcts_hostile_" + kind + ".so");
}

/// The error of `call`, which must throw one.
template <class Call>
TransportError error_of(Call&& call) {
  try {
    call();
  } catch (const TransportError& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {Code::invalid, ""};
}

struct Row {
  std::string kind;
  std::string says;
};

class HostileTable : public ::testing::TestWithParam<Row> {};

TEST_P(HostileTable, IsOneClearError) {
  const auto error = error_of([&] { Plugin::load(hostile(GetParam().kind)); });
  EXPECT_EQ(error.code(), Code::contract);
  EXPECT_THAT(error.what(), HasSubstr(GetParam().says));
  EXPECT_THAT(error.what(), HasSubstr("kvcts_hostile_" + GetParam().kind)) << "the error names the file";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, HostileTable,
    ::testing::Values(Row{"null_entry", "returned NULL"}, Row{"wrong_version", "transport ABI 4711, expected 1"},
                      Row{"old_version",
                          "does not speak version 1 of the transport ABI; it speaks version 0; build it against"},
                      Row{"truncated", "lacks required calls: prepare, post, poll, release, last_error"},
                      Row{"huge_size", "bytes; expected"}, Row{"tiny_size", "claims a size of 4 bytes"},
                      Row{"missing_calls", "lacks required calls: post, poll"}, Row{"no_name", "name is NULL"},
                      Row{"name_without_end", "longer than 255 bytes"}, Row{"no_entry", "exports no kvcts_transport_entry"}),
    [](const auto& row) { return row.param.kind; });

class HostileAgent : public ::testing::TestWithParam<Row> {};

TEST_P(HostileAgent, IsOneClearErrorAtOpen) {
  const auto plugin = Plugin::load(hostile(GetParam().kind));
  const auto error = error_of([&] { Session(plugin, {.name = "a", .role = Role::producer, .options = {}}); });
  EXPECT_THAT(error.what(), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostileAgent,
                         ::testing::Values(Row{"bad_status", "returned status 4711"},
                                           Row{"no_agent", "open returned OK and no agent"},
                                           Row{"lying_claims", "alignment is 3"},
                                           Row{"long_claims", "claims: wrote beyond the end of a structure"},
                                           Row{"other_size", "claims: changed the size of a structure"},
                                           Row{"null_text", "hostile: open: backend"}),
                         [](const auto& row) { return row.param.kind; });

TEST(HostileCalls, InvalidAnswersAreContractViolations) {
  // A table that passes the checks of load and open, and then returns nonsense from every call.
  const auto plugin = Plugin::load(hostile("nonsense"));
  Session session(plugin, {.name = "a", .role = Role::producer, .options = {}});
  EXPECT_EQ(error_of([&] { session.register_region({}); }).code(), Code::contract);
  EXPECT_EQ(error_of([&] { session.metadata({}); }).code(), Code::contract);
  EXPECT_EQ(error_of([&] { session.add_peer("x"); }).code(), Code::contract);
  EXPECT_EQ(error_of([&] { session.prepare(1, Op::write, {}); }).code(), Code::contract);
  EXPECT_EQ(error_of([&] { session.poll(1); }).code(), Code::contract);
}

TEST(PluginFile, DistinguishesAnInvalidLibraryFromAMissingOne) {
  EXPECT_EQ(error_of([] { Plugin::load("/nonexistent/plugin.so"); }).code(), Code::cannot_load);
  const fs::path text = fs::path(::testing::TempDir()) / "kvcts_not_a_library.so";
  std::ofstream(text) << "not a library";
  EXPECT_EQ(error_of([&] { Plugin::load(text); }).code(), Code::cannot_load);
  fs::remove(text);
  const auto error = error_of([] { find_plugin("kvcts_engine_of_nobody"); });
  EXPECT_EQ(error.code(), Code::absent);
  EXPECT_THAT(error.what(), HasSubstr("KVCTS_ENGINE_PATH"));
}

TEST(PluginFile, ATableOfALaterMinorSizeIsAccepted) {
  // Members may be added at the end: of a longer table the host reads what it knows.
  struct Longer {
    kvcts_transport table;
    std::array<void*, 8> later;
  };
  static Longer longer{Plugin::load(hostile("nonsense"))->table(), {}};
  longer.table.size = sizeof longer;
  EXPECT_EQ(Plugin::adopt(&longer.table, "longer")->engine(), "hostile");
}

TEST(Packages, HaveTheirPipDistributionNames) {
  EXPECT_EQ(distribution("nixl-1.5.1"), "nixl_cu12-1.5.1.dist-info");
  EXPECT_EQ(distribution("nixl-cu13-1.5.1"), "nixl_cu13-1.5.1.dist-info");
  EXPECT_EQ(distribution("mooncake-0.3.13.post1"), "mooncake_transfer_engine_non_cuda-0.3.13.post1.dist-info");
  EXPECT_EQ(distribution("acme-1"), "");
  EXPECT_TRUE(package_folder("acme-1").empty());
  EXPECT_TRUE(package_missing("acme-1").starts_with("engine package acme-1 is not ")) << package_missing("acme-1");
}

TEST(Packages, TakeTheirVersionFromTheInstalledFolder) {
  const testing_support::TemporaryFolder root;
  const auto folder = root.path() / "nixl-1.5.1";
  std::filesystem::create_directories(folder);
  const std::string before = packages_folder().string();
  ::setenv(packages_variable, root.path().c_str(), 1);
  EXPECT_EQ(package_version("nixl-1.5.1"), "1.5.1");
  std::ofstream(folder / "kvcts-pins").put('1');
  std::filesystem::create_directories(folder / "nixl_cu12-1.6.0.dev3.dist-info");
  EXPECT_EQ(package_version("nixl-1.5.1"), "1.6.0.dev3");
  EXPECT_EQ(package_version(""), "none chosen");
  ::setenv(packages_variable, before.c_str(), 1);
}

}  // namespace
}  // namespace kvcts::transport
