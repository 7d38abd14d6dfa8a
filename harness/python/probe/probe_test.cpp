#include "python/probe/verify.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "python/probe/describe.hpp"
#include "testing/checkout.hpp"

namespace kvcts::probe {
namespace {

const catalogue::Catalogue& cases() {
  static const catalogue::Catalogue all(checkout::source() + "/cases");
  return all;
}

struct Memory {
  explicit Memory(const std::string& name, std::map<std::string, std::int64_t> numbers = {},
                  const std::string& dtype = "bf16") {
    for (const auto& [key, value] : std::map<std::string, std::int64_t>{
             {"layers", 2}, {"blocks", 6}, {"block_size", 4}, {"heads", 3}, {"head_dim", 16}})
      numbers.emplace(key, value);
    subject = make_subject({name, dtype, numbers, {}}, cases());
    for (const auto& a : subject.cache.allocations) bytes.emplace_back(static_cast<std::size_t>(a.bytes));
  }
  Bound bound() {
    std::vector<Tensor> tensors;
    for (auto& b : bytes) tensors.push_back({b.data(), "uint8", 1, {static_cast<std::int64_t>(b.size())}, {1}});
    return attach(subject, tensors);
  }
  void hold(const std::vector<Request>& requests, std::optional<Side> side = Side::consumer) {
    fill(subject, bound(), {requests, {}, side}, 1);
  }
  Report ask(const std::vector<Request>& requests) {
    return verify({subject, bound(), {requests, {}, Side::consumer}, true, std::nullopt, 1});
  }

