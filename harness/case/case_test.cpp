#include "case/case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve.hpp"
#include "case/serialized_case.hpp"
#include "case/tries.hpp"
#include "kernels/tag.hpp"
#include "testing/checkout.hpp"

namespace kvcts {
namespace {

using nlohmann::json;

const catalogue::Catalogue& cases() {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  return catalogue;
}

CaseSpec spec() {
  CaseSpec s;
  s.id = "test/case";
  s.producer.layout = "vllm-fa-nhd";
  s.consumer.layout = "vllm-fa-hnd";
  return s;
}

std::string error_of(const CaseSpec& s) {
  try {
    resolve(s, cases());
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(Resolve, FillsInDefaults) {
  const auto c = resolve(spec(), cases());
  ASSERT_EQ(c.groups.size(), 1u);
  const auto& g = c.groups[0];
  EXPECT_EQ(g.producer.text, "L x K B N H C");
  ASSERT_EQ(g.requests.size(), 2u) << "one request and a bystander";
  EXPECT_TRUE(g.requests[0].transfer);
  EXPECT_FALSE(g.requests[1].transfer);
  EXPECT_NE(g.requests[0].producer_blocks, g.requests[0].consumer_blocks);
  const std::set<std::int64_t> used(g.requests[0].producer_blocks.begin(), g.requests[0].producer_blocks.end());
  EXPECT_TRUE(used.contains(0)) << "block 0 is in use";
  EXPECT_FALSE(std::is_sorted(g.requests[0].producer_blocks.begin(), g.requests[0].producer_blocks.end()));
  EXPECT_EQ(c.expected.size(), 1u);
  EXPECT_EQ(c.expected[0].outcome, Outcome::pass);
}

TEST(Resolve, ShardsAndReplicas) {
  auto s = spec();
  s.geometry_values = {{"heads", 4}};
  s.producer.tp = 2, s.consumer.tp = 8;
  const auto c = resolve(s, cases());
  EXPECT_EQ(c.groups[0].producer.ranks[1].geometry.first_head, 2);
  EXPECT_EQ(c.groups[0].consumer.ranks[5].geometry.heads, 1);
  EXPECT_EQ(c.groups[0].consumer.ranks[5].geometry.first_head, 2);
  s.consumer.tp = 3;
  EXPECT_NE(error_of(s).find("cannot be shared by 3 ranks"), std::string::npos);
}

TEST(Resolve, PassesFollowTheSmallestUnit) {
  auto s = spec();
  EXPECT_EQ(resolve(s, cases()).passes, 1);
  s.consumer.layout = "vllm-xformers";  // value [nb, H, D, N]: single elements are not adjacent
  EXPECT_EQ(resolve(s, cases()).passes, kernels::deciding_passes(layout::Dtype::bf16, 1));
  EXPECT_GT(resolve(s, cases()).passes, 1);
}

TEST(Resolve, ClaimsDescribeTheSameMemory) {
  auto s = spec();
  s.producer.claim_layout = "vllm-fa-hnd";
  const auto c = resolve(s, cases());
  EXPECT_NE(c.groups[0].producer.ranks[0].claim, c.groups[0].producer.ranks[0].truth);
  s.producer.claim_layout.clear();
  s.producer.claim_text = "L x K B N H C=0..8";
  EXPECT_NE(error_of(s).find("sizes must agree"), std::string::npos) << error_of(s);
}

TEST(Resolve, ReportsEachMistakeInOneSentence) {
  auto bad = [](auto&& change) {
    auto s = spec();
    change(s);
    return error_of(s);
  };
  EXPECT_NE(bad([](auto& s) { s.producer.layout = "vllm-fa-nhdd"; }).find("vllm-fa-nhd"), std::string::npos);
  EXPECT_NE(bad([](auto& s) { s.arch = "sm_999"; }), "");
  EXPECT_NE(bad([](auto& s) { s.dtype = "fp7"; }), "");
  EXPECT_NE(bad([](auto& s) { s.ids = "random"; }).find("shuffled"), std::string::npos);
  EXPECT_NE(bad([](auto& s) { s.geometry_values = {{"hats", 3}}; }).find("hats"), std::string::npos);
  EXPECT_NE(bad([](auto& s) { s.requests = {{1000000, 1, true, {}, {}}}; }).find("free"), std::string::npos);
  EXPECT_NE(bad([](auto& s) { s.requests = {{10, 1, true, {99999}, {}}}; }).find("producer_blocks"), std::string::npos);
  EXPECT_NE(bad([](auto& s) { s.copies = {{"nowhere", "kv.L0", 0, 0, 4}}; }).find("no producer region"), std::string::npos);
  EXPECT_NE(bad([](auto& s) { s.deadlines_ms = {{"lunch", 3}}; }).find("phase"), std::string::npos);
  EXPECT_NE(bad([](auto& s) { s.producer = {}; }).find("backend, layout or template"), std::string::npos);
}

// From SciPy 1.17: binomtest(k, n).proportion_ci(method="wilson").
TEST(Tries, ComputeWilsonsInterval) {
  const auto near = [](std::int64_t failed, std::int64_t made, double low, double high) {
    EXPECT_NEAR(wilson(failed, made).low, low, 1e-6) << failed << " of " << made;
    EXPECT_NEAR(wilson(failed, made).high, high, 1e-6) << failed << " of " << made;
  };
  near(3, 10, 0.10779127, 0.60322185);
  near(0, 10, 0, 0.27753280);
  near(10, 10, 0.72246720, 1);
  near(1, 3, 0.06149194, 0.79234030);
  near(1, 100000, 1.7652e-6, 5.6647e-5);
  near(0, 0, 0, 1);
  EXPECT_NEAR(rate_of({4, 2, 3, {}}).high, 0.79234030, 1e-6) << "the first of retried tries says nothing of the rate";
  EXPECT_EQ(tries_to_see({10, 2, 0, {}}), 14) << "0.8^14 < 5 %";
  EXPECT_EQ(tries_to_see({10, 10, 0, {}}), 1);
  EXPECT_EQ(tries_to_see({100000, 1, 0, {}}), 1000);
}

TEST(Case, WireFormContainsTheWholeCase) {
  for (const auto* file : {"seeds/xformers-t4.yaml", "seeds/mooncake-v100.yaml", "seeds/flashinfer-600.yaml"}) {
    for (const auto& s : catalogue::read_case_file(cases().directory() / file, "", &cases())) {
      const auto c = resolve(s, cases());
      const auto back = case_from_json(to_json(c));
      EXPECT_EQ(digest(back), digest(c)) << s.id;
      const SerializedCase all = serialize(c);
      EXPECT_EQ(all.document, to_json(c)) << s.id;
      EXPECT_EQ(all.digest, digest(c)) << s.id;
      EXPECT_EQ(all.execution, digest(c, false)) << s.id;
      EXPECT_EQ(to_json(back), to_json(c)) << s.id;
    }
  }
}

TEST(Case, WorkersNeverReceiveTheTruth) {
  auto s = spec();
  s.producer.claim_layout = "vllm-fa-hnd";
  s.expected = {{Outcome::fail, FaultClass::axis_permuted, {}, ""}};
  const auto c = resolve(s, cases());
  const auto view = worker_view(c);
  for (const char* key : {"id", "title", "expected", "seed", "facts", "passes", "content"})
    EXPECT_FALSE(view.contains(key)) << key;
  const auto text = view.dump();
  EXPECT_EQ(text.find("truth"), std::string::npos);
  EXPECT_EQ(text.find("axis-permuted"), std::string::npos);
  EXPECT_EQ(text.find(layout::to_text(c.groups[0].producer.ranks[0].truth)), std::string::npos);
  const auto seen = case_from_json(view);
  EXPECT_EQ(seen.groups[0].producer.ranks[0].claim, c.groups[0].producer.ranks[0].claim);
  EXPECT_TRUE(seen.groups[0].producer.ranks[0].truth.planes.empty());
  EXPECT_EQ(seen.groups[0].requests.size(), 1u) << "requests that are not moved are not its business";
  EXPECT_EQ(regions(seen, Side::consumer).size(), regions(c, Side::consumer).size());
}

TEST(Case, DigestCoversWhatIsExecuted) {
  const auto base = resolve(spec(), cases());
  auto other = base;
  other.title = "another title", other.id = "another/id";
  EXPECT_EQ(digest(other), digest(base));
  other.arch = "sm_90";
  EXPECT_NE(digest(other), digest(base));
  EXPECT_EQ(digest(other, false), digest(base, false)) << "cases that differ only in arch share an execution";
  other = base;
  other.seed = 2;
  EXPECT_NE(digest(other, false), digest(base, false));
  other = base;
  other.groups[0].requests[0].consumer_blocks[0] ^= 1;
  EXPECT_NE(digest(other, false), digest(base, false));
}

}  // namespace
TEST(Operations, EveryNameReadsBack) {
  for (int i = 0; i < scenario::operation_count; ++i) {
    const auto op = static_cast<scenario::Operation>(i);
    EXPECT_EQ(scenario::operation_from_name(scenario::name(op)), op);
    EXPECT_EQ(nlohmann::json(op).get<scenario::Operation>(), op);
  }
  EXPECT_THROW(scenario::operation_from_name("frobnicate"), std::runtime_error);
}

}  // namespace kvcts
