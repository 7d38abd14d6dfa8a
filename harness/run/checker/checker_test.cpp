// The core of the suite without its processes: fill, plan, copy by hand, compare, diagnose; and the same with injected
// faults.
#include "run/checker/checker.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>

#include "connector/connector.hpp"
#include "diagnose/lowering.hpp"
#include "kernels/tag.hpp"
#include "process/memory_file.hpp"
#include "run/checker/digests.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/truth/truth.hpp"

namespace kvcts {
namespace {

using nlohmann::json;

struct Pair {
  std::string producer{"L x K B N H C"}, consumer{"L x K B N H C"};
  layout::Geometry geometry{.layers = 2, .blocks = 7, .block_size = 4, .heads = 4, .head_dim = 16};
  layout::Scheme scheme{"bf16", layout::Dtype::bf16, {}, {}};
  int producer_tp{1}, consumer_tp{1};
  std::int64_t consumer_block_size{4};
  std::int64_t tokens{10};
  std::string connector{"reference"};
  json options = json::object();
};

SideCache side(const Pair& s, const std::string& text, int tp, std::int64_t block_size) {
  SideCache out{"(template)", text, s.scheme, {}};
  for (int r = 0; r < tp; ++r) {
    RankCache rank;
    rank.geometry = s.geometry;
    rank.geometry.blocks = s.geometry.blocks * s.geometry.block_size / block_size + 1;
    rank.geometry.block_size = block_size;
    rank.geometry.heads = s.geometry.heads / tp;
    rank.geometry.first_head = r * rank.geometry.heads;
    rank.truth = layout::instantiate(text, rank.geometry, s.scheme);
    rank.claim = rank.truth;
    out.ranks.push_back(rank);
  }
  return out;
}

ResolvedCase make(const Pair& s) {
  ResolvedCase c;
  c.id = "test";
  c.arch = "cpu";
  c.dtype = s.scheme.name;
  Group g;
  g.producer = side(s, s.producer, s.producer_tp, s.geometry.block_size);
  g.consumer = side(s, s.consumer, s.consumer_tp, s.consumer_block_size);
  std::vector<std::int64_t> consumer_blocks;
  for (std::int64_t i = 0; i * s.consumer_block_size < s.tokens; ++i)
    consumer_blocks.push_back((5 + 3 * i) % (g.consumer.ranks[0].geometry.blocks));
  g.requests.push_back({1, s.tokens, true, {3, 0, 5}, consumer_blocks});
  g.requests.push_back({2, 4, false, {6}, {}});
  c.groups.push_back(g);
  c.connector = {"c", s.connector, s.options};
  c.engine = {"memcpy", "kvcts_engine_memcpy", 1, json::object(), json::object()};
  return c;
}

// Memory of one case as a worker sees it.
class Bench {
 public:
  explicit Bench(const Pair& setup) : case_(make(setup)) {
    std::vector<int> fds;
    opened_ = checker_.handle({{"op", "open"}, {"key", 1}, {"case", to_json(case_)}}, fds);
    EXPECT_EQ(opened_.value("ok", false), true) << opened_.dump();
    for (std::size_t i = 0; i < fds.size(); ++i) maps_.emplace_back(fds[i], 0);
    EXPECT_TRUE(checker_.handle({{"op", "fill"}, {"key", 1}, {"pass", 0}}, fds).value("ok", false));
  }
  std::size_t index(bool producer, int region) const {
    return static_cast<std::size_t>(region) + (producer ? 0 : regions(case_, Side::producer).size());
  }
  std::uint8_t* at(bool producer, int region, std::int64_t offset) {
    const auto i = index(producer, region);
    return maps_[i].data() + opened_["files"][i]["base"].get<std::int64_t>() + offset;
  }
  std::int64_t bytes(bool producer, int region) const { return opened_["files"][index(producer, region)]["bytes"]; }
  connector::Plan plan() {
    auto view = case_from_json(worker_view(case_));
    auto c = connector::make_connector(view.connector);
    c->register_caches(view, Side::producer);
    c->register_caches(view, Side::consumer);
    return c->plan(view, process::Progress());
  }
  void execute(const connector::Plan& plan) {
    for (const auto& c : plan.copies)
      std::memcpy(at(false, c.dst, c.dst_offset), at(true, c.src, c.src_offset), static_cast<std::size_t>(c.bytes));
  }
  Report compare(json extra = json::object()) {
    std::vector<int> fds;
    json request{{"op", "compare"}, {"key", 1}, {"pass", 0}, {"transferred", true}};
    request.update(extra);
    const json reply = checker_.handle(request, fds);
    EXPECT_TRUE(reply.value("ok", false)) << reply.dump();
    return report_from_json(reply.at("report"));
  }
  const ResolvedCase& resolved() const { return case_; }
  void see(const json& reuse = nullptr) {
    std::vector<int> fds;
    EXPECT_TRUE(checker_.handle({{"op", "see"}, {"key", 1}, {"reuse", reuse}}, fds).value("ok", false));
  }
  LateWrite recheck() {
    std::vector<int> fds;
    return late_write_from_json(checker_.handle({{"op", "recheck"}, {"key", 1}}, fds).at("late"));
  }

