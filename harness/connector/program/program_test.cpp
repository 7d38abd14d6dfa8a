// Connector programs without a worker: how they start, which parts of the protocol the suite enforces, and the outcome of
// each way to end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "case/testing/small_case.hpp"
#include "connector/program/host.hpp"
#include "process/memory_file.hpp"
#include "testing/checkout.hpp"
#include "testing/temporary_folder.hpp"

namespace kvcts::connector::program {
namespace {

using nlohmann::json;

const std::string programs = checkout::source() + "/harness/connector/programs/";
const std::string python = checkout::source() + "/harness/python/python";

json options_of(const std::vector<std::string>& command) {
  return {{"command", command}, {"environment", {{"OPENBLAS_NUM_THREADS", "1"}}}};
}

TEST(ProgramCommand, NamesMistakesAndMissingPrograms) {
  const auto words = [](const json& options) {
    try {
      command_of("c", options);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(words(json::object()).find("needs options: {command"), std::string::npos);
  EXPECT_NE(words({{"command", "sh"}}).find("expected a list of words"), std::string::npos);
  EXPECT_NE(words({{"command", {"sh"}}, {"port", 1}}).find("found 'port'"), std::string::npos);
  EXPECT_NE(words({{"command", {"sh"}}, {"ports", -1}}).find("expected a number"), std::string::npos);
  EXPECT_THROW(command_of("c", {{"command", {"no-such-program-anywhere"}}}), NotHere);
  EXPECT_THROW(command_of("c", {{"command", {"sh", "{connectors}/no-such-file"}}}), NoFile);
  EXPECT_EQ(command_of("c", {{"command", {"sh", "-c"}}, {"ports", 2}}).ports, 2);
}

TEST(ProgramCommand, AllowsAProgramPerSide) {
  const json options = {{"ports", 2}, {"command", {"both"}}, {"consumer", {{"command", {"newer"}}}}};
  EXPECT_EQ(options_of_side(options, Side::producer), (json{{"ports", 2}, {"command", {"both"}}}));
  EXPECT_EQ(options_of_side(options, Side::consumer), (json{{"ports", 2}, {"command", {"newer"}}}));
  EXPECT_THROW(command_of("c", {{"command", {"sh"}}, {"options_with", "handshake"}}), std::runtime_error);
  EXPECT_THROW(command_of("c", {{"command", {"sh"}}, {"job_options", {{"engine", "vllm"}}}}),
               std::runtime_error);  // without options_with: register
  EXPECT_EQ(
      command_of("c", {{"command", {"sh"}}, {"options_with", "register"}, {"job_options", {{"engine", "vllm"}}}}).options,
      json::object());
}

TEST(ProgramCommand, PrefersTheFolderOfTheUser) {
  const testing_support::TemporaryFolder folder;
  const std::string own = folder.write("template.py", "").string();
  ::setenv("KVCTS_CONNECTOR_PATH", folder.path().c_str(), 1);
  EXPECT_EQ(command_of("c", {{"command", {"sh", "{connectors}/template.py"}}}).argv[1], own);
  ::unsetenv("KVCTS_CONNECTOR_PATH");
  EXPECT_NE(command_of("c", {{"command", {"sh", "{connectors}/template.py"}}}).argv[1], own);
}

TEST(Messages, CarryClaimsAndNeverTheTruth) {
  ResolvedCase c = small_case("a");
  auto& rank = c.groups[0].producer.ranks[0];
  rank.claim.tensors[1].offset = 64;
  c.groups[0].requests.push_back({7, 4, false, {1}, {}});
  const json view = worker_view(c);
  const json reported =
      register_arguments(case_from_json(view), Side::producer, {{"kv.L0", "/f", 4096, 1024}, {"kv.L1", "/g", 4096, 1024}});
  const json& tensors = reported["groups"][0]["ranks"][0]["tensors"];
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[1]["offset"], 64);
  EXPECT_EQ(tensors[1]["memory"], 1);
  EXPECT_EQ(tensors[1]["origin"], (json{{"L", 1}}));
  EXPECT_EQ(tensors[0]["axes"], (json{"K", "B", "N", "H", "C"}));
  EXPECT_EQ(tensors[0]["shape"], (json{2, 8, 4, 2, 16}));
  EXPECT_EQ(tensors[0]["strides"], (json{8 * 256, 256, 64, 32, 2}));
  EXPECT_EQ(tensors[0]["itemsize"], 2);
  EXPECT_EQ(reported["memory"][1]["file"], "/g");
  const json moves = transfer_arguments(case_from_json(view), Side::consumer);
  ASSERT_EQ(moves["requests"].size(), 1u) << "requests that do not move are not passed on";
  EXPECT_EQ(moves["requests"][0]["blocks"], (json{6, 2, 1}));
  EXPECT_EQ(moves["requests"][0]["peer_blocks"], (json{3, 0, 5}));
}

TEST(ProgramSession, StopsWaitingForForgottenCalls) {
  ProgramSession session(command_of("c", options_of({python, programs + "hostile.py"})));
  session.wait(session.call("hello", {{"role", "producer"}, {"options", {{"fault", "transfer:pending"}}}}));
  const std::uint64_t id = session.call("transfer", {{"job", 1}, {"requests", json::array()}});
  while (!session.accepted(id)) session.pump();
  EXPECT_TRUE(session.waiting());
  session.forget();
  EXPECT_FALSE(session.waiting());
}

/// Two programs and the memory of a small case.
class HostTest : public ::testing::Test {
 protected:
  void open(const std::string& program, const json& more = json::object(), const std::string& side = "") {
    case_ = small_case("a");
    if (program == "template") case_.groups[0].consumer = case_.groups[0].producer;  // the C++ template permutes nothing
    json options =
        options_of(program == "template" ? std::vector<std::string>{checkout::build() + "/lib/kvcts/connectors/template"}
                                         : std::vector<std::string>{python, programs + program});
    for (const Side s : {Side::producer, Side::consumer}) {
      auto mine = options;
      if (side.empty() || side == name(s)) mine["options"] = more;
      hosts_.push_back(std::make_unique<ProgramHost>("c", mine, s, "test", nullptr));
      auto& memory = memory_.emplace_back();
      for (const RegionRef& region : regions(case_, s)) {
        files_.emplace_back(region.name, static_cast<std::size_t>(region.bytes) + 100);
        memory.push_back({region.name,
                          "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(files_.back().fd.get()), 100,
                          region.bytes});
      }
    }
  }
  std::string job(std::uint64_t key) {
    try {
      process::Progress progress;
      const json first = hosts_[0]->open(key, case_, memory_[0], json::array()),
                 second = hosts_[1]->open(key, case_, memory_[1], json::array());
      hosts_[0]->handshake(key, second);
      hosts_[1]->handshake(key, first);
      const json message = hosts_[0]->transfer(key, case_, 0, progress);
      hosts_[1]->transfer(key, case_, 0, progress);
      for (auto& host : hosts_) host->close(key);
      return message.value("moved", 0) > 0 ? "moved" : "done";
    } catch (const Stopped& stopped) {
      for (auto& host : hosts_) host->close(key);
      return stopped.reply.dump();
    }
  }
  ResolvedCase case_;
  std::vector<std::unique_ptr<ProgramHost>> hosts_;
  std::vector<std::vector<MemoryMessage>> memory_;
  std::deque<process::MemoryFile> files_;
};

TEST_F(HostTest, ReusesOneProgramForManyJobs) {
  open("template");
  for (std::uint64_t key = 1; key <= 20; ++key) EXPECT_EQ(job(key), "moved");
  EXPECT_GT(hosts_[0]->resident_bytes(), 0);
}

TEST_F(HostTest, RestartsTheProgramAfterAnException) {
  open("hostile.py", {{"fault", "register:raise"}});
  const std::string first = job(1), second = job(2);
  EXPECT_NE(first.find(R"("type":"ValueError")"), std::string::npos) << first;
  EXPECT_NE(first.find("hostile.py:"), std::string::npos) << first;
  EXPECT_NE(first.find(" in register"), std::string::npos) << first;
  EXPECT_EQ(first, second);
}

TEST_F(HostTest, ReplacesAnAbandonedProgramUnlessItReleasesTheJob) {
  for (const bool lets_go : {false, true}) {
    const json message = {{"fault", "transfer:pending"}, {"side", "producer"}, {"abandon", lets_go}};
    hosts_.clear(), memory_.clear(), files_.clear();
    open("hostile.py", message);
    int patience = -1;  // polls until the wait is abandoned, once
    auto options = options_of({python, programs + "hostile.py"});
    options["options"] = message;
    ProgramHost host("c", options, Side::producer, "test", [&] { return patience >= 0 && patience-- == 0; });
    process::Progress progress;
    const json pid = host.start()["facts"]["pid"];
    host.open(1, case_, memory_[0], json::array());
    patience = 100;
    EXPECT_THROW(host.transfer(1, case_, 0, progress), Stopped);
    host.close(1);
    host.open(2, case_, memory_[0], json::array());
    EXPECT_EQ(host.start()["facts"]["pid"] == pid, lets_go);
  }
}

TEST_F(HostTest, KeepsTheProgramAfterARefusal) {
  open("hostile.py", {{"fault", "handshake:refuse"}}, "producer");
  const std::string first = job(1);
  EXPECT_NE(first.find("refused"), std::string::npos) << first;
  EXPECT_EQ(first, job(2));
}

TEST_F(HostTest, ReportsDeathAndInvalidMessagesAsCrashes) {
  open("hostile.py", {{"fault", "segv"}}, "producer");
  EXPECT_NE(job(1).find(R"("signal":"SIGSEGV")"), std::string::npos);
  EXPECT_NE(job(2).find(R"("signal":"SIGSEGV")"), std::string::npos) << "and the next job has another process to crash";
}

TEST_F(HostTest, SkipsWithTheReasonOfTheProgram) {
  open("hostile.py", {{"fault", "hello:skip"}});
  EXPECT_EQ(job(1), json({{"skipped", {{"at", "hello"}, {"text", "a library is missing: pip install it"}}}}).dump());
}

TEST(ProgramHost, StopsWaitingOnRequest) {
  for (const char* fault : {"hello:sleep", "register:sleep"}) {  // before the program has said anything, and after
    json options = options_of({python, programs + "hostile.py"});
    options["options"] = {{"fault", fault}};
    int asked = 0;
    ProgramHost host("c", options, Side::producer, "test", [&] { return ++asked > 2000; });  // about two seconds
    const ResolvedCase c = small_case("a");
    try {
      host.open(1, c, {{"a", "/dev/null", 0, 1}, {"b", "/dev/null", 0, 1}}, json::array());
      ADD_FAILURE() << fault << ": expected Stopped";
    } catch (const Stopped& stopped) {
      EXPECT_TRUE(stopped.reply.value("abandoned", false)) << fault << ": " << stopped.reply.dump();
      EXPECT_TRUE(stopped.reply.value("ok", false)) << fault;
    }
  }
}

}  // namespace
}  // namespace kvcts::connector::program