  Subject subject;
  std::vector<std::vector<std::uint8_t>> bytes;
};

const std::vector<Request> request{{{5, 0, 2}, 11, 1}};

void expect_named(const Report& report, FaultClass fault_class) {
  EXPECT_EQ(report.diagnosis.fault_class, fault_class) << report.diagnosis.text;
  EXPECT_TRUE(report.diagnosis.exact) << report.diagnosis.text;
  EXPECT_GT(report.wrong_bytes, 0);
  EXPECT_FALSE(report.diagnosis.what_to_do.empty());
}

TEST(Probe, ReportsNoCauseForCorrectBytes) {
  for (const char* dtype : {"bf16", "fp8_e4m3", "fp32", "int4", "nvfp4"}) {
    Memory memory("L x K B N H C", {}, dtype);
    memory.hold(request);
    const Report report = memory.ask(request);
    EXPECT_EQ(report.wrong_bytes, 0) << dtype;
    EXPECT_TRUE(report.diagnosis.text.empty());
    EXPECT_EQ(report.blocks.size(), 3u);
  }
}

TEST(Probe, NamesBytesWrittenThroughAnotherLayout) {
  const std::pair<const char*, FaultClass> maps[] = {{"L x K B H N C", FaultClass::axis_permuted},
                                                     {"L x K B H C N", FaultClass::axis_permuted},
                                                     {"L x B K N H C", FaultClass::kv_split_vs_interleaved}};
  for (const auto& [text, fault_class] : maps) {
    Memory right("L x K B N H C"), other(text);
    other.hold(request);
    right.bytes = other.bytes;
    expect_named(right.ask(request), fault_class);
  }
}

TEST(Probe, DescribesWhatHappenedToRows) {
  using Words = std::vector<std::string>;
  const auto reported = [](const Report& report) {
    Words out;
    for (const Finding& one : report.what_happened) out.push_back(one.text);
    return out;
  };
  Memory memory("L x B K N H C");
  memory.hold(request);
  EXPECT_EQ(reported(memory.ask(request)), Words{});
  // Block 0 (tokens 4..7) gets what block 5 (tokens 0..3) has, in layer 1: 2 * 4 * 3 * 16 * 2 bytes a block.
  const std::int64_t block = 768;
  std::copy_n(memory.bytes[1].begin() + 5 * block, block, memory.bytes[1].begin());
  EXPECT_EQ(reported(memory.ask(request)), Words{"consumer, layer 1, tokens 4..7 (block 0): holds tokens 0..3 (768 bytes)"});

  memory.hold(request);
  memory.bytes[0][5 * block + 63] ^= 1;  // one bit in a row that begins right
  const Report changed = memory.ask(request);
  EXPECT_EQ(
      reported(changed),
      Words{"consumer, layer 0, K, token 0 (block 5), head 1, channel 15: holds bytes of unknown origin (1 of 2 bytes)"});
  EXPECT_EQ(changed.diagnosis.text.find("cause not identified; what happened: consumer, layer 0, K, token 0"), 0U)
      << changed.diagnosis.text;
}

TEST(Probe, NamesFourBitCodesWrittenThroughAnotherLayout) {
  Memory right("L x K B N H C", {}, "int4"), other("L x K B H N C", {}, "int4");
  other.hold(request);
  right.bytes = other.bytes;
  expect_named(right.ask(request), FaultClass::axis_permuted);
}

TEST(Probe, NamesBytesOfOtherTokens) {
  const auto is = [](const Request& held) {
    Memory memory("L x K B N H C");
    memory.hold({held});
    return memory.ask(request);
  };
  expect_named(is({{2, 0, 5}, 11, 1}), FaultClass::wrong_block_id);
  expect_named(is({{5, 0, 2}, 11, 0}), FaultClass::stale_block);
  expect_named(is({{5, 0, 2}, 6, 1}), FaultClass::truncated);
  expect_named(is({{}, 0, 1}), FaultClass::silently_skipped);
  const std::string reversed = is({{2, 0, 5}, 11, 1}).diagnosis.text;
  EXPECT_NE(reversed.find("(reversed)"), std::string::npos) << reversed;
}

TEST(Probe, ChecksASingleLayer) {
  Memory right("L x K B N H C"), other("L x K B H N C");
  right.hold(request), other.hold(request);
  right.bytes[1] = other.bytes[1];
  const Report report = right.ask(request);
  expect_named(report, FaultClass::axis_permuted);
  EXPECT_NE(report.diagnosis.text.find("only layers 1:"), std::string::npos) << report.diagnosis.text;
}

TEST(Probe, FindsAWrongByteAnywhere) {
  Memory memory("L x B { K N H C ; pad 32 }");
  memory.hold(request);
  for (const std::size_t at : {std::size_t{0}, memory.bytes[0].size() / 2, memory.bytes[0].size() - 1}) {
    memory.bytes[0][at] ^= 0x10;
    const Report report = memory.ask(request);
    EXPECT_EQ(report.wrong_bytes, 1) << at;
    ASSERT_EQ(report.first.size(), 1u);
    EXPECT_EQ(report.first[0].offset, static_cast<std::int64_t>(at));
    EXPECT_FALSE(report.diagnosis.exact);
    memory.bytes[0][at] ^= 0x10;
  }
  EXPECT_EQ(memory.ask(request).wrong_bytes, 0);
}

TEST(Probe, ChecksTensorsAgainstTheLayout) {
  Memory memory("vllm-fa-nhd", {{"layers", 1}});
  const std::vector<std::int64_t> shape{2, 6, 4, 3, 16}, strides{2304, 384, 96, 32, 2};
  const auto with = [&](std::vector<std::int64_t> s, std::vector<std::int64_t> t, const std::string& dtype = "bf16") {
    return attach(memory.subject, {{memory.bytes[0].data(), dtype, 2, std::move(s), std::move(t)}});
  };
  EXPECT_EQ(with(shape, strides).ranges[0].bytes.size(), memory.bytes[0].size());
  EXPECT_EQ(with(shape, strides, "uint16").ranges.size(), 1u);
  EXPECT_THROW(with(shape, strides, "fp16"), layout::Error);
  EXPECT_THROW(with({2, 6, 3, 4, 16}, strides), layout::Error);
  EXPECT_THROW(with(shape, {2304, 384, 32, 128, 2}), layout::Error);
}

TEST(Probe, ComparePredictsTheEffectOfACopy) {
  Memory a("L x K B N H C"), b("L x K B H N C"), c("L x K B N H C", {{"heads", 2}});
  EXPECT_EQ(compare(a.subject, a.subject, Moves::blocks).code, 0);
  EXPECT_EQ(compare(a.subject, b.subject, Moves::coordinates).code, 10);
  EXPECT_EQ(compare(a.subject, c.subject, Moves::coordinates).code, 11);
  const Compatibility silent = compare(a.subject, b.subject, Moves::blocks);
  EXPECT_EQ(silent.code, 12);
  EXPECT_EQ(silent.fault_class, FaultClass::axis_permuted);
}

}  // namespace
}  // namespace kvcts::probe
