#include "case/catalogue/case_file.hpp"
#include "testing/checkout.hpp"

#include <gtest/gtest.h>

#include <random>

namespace kvcts::catalogue {
namespace {

const Catalogue& catalogue() {
  static const Catalogue instance(checkout::source() + "/cases");
  return instance;
}

std::string error_of(const std::string& text) {
  try {
    parse_cases(text, "f.yaml", &catalogue());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

constexpr const char* whole = R"(
case: seeds/everything
title: all keys at once
notes: for the parser
links: [https://example.org/1]
arch: sm_75
dtype: fp16
geometry: {base: tiny, heads: 4, tokens: 9}
connector: explicit
engine: shm
engine_options: {chunk: 64, mode: fast}
op: read
ids: reversed
content: tags
seed: 0xffffffffffffffff
producer:
  layout: vllm-fa-nhd
  tensors: {list: L, shape: "K B NHC"}
  dtype: fp32
  block_size: 8
  blocks: 11
  tp: 2
  claim: {template: "L x B K N H C", tensors: {list: L}}
consumer: {template: "L x B H N C", tp: 1}
requests:
  - {tokens: 9, generation: 4, producer_blocks: [3, 0], consumer_blocks: [1, 2]}
  - {tokens: 8, transfer: false}
groups:
  - {name: swa, geometry: heads-2, producer: {layout: vllm-fa-hnd}, requests: [{tokens: 5}]}
reader: {name: flashinfer-decode, order: NHD}
copies: [{from: kv.L0, to: consumer/g0/r0/kv.L0, to_offset: -8, bytes: 16}]
deadlines: {transfer: 2s, read back: 250ms}
settle: 10ms
guard: 8192
misalign: 64
expected: [{outcome: FAIL, class: axis-permuted, phase: compare, contains: HND}, REFUSED]
controls:
  - {name: right, set: {connector: reference, copies: null, producer: {claim: null}}}
  - {name: other, set: {engine: memcpy}, expected: {outcome: HANG, phase: transfer}}
)";

TEST(CaseFile, ReadsEveryKey) {
  const auto cases = parse_cases(whole, "f.yaml", &catalogue());
  ASSERT_EQ(cases.size(), 3u);
  const CaseSpec& c = cases[0];
  EXPECT_EQ(c.id, "seeds/everything");
  EXPECT_EQ(c.geometry, "tiny");
  EXPECT_EQ(c.geometry_values.dump(), R"({"heads":4,"tokens":9})");
  EXPECT_EQ(c.seed, ~std::uint64_t{0});
  EXPECT_EQ(c.engine_options.dump(), R"({"chunk":64,"mode":"fast"})");
  EXPECT_EQ(c.producer.tensors->shape, "K B NHC");
  EXPECT_EQ(c.producer.claim_text, "L x B K N H C");
  EXPECT_EQ(c.producer.claim_tensors->list, "L");
  EXPECT_EQ(c.requests[0].producer_blocks, (std::vector<std::int64_t>{3, 0}));
  EXPECT_FALSE(c.requests[1].transfer);
  EXPECT_EQ(c.reader, "flashinfer-decode");
  EXPECT_EQ(c.reader_options.dump(), R"({"order":"NHD"})");
  EXPECT_EQ(c.copies[0].to_offset, -8);
  EXPECT_EQ(c.deadlines_ms.at("read back"), 250);
  EXPECT_EQ(c.settle_ms, 10);
  ASSERT_EQ(c.expected.size(), 2u);
  EXPECT_EQ(c.expected[0], (Expected{Outcome::fail, FaultClass::axis_permuted, Phase::compare, "HND"}));
  EXPECT_EQ(c.expected[1].outcome, Outcome::refused);
}

TEST(CaseFile, ConsumerInheritsFromTheProducer) {
  const auto cases = parse_cases(whole, "f.yaml");
  const SideSpec& consumer = cases[0].consumer;
  EXPECT_EQ(consumer.text, "L x B H N C");
  EXPECT_EQ(consumer.layout, "");  // its own layout replaces the producer's entirely
  EXPECT_FALSE(consumer.tensors.has_value());
  EXPECT_EQ(consumer.dtype, "fp32");
  EXPECT_EQ(consumer.block_size, 8);
  EXPECT_EQ(consumer.tp, 1);
  EXPECT_EQ(consumer.claim_text, "");  // one side gets the false claim
  EXPECT_EQ(cases[0].groups[0].consumer.layout, "vllm-fa-hnd");
  EXPECT_EQ(parse_cases("case: a\nproducer: {layout: vllm-mla, tp: 2}\n", "f")[0].consumer.tp, 2);
}

TEST(CaseFile, ControlsBecomeSeparateCases) {
  const auto cases = parse_cases(whole, "f.yaml");
  EXPECT_EQ(cases[1].id, "seeds/everything#right");
  EXPECT_EQ(cases[1].connector, "reference");
  EXPECT_TRUE(cases[1].copies.empty());
  EXPECT_EQ(cases[1].producer.claim_text, "");
  EXPECT_EQ(cases[1].producer.layout, "vllm-fa-nhd");
  EXPECT_EQ(cases[1].expected, std::vector<Expected>{Expected{}});
  EXPECT_EQ(cases[2].engine, "memcpy");
  EXPECT_EQ(cases[2].expected[0].phase, Phase::transfer);
  EXPECT_TRUE(cases[2].controls.empty());
}

TEST(CaseFile, RefusesMistakesWithTheirLine) {
  const std::string head = "case: a\nproducer: {layout: vllm-mla}\n";
  const std::pair<std::string, std::string> table[]{
      {"", "f.yaml:1: expected at least one case, found an empty file"},
      {"case: a\n", "f.yaml:1: expected the key 'producer' in a case, found none"},
      {"case: a b\nproducer: {layout: x}\n", "f.yaml:1: key 'case': expected a case id"},
      {"case: ..\nproducer: {layout: x}\n", "f.yaml:1: key 'case': expected a case id"},
      {"case: a/../b\nproducer: {layout: x}\n", "f.yaml:1: key 'case': expected a case id"},
      {"case: --help\nproducer: {layout: x}\n", "f.yaml:1: key 'case': expected a case id"},
      {"case: a\nproducer: {}\n", "f.yaml:2: key 'producer': expected a side with backend, layout or template"},
      {"case: a\nproducer: {layout: x, template: y}\n", "f.yaml:2: key 'producer': expected one of layout and template"},
      {head + "arch: sm_91\n", "f.yaml:3: key 'arch': expected a known id, found 'sm_91'; did you mean 'sm_90'?"},
      {head + "engine: memcopy\n", "f.yaml:3: key 'engine': expected a known id, found 'memcopy'; did you mean 'memcpy'?"},
      {"case: a\nproducer: {layout: vllm-fa-nhdd}\n",
       "f.yaml:2: key 'layout': expected a known id, found 'vllm-fa-nhdd'; did you mean 'vllm-fa-nhd'?"},
      {"case: a\nproducer: {layout: vllm-mla, claim: {layout: vllm-mlaa}}\n",
       "f.yaml:2: key 'layout': expected a known id, found 'vllm-mlaa'; did you mean 'vllm-mla'?"},
      {"case: a\nproducer: {backend: sglang-mha, layout: vllm-mla}\n",
       "f.yaml:2: key 'layout': expected a layout of backend 'sglang-mha', found 'vllm-mla'"},
      {head + "requests: [{token: 4}]\n",
       "f.yaml:3: key 'requests': expected a key of a request, found 'token'; did you mean 'tokens'?"},
      {head + "geometry: {base: small, haeds: 2}\n",
       "f.yaml:3: key 'geometry': expected one of the keys of this mapping, found 'haeds'"},
      {head + "expected: {outcome: FAIL, class: [truncated, over-read]}\n",
       "f.yaml:3: key 'class': expected one fault class, found a list of 2; where any of several will do: expected: [{"},
      {head + "expected: FIAL\n", "f.yaml:3: key 'expected': expected one of PASS"},
      {head + "expected: {outcome: FAIL, class: axis-permutted}\n", "f.yaml:3: key 'class': expected one of"},
      {head + "deadlines: {transfre: 2s}\n",
       "f.yaml:3: key 'deadlines': expected one of the keys of this mapping, found 'transfre'"},
      {head + "copies: [{from: a, to: b, bytes: 4}]\n", "f.yaml:3: expected copies only with connector: explicit"},
      {head + "controls: [{name: x, set: {case: b}}]\n", "f.yaml:3: key 'controls': expected a patch without 'case'"},
      {head + "controls: [{name: x, set: {arch: cpu}}, {name: x, set: {}}]\n",
       "f.yaml:3: expected controls with distinct names"},
      {head + "controls: [{name: x, set: {arhc: cpu}}]\n",
       "f.yaml:3: expected a key of a case, found 'arhc'; did you mean 'arch'?"},
      {head + "---\n" + head, "f.yaml:4: expected a new case id, found 'a' again; rename one of them"},
      {head + "reader: {order: NHD}\n", "f.yaml:3: key 'reader': expected the key 'name' in a reader, found none"},
      {head + "producer: {layout: vllm-mla}\n", "f.yaml:3: expected key 'producer' once, found it again (first at line 2)"},
  };
  for (const auto& [text, expected] : table) EXPECT_EQ(error_of(text).substr(0, expected.size()), expected) << text;
}

TEST(CaseFile, RoundTripsThroughYaml) {
  for (const auto& spec : parse_cases(whole, "f.yaml")) {
    CaseSpec plain = spec;
    plain.id = "a";  // '#' is not for files
    const std::string text = to_yaml(plain);
    const CaseSpec again = parse_cases(text, "f.yaml").at(0);
    EXPECT_EQ(to_document(again), to_document(plain)) << text;
    EXPECT_EQ(again.consumer.dtype, plain.consumer.dtype);
    EXPECT_EQ(again.consumer.tensors, plain.consumer.tensors);
  }
}

// Random cases, written and read back.
TEST(CaseFile, RoundTripsRandomCases) {
  std::mt19937_64 random(7);
  const auto chance = [&](int n) { return random() % static_cast<unsigned>(n) == 0; };
  const auto side = [&] {
    SideSpec s;
    chance(3) ? s.text = "L x B N H C" : chance(2) ? s.backend = "sglang-mha" : s.layout = "vllm-fa-nhd";
    if (chance(2)) s.tensors = layout::TensorSpec{"L", chance(2) ? "" : "B N HC"};
    if (chance(2)) s.dtype = "fp8_e4m3";
    if (chance(2)) s.block_size = 1 + static_cast<std::int64_t>(random() % 64);
    if (chance(2)) s.blocks = 5;
    s.tp = 1 + static_cast<std::int64_t>(random() % 4);
    if (chance(3)) s.claim_layout = "vllm-fa-hnd";
    if (chance(3)) s.claim_tensors = layout::TensorSpec{"", "B"};
    return s;
  };
  for (int i = 0; i < 2000; ++i) {
    CaseSpec c;
    c.id = "random/" + std::to_string(i);
    if (chance(2)) c.title = "t: \"quoted\" # and 'more' \n line";
    if (chance(2)) c.geometry_values = {{"heads", 3}};
    c.seed = random();
    c.producer = side(), c.consumer = side();
    if (chance(2)) c.requests.push_back({7, 2, chance(2), {1, 0}, {}});
    if (chance(3)) c.groups.push_back({"g", "tiny", json::object(), side(), side(), {}});
    if (chance(3)) c.reader = "r", c.reader_options = {{"x", 1.5}};
    if (chance(3)) c.deadlines_ms["read back"] = 1234;
    if (chance(2)) c.misalign = 64;
    c.expected = {Expected{Outcome::hang, FaultClass::none, Phase::transfer, "0.10"}};
    const std::string text = to_yaml(c);
    const CaseSpec again = parse_cases(text, "f.yaml", &catalogue()).at(0);
    ASSERT_EQ(to_document(again), to_document(c)) << text;
    ASSERT_EQ(again.title, c.title);
    ASSERT_EQ(again.consumer.block_size, c.consumer.block_size) << text;
    ASSERT_EQ(again.consumer.tp, c.consumer.tp) << text;
    ASSERT_EQ(again.consumer.dtype, c.consumer.dtype) << text;
    ASSERT_EQ(again.consumer.claim_layout, c.consumer.claim_layout) << text;
    ASSERT_EQ(again.seed, c.seed);
  }
}

}  // namespace
}  // namespace kvcts::catalogue
