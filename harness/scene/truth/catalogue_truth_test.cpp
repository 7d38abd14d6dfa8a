// Every scripted case of the catalogue: the machine plays its intended sequence and must match the truth at each check.
// Where the two disagree, a case that does what it means would fail.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_scenario.hpp"
#include "scene/machine/copy_program.hpp"
#include "scene/machine/sequence.hpp"
#include "scene/testing/scenarios.hpp"
#include "testing/checkout.hpp"

namespace kvcts::scenario::testing {
namespace {

class CatalogueCases : public ::testing::TestWithParam<std::string> {};

bool matters(const Checkpoint& check, int buffer, std::int64_t offset) {
  const auto any = check.any.find(buffer);
  return any == check.any.end() || !holds_byte(any->second, offset);
}

void expect_machine_to_do_what_is_meant(const Scenario& scenario) {
  const TruthBytes truth_bytes(scenario);
  const CopyProgram program = record(scenario, truth_bytes.space, intended_sequence(scenario));
  EXPECT_EQ(program.ending.kind, truth_bytes.truth.ending.kind) << program.ending.text;
  EXPECT_EQ(program.ending.step, truth_bytes.truth.ending.step);
  ASSERT_EQ(program.checks.size(), truth_bytes.truth.checks.size());
  for (int pass : {0, 1}) {
    Bytes bytes(program.buffers, TruthBytes::seed, pass);
    execute(program, bytes, TruthBytes::seed, pass, [&](std::size_t index) {
      const Checkpoint& check = truth_bytes.truth.checks.at(index);
      EXPECT_EQ(program.checks[index], check.step);
      Rendering rendering(truth_bytes.symbols, truth_bytes.space.buffers(), TruthBytes::seed, pass);
      for (const Buffer& b : truth_bytes.space.buffers()) {
        const SymbolImage& image = check.images[static_cast<std::size_t>(b.ordinal)];
        const auto compare = [&](std::int64_t begin, std::int64_t end) {
          std::vector<std::uint8_t> must(static_cast<std::size_t>(end - begin)), found(must.size());
          render(image, b, rendering, begin, must);
          bytes.read(b.ordinal, begin, end - begin, found.data());
          for (std::int64_t i = begin; i < end; ++i) {
            const auto at = static_cast<std::size_t>(i - begin);
            if (must[at] == found[at] || !matters(check, b.ordinal, i)) continue;
            ADD_FAILURE() << "check '" << check.step << "', " << b.name << " + " << i << " in pass " << pass << ": must be "
                          << int(must[at]) << ", is " << int(found[at]);
            return;
          }
        };
        if (!b.sparse) {
          compare(-b.guard_below, b.bytes + b.guard_above);
          continue;
        }
        // Pages that either of them wrote.
        std::set<std::int64_t> begins;
        for (const auto& [number, ids] : image.pages()) begins.insert(number * SymbolImage::page);
        for (const std::int64_t begin : bytes.pages(b.ordinal)) begins.insert(begin);
        for (const std::int64_t begin : begins) {
          compare(std::max(begin, -b.guard_below), std::min(begin + SymbolImage::page, b.bytes + b.guard_above));
        }
      }
    });
  }
}

TEST_P(CatalogueCases, IntendedStepsLeaveTheBytesOfTheTruth) {
  const catalogue::Catalogue catalogue(std::filesystem::path(checkout::source()) / "cases");
  for (const CaseSpec& spec : catalogue::read_case_file(GetParam(), "", &catalogue)) {
    if (spec.scenario.empty()) continue;
    SCOPED_TRACE(spec.id);
    try {
      expect_machine_to_do_what_is_meant(resolve_scenario(spec, catalogue));
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

std::vector<std::string> files() {
  std::vector<std::string> out;
  for (const char* folder : {"cases/faults", "cases/museum"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(checkout::source()) / folder)) {
      if (entry.path().extension() == ".yaml") out.push_back(entry.path().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, CatalogueCases, ::testing::ValuesIn(files()), [](const auto& file) {
  const std::filesystem::path path(file.param);
  std::string name = path.parent_path().filename().string() + "_" + path.stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

// In a pool, a registration of one allocation ends with it, not with the pool; a request is read as it is by then.
TEST(CatalogueTruth, HandlesRegistrationsInAPoolAndReadsAfterAnAssign) {
  const catalogue::Catalogue all(std::filesystem::path(checkout::source()) / "cases");
  const auto cases = catalogue::parse_cases(R"(
case: t/pool
geometry: {layers: 2, blocks: 6, block_size: 4, heads: 2, head_dim: 32}
memory:
  P: {side: producer, template: "L x K B N H C", pool: true, gap: 640}
  C: {template: "L x K B N H C"}
requests: {A: {tokens: 5, blocks: {P: [3, 0], C: [5, 1]}}}
steps:
  - register: {memory: P/kv.L0}
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: C, layers: 0}
  - move: {request: A, from: P, to: C, layers: 1}
  - assign: {request: A, tokens: 7}
  - write: {request: A, to: C, tokens: [5, 6]}
  - read: {request: A, from: C}
)",
                                            "f.yaml", &all);
  expect_machine_to_do_what_is_meant(resolve_scenario(cases.at(0), all));
}

}  // namespace
}  // namespace kvcts::scenario::testing
