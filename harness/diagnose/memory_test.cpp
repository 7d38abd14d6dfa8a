// Memory use of a scripted case: depends on what it touches, not on the size of its pools. Measured in a separate process.
#include <gtest/gtest.h>

#include <filesystem>

#include "case/catalogue/case_file.hpp"
#include "case/footprint.hpp"
#include "case/resolve/resolve_script.hpp"
#include "diagnose/run.hpp"
#include "testing/checkout.hpp"
#include "testing/peak.hpp"

namespace kvcts::script {
namespace {

using testing_support::peak_of;

constexpr double mib = 1 << 20;

Script told(const std::string& blocks, const std::string& tokens, const std::string& ids, const std::string& actual,
            const std::string& dtype = "bf16", const std::string& layout = "L x K B N H C") {
  static const catalogue::Catalogue all(std::filesystem::path(checkout::source()) / "cases");
  const std::string text = "case: t/pool\ndtype: " + dtype + "\ngeometry: {layers: 1, blocks: " + blocks +
                           ", block_size: 16, heads: 2, head_dim: 32}\n"
                           "memory:\n  P: {side: producer, template: \"" +
                           layout + "\"}\n  C: {template: \"" + layout +
                           "\"}\n"
                           "requests: {A: {tokens: " +
                           tokens + ", blocks: {P: " + ids + ", C: " + ids +
                           "}}}\n"
                           "steps:\n  - write: {request: A, to: P}\n  - check\n  - move: {request: A, from: P, to: C" +
                           actual + "}\n  - read: {request: A, from: C}\n";
  return resolve_script(catalogue::parse_cases(text, "f.yaml", &all)[0], all);
}

// Blocks of 4 KiB: two pools of 2.16 GB each, of which two blocks are touched.
TEST(Memory, APoolCostsWhatIsTouchedOfIt) {
  const Script right = told("528000", "32", "[527000, 7]", "");
  const Script wrong = told("528000", "32", "[527000, 7]", ", actually: {to_blocks: [7, 527000]}");
  const double right_peak = peak_of([&] { return run_script(right, 1).outcome == Outcome::pass; });
  const double wrong_peak = peak_of([&] {
    const auto reply = run_script(wrong, 1);
    return reply.outcome == Outcome::fail && reply.diagnosis.fault_class == FaultClass::wrong_block_id;
  });
  EXPECT_GT(right_peak, 0);
  EXPECT_GT(wrong_peak, 0);
  EXPECT_LT(right_peak, 150 * mib);
  EXPECT_LT(wrong_peak, 600 * mib);
}

TEST(Memory, IsReckonedBeforehand) {
  // 0.5 and 2 MiB of content (of 16 bits), whose steps touch all of it.
  for (const int blocks : {128, 512}) {
    std::string ids;
    for (int i = 0; i < blocks; ++i) ids += (i ? ", " : "[") + std::to_string(i);
    for (const auto& [dtype, layout] : {std::pair{"bf16", "L x K B N H C"},
                                        {"fp8_per_token_head", "L x K B N H { C ; scale C }"},
                                        {"nvfp4", "L x K B N H { C ; scale C } & gscale L K"}}) {
      SCOPED_TRACE(std::to_string(blocks) + " blocks of " + dtype);
      const Script script = told(std::to_string(blocks), std::to_string(16 * blocks), ids + "]", "", dtype, layout);
      const double peak = peak_of([&] { return run_script(script, 1).outcome == Outcome::pass; }),
                   reckoned = memory_needed(script);
      EXPECT_GT(peak, 0);
      EXPECT_LT(peak, reckoned);
      EXPECT_GT(peak, reckoned / 8);
    }
  }
}

TEST(Memory, ASearchThatWouldNotFitIsNotBegun) {
  std::string ids;
  for (int i = 0; i < 1024; ++i) ids += (i ? ", " : "[") + std::to_string(i);
  const Script script = told("1024", "16384", ids + "]", ", actually: {kv: [V, K], to_kv: [K, V]}");
  const double peak = peak_of([&] {
    const auto ran = run_script(script, 1);
    return ran.outcome == Outcome::fail && ran.message.find("the search for the cause was skipped") != std::string::npos;
  });
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, memory_needed(script));
}

// Blocks exchanged with channels would make rows of a million channels: without a limit this takes minutes.
TEST(Memory, APoolOfAMillionBlocksIsSearched) {
  static const catalogue::Catalogue all(std::filesystem::path(checkout::source()) / "cases");
  const Script wrong = resolve_script(catalogue::parse_cases(R"(
case: t/vast
dtype: fp8_e4m3
geometry: {layers: 1, blocks: 1200000, block_size: 64, kv: 1, heads: 1, head_dim: 128}
memory: {I: {layout: vllm-dsa-indexer, sparse: true, guard_below: 0x200000000}}
requests: {A: {tokens: 150, blocks: {I: [5, 1100000, 1050000]}}}
steps:
  - write: {request: A, to: I}
  - read:
      request: A
      from: I
      actually:
        - intended: {parts: data}
        - intended: {parts: scales, from: {of: I, arithmetic: {bits: 32, unit: elements, of: product}}}
)",
                                                             "f.yaml", &all)[0],
                                      all);
  EXPECT_EQ(run_script(wrong, 1).diagnosis.fault_class, FaultClass::int32_overflow);
}

}  // namespace
}  // namespace kvcts::script
