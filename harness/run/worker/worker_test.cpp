// The worker without its process: every request, and every way in which code under test can refuse.
#include "run/worker/worker.hpp"
#include "testing/checkout.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "case/testing/small_case.hpp"
#include "process/status_view.hpp"
#include "run/worker/base64.hpp"

namespace kvcts::worker {
namespace {

using nlohmann::json;

TEST(Base64, RoundTripsAndRefusesInvalidText) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  std::mt19937 random(7);
  for (int length = 0; length < 100; ++length) {
    std::string bytes;
    for (int i = 0; i < length; ++i) bytes += static_cast<char>(random());
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
  for (const char* bad : {"Z", "Zg=", "Zg==Zg==", "Z!==", "====", "Zm9v\n"})
    EXPECT_THROW(from_base64(bad), std::runtime_error) << bad;
}

class WorkerTest : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("KVCTS_ENGINE_PATH", (checkout::build() + "/lib/kvcts/engines").c_str(), 1); }

  static json hello(Worker& worker, const json& options = json::object(), const std::string& engine = "memcpy") {
    return worker.handle({{"op", "hello"},
                          {"role", "both"},
                          {"engine", {{"name", engine}, {"plugin", "kvcts_engine_" + engine}, {"options", options}}}},
                         {});
  }

  /// Plain zeroed files for each region of the case, as the checker would create them.
  json prepare(Worker& worker, const ResolvedCase& c, std::uint64_t key = 1, bool sealed = true) {
    json files = json::array();
    std::vector<process::UniqueFd> fds;
    maps_.clear();
    for (const Side side : {Side::producer, Side::consumer})
      for (const RegionRef& region : regions(c, side)) {
        const std::size_t size = static_cast<std::size_t>(region.bytes) + 8192;
        process::UniqueFd fd =
            sealed ? process::create_memory_file(region.name, size) : process::UniqueFd(::memfd_create("loose", 0));
        if (!sealed) {
          EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
        }
        maps_.emplace_back(fd.get(), size);
        fds.push_back(std::move(fd));
        files.push_back(
            {{"side", name(side)}, {"name", region.name}, {"size", size}, {"base", 4096}, {"bytes", region.bytes}});
      }
    return worker.handle({{"op", "prepare"}, {"key", key}, {"case", worker_view(c)}, {"files", files}}, std::move(fds));
  }

  static json ask(Worker& worker, const std::string& op, std::uint64_t key = 1) {
    return worker.handle({{"op", op}, {"key", key}}, {});
  }
  static json end(Worker& worker, const std::string& call, std::uint64_t key = 1) {
    return worker.handle({{"op", "end"}, {"key", key}, {"call", call}}, {});
  }

  std::vector<process::Mapping> maps_;
};

TEST_F(WorkerTest, RunsACaseFromBeginToEnd) {
  process::MemoryFile file("status", sizeof(process::StatusPage));
  auto* page = new (file.map.data()) process::StatusPage();
  Worker worker("both", page);
  const json greeting = hello(worker);
  ASSERT_TRUE(greeting.value("ok", false)) << greeting.dump();
  EXPECT_EQ(greeting["engine"]["name"], "memcpy");
  EXPECT_TRUE(greeting["engine"]["claims"].contains("max_descriptors"));
  const ResolvedCase c = small_case("a");
  ASSERT_TRUE(prepare(worker, c, 77).value("ok", false));
  EXPECT_EQ(process::view(*page).key, 77u);
  EXPECT_EQ(process::view(*page).phase, Phase::registration);
  for (process::Mapping& map : maps_) std::fill_n(map.data(), map.size(), std::uint8_t{9});
  const json plan = ask(worker, "plan", 77);
  ASSERT_TRUE(plan.value("ok", false)) << plan.dump();
  EXPECT_GT(plan["copies"].get<int>(), 0);
  EXPECT_LE(plan["sample"].size(), 64u);
  const json moved = ask(worker, "transfer", 77);
  EXPECT_EQ(moved["moved"], plan["bytes"]);
  EXPECT_EQ(process::view(*page).phase, Phase::complete);
  EXPECT_EQ(process::view(*page).done, plan["bytes"].get<std::uint64_t>());
  EXPECT_TRUE(ask(worker, "transfer", 77).contains("error")) << "the requests are kept until the memory was compared";
  EXPECT_TRUE(end(worker, "release", 77).value("ok", false));
  EXPECT_TRUE(ask(worker, "transfer", 77).value("ok", false));  // a second pass, same registration
  EXPECT_TRUE(end(worker, "dance", 77).contains("error"));
  EXPECT_TRUE(end(worker, "end", 77).contains("error")) << "that is for programs";
  for (const char* call : {"release", "remove_peer", "deregister"})
    EXPECT_GT(end(worker, call, 77)["peak_bytes"].get<std::int64_t>(), 0) << call;
  EXPECT_TRUE(ask(worker, "transfer", 77).contains("error"));
  EXPECT_TRUE(end(worker, "deregister", 77).value("ok", false));  // twice is harmless
  EXPECT_TRUE(worker.handle({{"op", "forget"}, {"keys", {77, 78}}}, {}).value("ok", false));
  EXPECT_TRUE(prepare(worker, c, 77).value("ok", false));
}