 private:
  ResolvedCase case_;
  checker::Checker checker_;
  json opened_;
  std::vector<process::Mapping> maps_;
};

std::int64_t bytes_of(const connector::Plan& plan) {
  std::int64_t total = 0;
  for (const auto& c : plan.copies) total += c.bytes;
  return total;
}

void expect_pass(const Pair& setup) {
  Bench bench(setup);
  const auto plan = bench.plan();
  bench.execute(plan);
  const auto reply = bench.compare({{"planned", bytes_of(plan)}, {"moved", bytes_of(plan)}});
  EXPECT_EQ(reply.outcome, Outcome::pass) << setup.producer << " -> " << setup.consumer << ": " << reply.message;
  EXPECT_EQ(reply.digests, checker::expected_digests(bench.resolved(), true)) << setup.producer << " -> " << setup.consumer;
}

const std::vector<std::string> texts{
    "L x K B N H C", "L x K B H N C", "L x B K N H C",   "B L K N H C",
    "L x B H N K C", "L x B N H K C", "K x L x B N H C", "L x { K=0 B H C/x N C%x ; K=1 B H C N }",
    "B L H N K C",
};

TEST(Checker, PassesEveryPairOfOrders) {
  for (const auto& a : texts) {
    for (const auto& b : texts) {
      Pair s;
      s.producer = a, s.consumer = b;
      expect_pass(s);
    }
  }
}

TEST(Checker, PassesUnequalShardsAndBlockSizes) {
  for (int p : {1, 2, 4})
    for (int q : {1, 2, 4})
      for (std::int64_t size : {1, 2, 4, 8}) {
        Pair s;
        s.consumer = "L x K B H N C";
        s.producer_tp = p, s.consumer_tp = q, s.consumer_block_size = size;
        expect_pass(s);
      }
}

TEST(Checker, PassesEveryScheme) {
  using layout::Dtype;
  const std::vector<layout::Scheme> schemes{
      {"fp32", Dtype::fp32, {}, {}},
      {"fp8", Dtype::e4m3fn, {}, {}},
      {"int4", Dtype::int4, {}, {}},
      {"nvfp4", Dtype::e2m1, layout::ScaleSpec{Dtype::e4m3fn, 16}, Dtype::fp32},
      {"mxfp8", Dtype::e4m3fn, layout::ScaleSpec{Dtype::e8m0, 8}, {}},
      {"fp8-row", Dtype::e4m3fn, layout::ScaleSpec{Dtype::fp32, 0}, {}},
  };
  for (const auto& scheme : schemes) {
    Pair s;
    s.scheme = scheme;
    s.consumer = "L x B K H N C";
    expect_pass(s);
  }
}

TEST(Checker, AllowsWholeBlocksToIncludeTheTail) {
  Pair s;
  s.options = {{"whole_blocks", true}};
  expect_pass(s);
  s.consumer = "L x K B H N C";
  expect_pass(s);
}

TEST(Checker, FailsBytesThatArriveAfterCompletion) {
  for (const std::int64_t blocks : {std::int64_t{8}, std::int64_t{40000}}) {  // its bytes, and digests of its pages
    Pair setup;
    setup.geometry.blocks = blocks;
    Bench bench{setup};
    const auto plan = bench.plan();
    bench.execute(plan);
    bench.see();
    EXPECT_EQ(bench.compare().outcome, Outcome::pass) << blocks;
  }
  Pair setup;
  Bench bench{setup};
  const auto plan = bench.plan();
  bench.execute(plan);
  const Copy last = plan.copies.back();
  std::uint8_t* byte = bench.at(false, last.dst, last.dst_offset + last.bytes - 1);
  *byte ^= 0x80;
  bench.see();
  *byte ^= 0x80;
  const Report report = bench.compare();
  EXPECT_EQ(report.outcome, Outcome::fail);
  EXPECT_EQ(report.diagnosis.fault_class, FaultClass::read_before_ready) << report.message;
  EXPECT_NE(report.message.find("that moment 1 bytes differed from now"), std::string::npos) << report.message;
  bench.see();  // the last look counts
  EXPECT_EQ(bench.compare().outcome, Outcome::pass);
}

const json done = {{"request", ""}, {"word", "done"}};

TEST(Checker, FailsReadsOfBlocksTheProducerFreed) {
  using layout::Dtype;
  for (const layout::Scheme& scheme :
       {layout::Scheme{"bf16", Dtype::bf16, {}, {}}, layout::Scheme{"fp8", Dtype::e4m3fn, {}, {}},
        layout::Scheme{"nvfp4", Dtype::e2m1, layout::ScaleSpec{Dtype::e4m3fn, 16}, Dtype::fp32}})
    for (const bool all : {true, false}) {  // read after that word: all of it, or its second half
      Pair setup;
      setup.scheme = scheme;
      Bench bench{setup};
      connector::Plan plan = bench.plan(), late = plan;
      const auto middle = static_cast<std::ptrdiff_t>(all ? 0 : plan.copies.size() / 2);
      plan.copies.erase(plan.copies.begin() + middle, plan.copies.end());
      late.copies.erase(late.copies.begin(), late.copies.begin() + middle);
      bench.execute(plan);
      bench.see(done);
      bench.execute(late);
      const Report report = bench.compare();
      EXPECT_EQ(report.diagnosis.fault_class, FaultClass::stale_block) << scheme.name << ": " << report.message;
      EXPECT_TRUE(report.diagnosis.exact) << scheme.name;
      EXPECT_FALSE(report.source_changed) << scheme.name;
      EXPECT_NE(report.message.find("next request (generation 3)"), std::string::npos) << report.message;
    }
}

TEST(Checker, TracksFreedBlocksPerRequest) {
  for (const bool late : {false, true}) {
    Bench bench{Pair{}};
    const auto plan = bench.plan();
    if (!late) bench.execute(plan);
    bench.see({{"request", "r1"}, {"word", "finished_sending"}});
    bench.see({{"request", "r1"}, {"word", "said twice"}});
    bench.see({{"request", "of no one"}, {"word", "unknown"}});
    if (late) bench.execute(plan);
    bench.see(done);
    const Report report = bench.compare();
    EXPECT_EQ(report.outcome, late ? Outcome::fail : Outcome::pass) << report.message;
    EXPECT_FALSE(report.source_changed) << report.message;
    if (!late) continue;
    EXPECT_EQ(report.diagnosis.fault_class, FaultClass::stale_block) << report.message;
    EXPECT_NE(report.message.find("the producer said finished_sending of r1, its blocks"), std::string::npos)
        << report.message;
  }
}

TEST(Checker, PassesReadsBeforeTheBlocksWereFreed) {
  Bench bench{Pair{}};
  bench.execute(bench.plan());
  bench.see(done);
  const Report right = bench.compare();
  EXPECT_EQ(right.outcome, Outcome::pass) << right.message;
  EXPECT_EQ(right.digests, checker::expected_digests(bench.resolved(), true));
}

TEST(Checker, FailsWritesIntoFreedBlocks) {
  Bench bench{Pair{}};
  const auto plan = bench.plan();
  bench.execute(plan);
  bench.see(done);
  *bench.at(true, plan.copies[0].src, plan.copies[0].src_offset) ^= 0x80;
  const Report report = bench.compare();
  EXPECT_EQ(report.outcome, Outcome::fail);
  EXPECT_TRUE(report.source_changed) << report.message;
  EXPECT_EQ(report.wrong_bytes, 1) << report.message;
}

TEST(Checker, CatchesLateBytesInALargeDestination) {
  Pair setup;
  setup.geometry.blocks = 40000;
  Bench bench{setup};
  const auto plan = bench.plan();
  bench.see();
  bench.execute(plan);
  const Report report = bench.compare();
  EXPECT_EQ(report.outcome, Outcome::fail);
  EXPECT_EQ(report.diagnosis.fault_class, FaultClass::read_before_ready) << report.message;
}

TEST(Checker, ReportsPartOfATailAsAnOverrun) {
  Bench bench{Pair{}};
  auto plan = bench.plan();
  for (auto& c : plan.copies) {
    if (c.bytes < 4 * 4 * 16 * 2) c.bytes += 1;  // per block of a request: one byte of its free slots
  }
  bench.execute(plan);
  EXPECT_EQ(bench.compare().outcome, Outcome::fail);
}

TEST(Checker, AllowsHalfBytesToMoveWithTheirNeighbour) {
  for (std::int64_t tokens : {7, 8, 9, 11}) {
    Pair s;
    s.scheme = {"int4", layout::Dtype::int4, {}, {}};
    s.producer = s.consumer = "L x K B H C N";
    s.tokens = tokens;
    expect_pass(s);
  }
}

TEST(Checker, RefusesWhatItCannotMove) {
  Pair s;
  s.options = {{"refuse", {"relayout"}}};
  s.consumer = "L x K B H N C";
  EXPECT_THROW(Bench(s).plan(), connector::Refusal);
  s = Pair{};
  s.options = {{"refuse", {"head-slice"}}};
  s.consumer_tp = 2;
  EXPECT_THROW(Bench(s).plan(), connector::Refusal);
  s.producer = s.consumer = "L x K B H N C";
  EXPECT_NO_THROW(Bench(s).plan());
}

struct Fault {
  const char* name;
  std::function<void(Bench&, connector::Plan&)> put;  // before execute
  std::function<void(Bench&)> after;
  FaultClass fault_class{};  // none = any
};

TEST(Checker, CatchesFaults) {
  const std::vector<Fault> faults{
      {"nothing moved", [](Bench&, connector::Plan& p) { p.copies.clear(); }, {}, FaultClass::silently_skipped},
      {"one copy lost", [](Bench&, connector::Plan& p) { p.copies.pop_back(); }, {}, FaultClass::none},
      {"a tail short by one byte", [](Bench&, connector::Plan& p) { p.copies.back().bytes -= 1; }, {}, FaultClass::none},
      {"one byte too many", [](Bench&, connector::Plan& p) { p.copies.back().bytes += 1; }, {}, FaultClass::none},
      {"source offset off by one element",
       [](Bench&, connector::Plan& p) { p.copies.front().src_offset += 2; },
       {},
       FaultClass::none},
      {"guard above touched", [](Bench&, connector::Plan&) {}, [](Bench& b) { *b.at(false, 0, b.bytes(false, 0)) ^= 2; },
       FaultClass::none},
      {"guard below touched", [](Bench&, connector::Plan&) {}, [](Bench& b) { *b.at(false, 0, -1) ^= 2; }, FaultClass::none},
      {"source changed", [](Bench&, connector::Plan&) {}, [](Bench& b) { *b.at(true, 0, 100) ^= 4; }, FaultClass::none},
      {"one bit of the destination", [](Bench&, connector::Plan&) {}, [](Bench& b) { *b.at(false, 0, 700) ^= 0x80; },
       FaultClass::none},
  };
  for (const auto& fault : faults) {
    Bench bench{Pair{}};
    auto plan = bench.plan();
    fault.put(bench, plan);
    bench.execute(plan);
    if (fault.after) fault.after(bench);
    const auto reply = bench.compare();
    EXPECT_EQ(reply.outcome, Outcome::fail) << fault.name;
    if (fault.fault_class != FaultClass::none) {
      EXPECT_EQ(reply.diagnosis.fault_class, fault.fault_class) << fault.name << reply.message;
    }
  }
}

TEST(Checker, FailsCountsThatDisagree) {
  Bench bench{Pair{}};
  const auto plan = bench.plan();
  bench.execute(plan);
  const auto reply = bench.compare({{"planned", bytes_of(plan)}, {"moved", bytes_of(plan) - 1}});
  EXPECT_EQ(reply.outcome, Outcome::fail);
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::false_success);
}

TEST(Checker, NamesBlocksCopiedWithoutRelayout) {
  Pair s;
  s.consumer = "L x K B H N C";
  s.connector = "contract";
  s.options = {{"unpack", {"_", "num_blocks", "a", "b", "head_dim"}}, {"reading", "K B N H C"}};
  s.tokens = 12;
  Bench bench(s);
  bench.execute(bench.plan());
  const auto reply = bench.compare();
  EXPECT_EQ(reply.outcome, Outcome::fail);
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::axis_permuted) << reply.message;
  EXPECT_TRUE(reply.diagnosis.exact);
}

