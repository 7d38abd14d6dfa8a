// When a diagnosis is sure: one class alone explains all that was observed, and nothing about it is in doubt.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_script.hpp"
#include "diagnose/run.hpp"
#include "testing/checkout.hpp"

namespace kvcts::script {
namespace {

bool says(const Diagnosis& why, const std::string& words) { return why.text.find(words) != std::string::npos; }

/// Of a document with two memories, P and C, of 3 layers.
Diagnosis diagnosis_of(const std::string& steps) {
  const catalogue::Catalogue catalogue(std::filesystem::path(checkout::source()) / "cases");
  const std::string text =
      "case: t/sure\ndtype: bf16\ngeometry: {layers: 3, blocks: 8, block_size: 16, heads: 2, head_dim: 32}\n"
      "memory:\n  P: {side: producer, template: \"L K B N H C\"}\n  C: {template: \"L K B N H C\"}\n"
      "requests: {A: {tokens: 32, blocks: {P: [3, 5], C: [1, 2]}}}\nsteps:\n  - write: {request: A, to: P}\n" +
      steps;
  return run_script(resolve_script(catalogue::parse_cases(text, "f.yaml", &catalogue).at(0), catalogue), 1).diagnosis;
}

const Cause stale{FaultClass::stale_block, "old"}, missing{FaultClass::layer_missing, "one layer"};

TEST(Sure, OneClassAlone) {
  EXPECT_TRUE(kvcts::named({stale}, "").sure);
  EXPECT_TRUE(kvcts::named({stale, {FaultClass::stale_block, "in other words"}}, "").sure);
  EXPECT_FALSE(kvcts::named({stale, missing}, "").sure) << "another class explains as much, though it is less likely";
  Cause rival = missing;
  rival.rival = true;
  const Diagnosis two = kvcts::named({stale, rival}, "");
  EXPECT_FALSE(two.sure);
  EXPECT_TRUE(says(two, "the bytes cannot tell it from layer-missing: one layer"));
}

TEST(Sure, ACountOrAReportThatDecidesIsNamed) {
  Cause other = missing;
  other.told_by = ToldBy::count;
  const Diagnosis counted = kvcts::named({stale, other}, "");
  EXPECT_TRUE(counted.sure);
  EXPECT_TRUE(says(counted, "only the number of bytes moved tells it from layer-missing: one layer")) << counted.text;
  other.told_by = ToldBy::events;
  EXPECT_TRUE(says(kvcts::named({stale, other}, ""), "only how it ended or what was reported tells it from"))
      << "no word of it";
}

TEST(Sure, NothingIsInDoubt) {
  EXPECT_FALSE(kvcts::named({stale}, "", {.cut = true}).sure);
  EXPECT_FALSE(kvcts::named({stale}, "", {.other_count = true}).sure);
  const Diagnosis unknown = kvcts::named({stale}, "", {.undeclared = {64, 4096}});
  EXPECT_FALSE(unknown.sure);
  EXPECT_TRUE(says(unknown, "nothing declares 64, 4,096")) << unknown.text;
}

// 4 tokens are nowhere in the case; the strides of another order are made of its own numbers.
TEST(Sure, NumbersThatNothingDeclares) {
  const Diagnosis wider = diagnosis_of(
      "  - move: {request: A, from: P, to: C, actually: {from: {of: P, template: \"L K B N H C\", geometry: {block_size: 4, "
      "blocks: 32}}}}\n");
  EXPECT_TRUE(wider.exact) << wider.text;
  EXPECT_FALSE(wider.sure) << wider.text;
  EXPECT_TRUE(says(wider, "nothing declares")) << wider.text;
  const Diagnosis turned =
      diagnosis_of("  - move: {request: A, from: P, to: C, actually: {from: {of: P, template: \"L K B H N C\"}}}\n");
  EXPECT_TRUE(turned.exact && turned.sure) << turned.text;
  EXPECT_FALSE(says(turned, "nothing declares")) << turned.text;
}

}  // namespace
}  // namespace kvcts::script
