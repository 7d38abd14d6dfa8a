#include "diagnose/diagnose.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/oracle.hpp"

namespace kvcts::diagnose {
namespace {

using nlohmann::json;
using oracle::Bytes;

ResolvedCase make(const std::string& producer = "L x K B N H C", const std::string& consumer = "L x K B N H C") {
  ResolvedCase c;
  const layout::Geometry g{.layers = 2, .blocks = 6, .block_size = 4, .heads = 3, .head_dim = 8};
  const layout::Scheme scheme{"fp16", layout::Dtype::fp16, {}, {}};
  Group group;
  for (auto [side, text] : {std::pair{&group.producer, producer}, std::pair{&group.consumer, consumer}}) {
    RankCache rank{g, layout::instantiate(text, g, scheme), {}};
    rank.claim = rank.truth;
    *side = {"(" + text + ")", text, scheme, {rank}};
  }
  group.requests = {{1, 12, true, {3, 0, 4}, {5, 1, 2}}, {2, 4, false, {1}, {}}};
  c.groups = {group};
  c.connector.kind = "reference";
  return c;
}

// A scene in which the consumer holds what `happened` predicts, while `truth` says what should be there.
struct Stage {
  ResolvedCase truth;
  std::vector<Bytes> producer, consumer, before, expected;
  std::vector<json> events;