TEST(Checker, NamesWrongIds) {
  Bench bench{Pair{}};
  auto plan = bench.plan();
  // Rotate the destination blocks of the request: 5, 1, 4 -> like a shifted list.
  Pair s;
  auto shifted = make(s);
  std::rotate(shifted.groups[0].requests[0].consumer_blocks.begin(),
              shifted.groups[0].requests[0].consumer_blocks.begin() + 1,
              shifted.groups[0].requests[0].consumer_blocks.end());
  auto view = case_from_json(worker_view(shifted));
  bench.execute(connector::make_connector(view.connector)->plan(view, process::Progress()));
  const auto reply = bench.compare();
  EXPECT_EQ(reply.outcome, Outcome::fail);
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::wrong_block_id) << reply.message;
}

// V alone, from where another order of heads and slots has it: no variant of the whole transfer says so, one piece of a step
// does.
TEST(Checker, NamesAFaultInPartOfAStep) {
  Bench bench{Pair{}};
  const auto plan = bench.plan();
  bench.execute(plan);
  const auto& request = bench.resolved().groups[0].requests[0];
  constexpr std::int64_t row = 32, heads = 4, slots = 4, block = heads * slots * row, v = 8 * block;
  for (int layer = 0; layer < 2; ++layer) {
    for (std::int64_t token = 0; token < request.tokens; ++token) {
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto k = static_cast<std::size_t>(token / slots);
        const std::int64_t slot = token % slots;
        std::memcpy(bench.at(false, layer, v + request.consumer_blocks[k] * block + (slot * heads + head) * row),
                    bench.at(true, layer, v + request.producer_blocks[k] * block + (head * slots + slot) * row), row);
      }
    }
  }
  const auto reply = bench.compare();
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::axis_permuted) << reply.message;
  EXPECT_TRUE(reply.diagnosis.exact);
  EXPECT_NE(reply.diagnosis.text.find("only V"), std::string::npos) << reply.diagnosis.text;
}