TEST_F(WorkerTest, ReportsCompletionImmediately) {
  std::vector<std::vector<std::uint8_t>> seen;
  const auto memory = [&] {
    std::vector<std::uint8_t> all;
    for (const process::Mapping& map : maps_) all.insert(all.end(), map.data(), map.data() + map.size());
    return all;
  };
  Worker worker("both", nullptr, {}, [&](const std::string&) { seen.push_back(memory()); });
  ASSERT_TRUE(hello(worker, {{"fault", "early"}, {"delay_us", "300000"}}, "fixture").value("ok", false));
  ASSERT_TRUE(prepare(worker, small_case("a")).value("ok", false));
  ASSERT_TRUE(ask(worker, "plan").value("ok", false));
  for (std::size_t i = 0; i < maps_.size(); ++i) std::fill_n(maps_[i].data(), maps_[i].size(), static_cast<std::uint8_t>(i));
  const auto before = memory();
  ASSERT_TRUE(ask(worker, "transfer").value("ok", false));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0], before);
  EXPECT_TRUE(end(worker, "release").value("ok", false));
  EXPECT_TRUE(ask(worker, "transfer").value("ok", false));
  EXPECT_EQ(seen.size(), 2u) << "once for each transfer";
}

TEST_F(WorkerTest, AnswersInvalidRequestsWithAnError) {
  Worker worker("both", nullptr);
  EXPECT_TRUE(worker.handle(json::object(), {}).contains("error"));
  EXPECT_TRUE(worker.handle({{"op", 3}}, {}).contains("error"));
  EXPECT_TRUE(ask(worker, "dance").contains("error"));
  EXPECT_TRUE(ask(worker, "plan").contains("error"));
  EXPECT_TRUE(prepare(worker, small_case("a")).contains("error"));  // before hello
  ASSERT_TRUE(hello(worker).value("ok", false));
  EXPECT_TRUE(hello(worker).contains("error"));                               // one plug-in, for life
  EXPECT_TRUE(prepare(worker, small_case("a"), 2, false).contains("error"));  // a file that could be shrunk under us
  EXPECT_TRUE(
      worker.handle({{"op", "prepare"}, {"key", 3}, {"case", worker_view(small_case("a"))}, {"files", json::array({1})}}, {})
          .contains("error"));
  ResolvedCase c = small_case("a");
  c.connector.kind = "nonsense";
  EXPECT_TRUE(prepare(worker, c, 4).contains("error"));
  Worker roleless("unknown", nullptr);
  EXPECT_TRUE(hello(roleless).contains("error"));
}

TEST_F(WorkerTest, SkipsAMissingEngineAndReportsLoadErrorsAndRefusals) {
  Worker worker("both", nullptr);
  const json skipped = hello(worker, json::object(), "of_somebody_else");
  ASSERT_TRUE(skipped.contains("skipped")) << skipped.dump();
  EXPECT_NE(skipped["skipped"]["text"].get<std::string>().find("kvcts_engine_of_somebody_else"), std::string::npos);
  const auto text = std::filesystem::path(::testing::TempDir()) / "kvcts_engine_of_text.so";
  std::ofstream(text) << "not a library";
  const json broken = worker.handle({{"op", "hello"},
                                     {"role", "both"},
                                     {"name", "test"},
                                     {"engine", {{"name", "text"}, {"plugin", text.string()}, {"options", json::object()}}}},
                                    {});
  ASSERT_TRUE(broken.contains("raised")) << broken.dump();
  EXPECT_EQ(broken["raised"]["type"], "CannotLoad");
  const json lacking = hello(worker, {{"fault", "refuse"}, {"phase", "open"}}, "fixture");
  ASSERT_TRUE(lacking.contains("skipped")) << lacking.dump();
  EXPECT_NE(lacking["skipped"]["text"].get<std::string>().find("refused on purpose"), std::string::npos);
  const json refused = hello(worker, {{"no_such_option", "1"}});
  ASSERT_TRUE(refused.contains("refused")) << refused.dump();
  EXPECT_EQ(refused["refused"]["at"], "engine: invalid");
}

TEST_F(WorkerTest, LetsTheEngineRefuseCopiesOutsideRegions) {
  for (const Copy& bad : {Copy{0, 0, 0, 1 << 30, 16}, Copy{0, -8, 0, 0, 16}, Copy{99, 0, 0, 0, 16}, Copy{0, 0, 99, 0, 16},
                          Copy{-1, 0, 0, 0, 16}}) {
    process::MemoryFile file("status", sizeof(process::StatusPage));
    Worker worker("both", new (file.map.data()) process::StatusPage());
    ASSERT_TRUE(hello(worker).value("ok", false));
    ResolvedCase c = small_case("a");
    c.connector.kind = "explicit";
    c.copies = {bad};
    ASSERT_TRUE(prepare(worker, c).value("ok", false));
    const json plan = ask(worker, "plan");
    if (!plan.value("ok", false)) {  // the connector may refuse first
      EXPECT_TRUE(plan.contains("refused") || plan.contains("raised")) << plan.dump();
      continue;
    }
    const json moved = ask(worker, "transfer");
    EXPECT_TRUE(moved.contains("refused")) << moved.dump();
    EXPECT_EQ(moved.value("phase", ""), "transfer");
    for (const char* call : {"release", "remove_peer", "deregister"})
      EXPECT_TRUE(end(worker, call).value("ok", false)) << call;
    ASSERT_TRUE(prepare(worker, small_case("b"), 2).value("ok", false));  // the next case runs
    EXPECT_TRUE(ask(worker, "plan", 2).value("ok", false));
    EXPECT_TRUE(ask(worker, "transfer", 2).value("ok", false));
  }
}

}  // namespace
}  // namespace kvcts::worker