  Stage(const ResolvedCase& t, const ResolvedCase& happened) : truth(t) {
    for (const auto& r : regions(t, Side::producer)) {
      producer.emplace_back(static_cast<std::size_t>(oracle::file_shape(t, r.bytes).size));
      oracle::write_initial(t, r, 0, producer.back());
    }
    for (const auto& r : regions(t, Side::consumer)) {
      const Bytes empty(static_cast<std::size_t>(oracle::file_shape(t, r.bytes).size));
      before.push_back(empty), expected.push_back(empty), consumer.push_back(empty);
      oracle::write_initial(t, r, 0, before.back());
      oracle::write_expected(t, r, 0, expected.back());
      oracle::write_expected(happened, r, 0, consumer.back());
    }
  }
  Diagnosis name() const {
    Scene scene{truth, 0, {}, {}, {}, {}, {}, {}, events, 0};
    for (const auto& b : producer) scene.producer.emplace_back(b);
    for (std::size_t i = 0; i < consumer.size(); ++i) {
      scene.consumer.emplace_back(consumer[i]);
      scene.consumer_before.emplace_back(before[i]);
      scene.consumer_expected.emplace_back(expected[i]);
      for (std::size_t b = 0; b < consumer[i].size(); ++b) scene.wrong_bytes += consumer[i][b] != expected[i][b];
    }
    return diagnose(scene);
  }
};

void expect_named(const ResolvedCase& truth, const ResolvedCase& happened, const std::string& fault_class) {
  const auto d = Stage(truth, happened).name();
  EXPECT_EQ(d.fault_class, fault_class) << d.text;
  EXPECT_TRUE(d.exact) << d.text;
  EXPECT_FALSE(d.what_to_do.empty());
}

ResolvedCase with_consumer(const std::string& text) { return make("L x K B N H C", text); }

TEST(Diagnose, NothingToSayOfRightBytes) { EXPECT_TRUE(Stage(make(), make()).name().fault_class.empty()); }

TEST(Diagnose, AxesInAnotherOrder) {
  expect_named(make(), with_consumer("L x K B H N C"), "axis-permuted");
  expect_named(make(), with_consumer("L x K B H C N"), "axis-permuted");
  expect_named(make("L x K B H N C", "L x K B N H C"), with_consumer("L x K B H N C"), "axis-permuted");
}

TEST(Diagnose, ClaimsThatWereBelieved) {
  auto truth = make("L x K B H N C", "L x K B N H C");
  truth.groups[0].requests[0].tokens = 10;  // a partial block: whole blocks explain nothing
  auto& rank = truth.groups[0].producer.ranks[0];
  rank.claim = layout::instantiate("L x K B N H C", rank.geometry, truth.groups[0].producer.scheme);
  Stage stage(truth, truth);
  std::vector<Bytes> moved = stage.before;
  Scene scene{stage.truth, 0, {}, {}, {}, {}, {}, {}, {}, 0};
  for (const auto& b : stage.producer) scene.producer.emplace_back(b);
  for (const auto& b : stage.before) scene.consumer_before.emplace_back(b);
  const Maps maps{{rank.claim}, {truth.groups[0].consumer.ranks[0].truth}};
  for (std::size_t i = 0; i < moved.size(); ++i) predict_moved(scene, maps, i, moved[i]);
  stage.consumer = moved;
  auto d = stage.name();
  EXPECT_EQ(d.fault_class, "axis-permuted") << d.text;
  EXPECT_NE(d.text.find("taken for"), std::string::npos) << d.text;
  // The same bytes without the claim on record: a producer read in another order.
  stage.truth.groups[0].producer.ranks[0].claim = stage.truth.groups[0].producer.ranks[0].truth;
  d = stage.name();
  EXPECT_EQ(d.fault_class, "axis-permuted") << d.text;
  EXPECT_NE(d.text.find("read as"), std::string::npos) << d.text;
}

TEST(Diagnose, RightMapsPredictRightBytes) {
  const auto truth = make("L x { K=0 B H C/x N C%x ; K=1 B H C N }", "L x K B N H C");
  Stage stage(truth, truth);
  Scene scene{stage.truth, 0, {}, {}, {}, {}, {}, {}, {}, 0};
  for (const auto& b : stage.producer) scene.producer.emplace_back(b);
  for (const auto& b : stage.before) scene.consumer_before.emplace_back(b);
  const Maps maps{{truth.groups[0].producer.ranks[0].truth}, {truth.groups[0].consumer.ranks[0].truth}};
  for (std::size_t i = 0; i < stage.before.size(); ++i) {
    Bytes predicted = stage.before[i];
    predict_moved(scene, maps, i, predicted);
    EXPECT_EQ(predicted, stage.expected[i]);
  }
}

TEST(Diagnose, KAndVInAnotherPlace) { expect_named(make(), with_consumer("L x B K N H C"), "kv-split-vs-interleaved"); }

TEST(Diagnose, NothingMoved) {
  auto nothing = make();
  nothing.groups[0].requests[0].transfer = false;
  expect_named(make(), nothing, "silently-skipped");
}

TEST(Diagnose, WrongIds) {
  for (const std::vector<std::int64_t>& ids : {std::vector<std::int64_t>{2, 1, 5}, {1, 2, 5}, {2, 5, 1}, {3, 0, 4}}) {
    auto happened = make();
    happened.groups[0].requests[0].consumer_blocks = ids;
    expect_named(make(), happened, "wrong-block-id");
  }
}

TEST(Diagnose, CutShort) {
  for (std::int64_t tokens : {1, 4, 7, 11}) {
    auto happened = make();
    happened.groups[0].requests[0].tokens = tokens;
    expect_named(make(), happened, "truncated");
  }
}

TEST(Diagnose, AnotherGeneration) {
  auto happened = make();
  happened.groups[0].requests[0].generation = 2;
  expect_named(make(), happened, "stale-block");
}

TEST(Diagnose, AGuessIsCalledOne) {
  Stage stage(make(), with_consumer("L x K B H N C"));
  stage.consumer[0][5000] ^= 0x40;
  const auto d = stage.name();
  EXPECT_FALSE(d.exact);
  EXPECT_NE(d.text.find("guess"), std::string::npos) << d.text;
  EXPECT_TRUE(d.fault_class.empty());
}

TEST(Diagnose, NoiseIsUnexplained) {
  Stage stage(make(), make());
  for (std::size_t i = 4500; i < 4600; i += 7) stage.consumer[0][i] ^= 0x55;
  const auto d = stage.name();
  EXPECT_FALSE(d.exact);
  EXPECT_NE(d.text.find("unexplained"), std::string::npos) << d.text;
}

TEST(Diagnose, DoesNotLookAtWhatTheCaseExpects) {
  auto truth = make();
  const auto plain = Stage(truth, with_consumer("L x K B H N C")).name();
  truth.id = "museum/wrong-block-id";
  truth.expected = {{Outcome::fail, "wrong-block-id", {}, ""}};
  truth.facts = {{"class", "scale-lost"}};
  EXPECT_EQ(Stage(truth, with_consumer("L x K B H N C")).name().text, plain.text);
}

TEST(Diagnose, ExceptionsThatCount) {
  Stage stage(make(), make());
  stage.events = {{{"raised", {{"type", "ValueError"}, {"text", "not enough values to unpack (expected 4, got 2)"}}}}};
  const auto d = stage.name();
  EXPECT_EQ(d.fault_class, "rank-mismatch");
  EXPECT_NE(d.text.find("expected 4, got 2"), std::string::npos);
}

}  // namespace
}  // namespace kvcts::diagnose