// Lengths in the model's two bytes, of a cache of one: what is too much lands in the block behind, where some bytes are
// right by chance.
TEST(Checker, NamesCopiesTwiceAsLong) {
  Pair fp8;
  fp8.geometry = {.layers = 4, .blocks = 7, .block_size = 16, .heads = 4, .head_dim = 32};
  fp8.scheme = {"fp8_e4m3", layout::Dtype::e4m3fn, {}, {}};
  fp8.consumer_block_size = 16, fp8.tokens = 41;
  Bench bench(fp8);
  auto plan = bench.plan();
  for (auto& copy : plan.copies) copy.bytes *= 2;
  bench.execute(plan);
  const auto reply = bench.compare();
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::over_read) << reply.message;
  EXPECT_EQ(reply.diagnosis.text.find("copies 2 times as long in 'transfer"), 0u) << reply.diagnosis.text;
}

// The number of scale pages is rounded down, that of code pages up.
TEST(Checker, NamesScalesOfTheLastBlockThatWereNotMoved) {
  Pair scaled;
  scaled.scheme = {"fp8-row", layout::Dtype::e4m3fn, layout::ScaleSpec{layout::Dtype::fp32, 0}, {}};
  scaled.producer = scaled.consumer = "L x K B N H C & L x scale K B N H C";
  Bench bench(scaled);
  auto plan = bench.plan();
  const auto& request = bench.resolved().groups[0].requests[0];
  const auto all = plan.copies.size();
  const std::int64_t row = 4 * 4, block = 4 * row, blocks = 8;  // heads, slots; of K, then of V
  std::erase_if(plan.copies, [&](const auto& copy) {
    if (copy.dst % 2 == 0) return false;
    return copy.dst_offset / block % blocks == request.consumer_blocks.back();
  });
  ASSERT_LT(plan.copies.size(), all);
  bench.execute(plan);
  const auto reply = bench.compare();
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::scale_lost) << reply.message;
  EXPECT_NE(reply.diagnosis.text.find("pieces of scales were not moved, all codes were"), std::string::npos)
      << reply.diagnosis.text;
}

