// CaseResult <-> JSON: lossless for everything that a result can hold, and strict.
#include <gtest/gtest.h>

#include <set>

#include "run/store/testing/sample.hpp"

namespace kvcts {
namespace {

using nlohmann::json;

TEST(ResultJson, RoundTripsEveryKind) {
  for (const auto& result : store::sample::every_kind()) {
    const json written = to_json(result);
    const std::string text = written.dump();  // throws if anything is not UTF-8
    EXPECT_EQ(to_json(result_from_json(json::parse(text))), written) << result.id;
  }
}

TEST(ResultJson, KeepsEveryField) {
  auto result = store::sample::every_kind()[1];
  result.hang = HangKind::runaway;
  result.signal = "SIGBUS";
  result.evidence = Evidence::compiled;
  result.waiver = "w";
  result.seed = UINT64_MAX;
  result.peak_bytes = INT64_MAX;
  result.copies = 3;
  result.worker = "lane1/worker2";
  result.worker_ordinal = 9;
  result.ran_before = "other";
  result.message = "plain";
  result.evidence_files = {{"note", "text"}};
  const CaseResult back = result_from_json(to_json(result));
  EXPECT_EQ(back.hang, result.hang);
  EXPECT_EQ(back.phase, result.phase);
  EXPECT_EQ(back.seed, UINT64_MAX);
  EXPECT_EQ(back.peak_bytes, INT64_MAX);
  EXPECT_EQ(back.message, "plain");
  EXPECT_EQ(back.evidence, Evidence::compiled);
  EXPECT_EQ(back.diagnosis.causes, result.diagnosis.causes);
  EXPECT_TRUE(back.diagnosis.exact);
  ASSERT_EQ(back.first_wrong.size(), 2u);
  EXPECT_EQ(back.first_wrong[1].offset, -1);
  EXPECT_EQ(back.digests, result.digests);
  EXPECT_FALSE(back.digests == Digests{});
  ASSERT_EQ(back.phases.size(), 2u);
  EXPECT_EQ(back.phases[1].ns, 20000);
  EXPECT_EQ(back.evidence_files.at(0).text, "text");
  EXPECT_EQ(back.worker_ordinal, 9);
  EXPECT_EQ(back.ran_before, "other");
}

// Every way in which a key can be wrong is an error that names the key.
TEST(ResultJson, RefusesUnknownKeysAndValues) {
  const json good = to_json(store::sample::every_kind()[1]);
  const auto refuses = [&](const json& bad, const std::string& key) {
    try {
      result_from_json(bad);
      ADD_FAILURE() << "accepted: " << bad.dump(-1, ' ', false, json::error_handler_t::replace);
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  for (const auto& [key, value] : good.items()) {
    json wrong_type = good;
    wrong_type[key] = value.is_number() ? json("text") : json(1.5);
    refuses(wrong_type, key);
  }
  json extra = good;
  extra["outcom"] = "PASS";
  refuses(extra, "outcom");
  json inner = good;
  inner["diagnosis"]["certain"] = true;
  refuses(inner, "certain");
  json older = good;
  older["diagnosis"]["others"] = json::array({"wrong-stride: padded"});
  older["diagnosis"]["causes"][0]["two"] = true;
  EXPECT_NO_THROW(result_from_json(older)) << "a key of runs of earlier versions";
  json missing = good;
  missing.erase("outcome");
  refuses(missing, "outcome");
  json word = good;
  word["outcome"] = "pass";
  refuses(word, "pass");
  json negative = good;
  negative["seed"] = -1;
  refuses(negative, "seed");
  json huge = good;
  huge["copies"] = UINT64_MAX;
  refuses(huge, "copies");
  refuses(json::array(), "result");
}

TEST(Outcome, NamesParseBack) {
  for (int i = 0; i < outcome_count; ++i)
    EXPECT_EQ(outcome_from_name(name(static_cast<Outcome>(i))), static_cast<Outcome>(i));
  for (int i = 0; i < phase_count; ++i) EXPECT_EQ(phase_from_name(name(static_cast<Phase>(i))), static_cast<Phase>(i));
  for (int i = 0; i < verdict_count; ++i)
    EXPECT_EQ(verdict_from_name(name(static_cast<Verdict>(i))), static_cast<Verdict>(i));
  for (int i = 0; i < evidence_count; ++i)
    EXPECT_EQ(evidence_from_name(name(static_cast<Evidence>(i))), static_cast<Evidence>(i));
  EXPECT_EQ(outcome_from_name("pass"), std::nullopt);
  EXPECT_EQ(name(Phase::read_back), "read back");
}

TEST(Outcome, FaultClassesHaveDistinctTexts) {
  std::set<std::string_view> seen;
  for (const FaultClass c : fault_classes()) {
    EXPECT_TRUE(seen.insert(name(c)).second) << name(c);
    EXPECT_TRUE(seen.insert(meaning(c)).second) << name(c);
    EXPECT_TRUE(seen.insert(advice(c)).second) << name(c);
    EXPECT_EQ(fault_class_from_name(name(c)), c);
  }
  EXPECT_EQ(fault_classes().size(), fault_class_count - 1u);
  EXPECT_EQ(fault_class_from_name("axis-permutated"), std::nullopt);
}

}  // namespace
}  // namespace kvcts