// Content that the scenario has in two places is one for the oracle too, and it has some where the oracle has.
void expect_reported(const Pair& setup) {
  const ResolvedCase c = make(setup);
  const scenario::Scenario reported = diagnose::lower(c);
  const scenario::AddressSpace space(reported);
  scenario::SymbolTable symbols;
  const scenario::Truth truth = scenario::truth_of(reported, space, symbols);
  constexpr int passes = 3;
  const auto written = [&](const RegionRef& region, int pass) {
    std::vector<std::uint8_t> file(static_cast<std::size_t>(oracle::file_shape(c, region.bytes).size));
    oracle::write_expected(c, region, pass, file);
    return file;
  };
  std::map<scenario::SymbolId, std::array<std::uint8_t, passes>> content;
  std::int64_t moved = 0;
  for (const Side side : {Side::producer, Side::consumer}) {
    for (const auto& region : regions(c, side)) {
      const scenario::BufferAddress start = space.address(diagnose::place_name(c, region));
      const std::int64_t base = oracle::file_shape(c, region.bytes).base;
      std::vector<std::vector<std::uint8_t>> files;
      for (int pass = 0; pass < passes; ++pass) files.push_back(written(region, pass));
      const auto& image = truth.checks.back().images[static_cast<std::size_t>(start.buffer)];
      for (std::int64_t at = 0; at < region.bytes; ++at) {
        const scenario::SymbolId id = image.at(start.offset + at);
        std::array<std::uint8_t, passes> bytes{};
        for (std::size_t pass = 0; pass < passes; ++pass) bytes[pass] = files[pass][static_cast<std::size_t>(base + at)];
        if (id == scenario::hole) {
          ASSERT_TRUE(bytes[0] == bytes[1] && bytes[1] == bytes[2]) << region.name << " + " << at << " has content";
          continue;
        }
        const auto [known, first] = content.emplace(id, bytes);
        ASSERT_FALSE(first && side == Side::consumer) << region.name << " + " << at << ": content from nowhere";
        ASSERT_EQ(known->second, bytes) << region.name << " + " << at;
        moved += side == Side::consumer;
      }
    }
  }
  EXPECT_GT(moved, 0);
}

TEST(Lowering, MovesTheBytesTheOracleExpects) {
  expect_reported({});
  Pair shards;
  shards.producer_tp = 2, shards.consumer_tp = 4, shards.consumer = "L x B H N K C", shards.consumer_block_size = 2;
  expect_reported(shards);
  Pair joined;
  joined.producer = "B L H N K C", joined.producer_tp = 4, joined.tokens = 11;
  expect_reported(joined);
}

TEST(Checker, NamesAnUntypedExceptionAndRequiresAnUntouchedDestination) {
  Bench bench{Pair{}};
  const json raised{{"raised", {{"type", "ValueError"}, {"text", "not enough values to unpack (expected 5, got 3)"}}}};
  auto reply = bench.compare({{"transferred", false}, {"events", json::array({raised})}});
  EXPECT_EQ(reply.outcome, Outcome::pass);
  EXPECT_EQ(reply.diagnosis.fault_class, FaultClass::rank_mismatch);
  *bench.at(false, 0, 0) ^= 2;
  reply = bench.compare({{"transferred", false}, {"events", json::array({raised})}});
  EXPECT_EQ(reply.outcome, Outcome::fail);
}

TEST(Checker, CatchesLateWrites) {
  Bench bench{Pair{}};
  bench.execute(bench.plan());
  EXPECT_EQ(bench.compare().outcome, Outcome::pass);
  EXPECT_FALSE(bench.recheck().changed);
  *bench.at(false, 0, 512) ^= 0x40;
  const auto reply = bench.recheck();
  EXPECT_TRUE(reply.changed);
  EXPECT_EQ(reply.bytes, 1);
}

TEST(Checker, RefusesBadRequests) {
  checker::Checker checker;
  std::vector<int> fds;
  for (const json& bad : {json::object(), json{{"op", "open"}}, json{{"op", "open"}, {"key", 1}, {"case", {{"x", 1}}}},
                          json{{"op", 7}}, json{{"op", "fill"}, {"key", 99}}, json{{"op", "dance"}, {"key", 1}}}) {
    EXPECT_TRUE(checker.handle(bad, fds).contains("error")) << bad.dump();
  }
}

TEST(Checker, ShowsTheExpectedValueOfAWrongByte) {
  Bench bench(Pair{});
  const auto plan = bench.plan();
  bench.execute(plan);
  const auto& copy = plan.copies.front();
  std::uint8_t* byte = bench.at(false, copy.dst, copy.dst_offset);
  const std::uint8_t right = *byte;
  *byte ^= 0x5a;
  const Report reply = bench.compare();
  EXPECT_EQ(reply.wrong_bytes, 1);
  EXPECT_EQ(reply.source_changed, false);
  EXPECT_EQ(reply.expected_bytes, bytes_of(plan));
  EXPECT_EQ(reply.message.find("1 wrong bytes"), 0u) << reply.message;
  ASSERT_EQ(reply.first_wrong.size(), 1u);
  const WrongByte& first = reply.first_wrong[0];
  EXPECT_EQ(first.offset, copy.dst_offset);
  const std::string expected = first.expected, observed = first.observed;
  ASSERT_EQ(expected.size(), 16u);  // eight bytes from the first wrong one
  EXPECT_EQ(std::stoi(expected.substr(0, 2), nullptr, 16), right);
  EXPECT_EQ(std::stoi(observed.substr(0, 2), nullptr, 16), right ^ 0x5a);
  EXPECT_EQ(expected.substr(2), observed.substr(2));
}

TEST(Checker, ListsEachRangeOfWrongBytesOnce) {
  Bench bench(Pair{});
  const auto plan = bench.plan();
  bench.execute(plan);
  const auto& copy = plan.copies.front();
  std::uint8_t* bytes = bench.at(false, copy.dst, copy.dst_offset);
  for (int i : {0, 1, 2, 3, 5, 6, 7, 10, 16, 40}) bytes[i] ^= 0x5a;  // right by chance in between; and one far away
  const Report reply = bench.compare();
  EXPECT_EQ(reply.wrong_bytes, 10);
  ASSERT_EQ(reply.first_wrong.size(), 2u);
  EXPECT_EQ(reply.first_wrong[0].offset, copy.dst_offset);
  EXPECT_TRUE(reply.first_wrong[0].where.ends_with("; wrong to " + std::to_string(copy.dst_offset + 16)));
  EXPECT_EQ(reply.first_wrong[1].offset, copy.dst_offset + 40);
  EXPECT_EQ(reply.first_wrong[1].where.find("wrong to"), std::string::npos) << "a single byte";
}

TEST(Checker, AddsUpWrongBytesOfBothSides) {
  Bench bench(Pair{});
  const auto plan = bench.plan();
  bench.execute(plan);
  const auto& copy = plan.copies.front();
  *bench.at(true, copy.src, copy.src_offset) ^= 1;
  EXPECT_EQ(bench.compare().source_changed, true);
  EXPECT_EQ(bench.compare().wrong_bytes, 1);
  *bench.at(false, copy.dst, copy.dst_offset) ^= 1;
  EXPECT_EQ(bench.compare().wrong_bytes, 2);
}

TEST(Checker, ComparesCountsWithThePlanAndTheExpectation) {
  Bench bench(Pair{});
  const auto plan = bench.plan();
  bench.execute(plan);
  const std::int64_t bytes = bytes_of(plan);
  const auto outcome = [&](std::int64_t planned, std::int64_t moved) {
    return bench.compare({{"planned", planned}, {"moved", moved}}).outcome;
  };
  EXPECT_EQ(outcome(bytes, bytes), Outcome::pass);
  EXPECT_EQ(outcome(-1, bytes), Outcome::pass) << "nothing was planned";
  EXPECT_EQ(outcome(0, bytes), Outcome::fail);
  EXPECT_EQ(outcome(bytes - 1, bytes - 1), Outcome::fail) << "less than expected";
  EXPECT_EQ(outcome(2 * bytes, 2 * bytes), Outcome::fail) << "more than whole blocks";
}

TEST(Checker, ExpectsOtherBytesInEachPass) {
  Bench bench(Pair{});
  bench.execute(bench.plan());
  EXPECT_EQ(bench.compare().outcome, Outcome::pass);
  EXPECT_EQ(bench.compare({{"pass", 1}}).outcome, Outcome::fail);
}

TEST(Checker, ReportsALateChangeOnce) {
  Bench bench(Pair{});
  const auto plan = bench.plan();
  bench.execute(plan);
  ASSERT_EQ(bench.compare().outcome, Outcome::pass);
  EXPECT_EQ(bench.recheck().changed, false);
  *bench.at(false, plan.copies.front().dst, plan.copies.front().dst_offset) ^= 1;
  const LateWrite late = bench.recheck();
  EXPECT_EQ(late.changed, true);
  EXPECT_TRUE(late.message.starts_with("first at ")) << late.message << ": whoever decides says what changed";
  EXPECT_EQ(bench.recheck().changed, false);
}

TEST(Checker, DescribesTheStateOfTheData) {
  Bench bench(Pair{});
  const auto state = [&] { return bench.compare({{"state", true}}).state; };
  EXPECT_EQ(state(), "no byte had arrived");
  const auto plan = bench.plan();
  const auto& copy = plan.copies.front();
  bench.execute(plan);
  const std::string all = state();
  ASSERT_EQ(all.find("all "), 0u) << all;
  const std::int64_t count = std::stoll(all.substr(4));
  EXPECT_LE(count, bytes_of(plan));
  EXPECT_GT(count, bytes_of(plan) / 2);
  *bench.at(false, copy.dst, copy.dst_offset) ^= 0x80;
  EXPECT_EQ(state(), std::to_string(count - 1) + " of " + std::to_string(count) + " bytes had arrived");
}

TEST(Checker, DigestsDistinguishCorrectMemoryFromWrong) {
  Bench bench(Pair{});
  const auto plan = bench.plan();
  bench.execute(plan);
  *bench.at(false, plan.copies.front().dst, plan.copies.front().dst_offset) ^= 1;
  const Digests right = checker::expected_digests(bench.resolved(), true), wrong = bench.compare().digests;
  EXPECT_EQ(wrong.producer, right.producer);
  EXPECT_EQ(wrong.consumer.before, right.consumer.before);
  EXPECT_NE(wrong.consumer.after, right.consumer.after);

  Bench still((Pair()));
  const Digests untouched = still.compare({{"transferred", false}}).digests;
  EXPECT_EQ(untouched, checker::expected_digests(still.resolved(), false));
  EXPECT_EQ(untouched.consumer.before, untouched.consumer.after);
  EXPECT_NE(untouched.consumer.before, untouched.producer.before);

  ResolvedCase other = bench.resolved();
  other.seed += 1;
  EXPECT_NE(checker::expected_digests(other, true), right);
  other = bench.resolved(), other.passes = 2;
  EXPECT_NE(checker::expected_digests(other, true), right);
}

TEST(Checker, RequiresAnUntouchedDestinationAfterAnError) {
  Bench bench(Pair{});
  EXPECT_EQ(bench.compare({{"transferred", false}}).outcome, Outcome::pass);
  const auto plan = bench.plan();
  bench.execute(plan);
  const Report reply = bench.compare({{"transferred", false}});
  EXPECT_EQ(reply.outcome, Outcome::fail);
  EXPECT_NE(reply.message.find("nothing may be written before the error"), std::string::npos);
}

}  // namespace
}  // namespace kvcts
