// Every committed case, written as readable text, reads back as the same case.
#include "case/catalogue/case_text.hpp"

#include <gtest/gtest.h>

#include "case/catalogue/case_file.hpp"
#include "testing/checkout.hpp"

namespace kvcts::catalogue {
namespace {

TEST(CaseText, EveryCommittedCaseRoundTrips) {
  int cases = 0;
  for (const char* folder : {"faults", "museum", "seeds", "crash"}) {
    for (const auto& file : yaml_files(std::filesystem::path(checkout::source()) / "cases" / folder)) {
      for (CaseSpec spec : read_case_file(file)) {
        if (spec.id.find('#') != std::string::npos) continue;
        const json document = to_document(spec);
        const std::string text = readable_yaml(document);
        EXPECT_EQ(to_document(parse_cases(text, "(text)").front()), document) << text;
        EXPECT_EQ(text.find("\"title\": "), std::string::npos) << "flow style has no words for " << spec.id << "\n" << text;
        EXPECT_EQ(text.rfind("case: ", 0), 0u) << text;
        ++cases;
      }
    }
  }
  EXPECT_GT(cases, 200);
}

TEST(CaseText, AnActualStepListsOnlyItsDifferences) {
  const std::string text = R"(case: my/order
memory:
  C: {side: consumer, layout: vllm-fa-hnd}
  P: {side: producer, layout: vllm-fa-nhd}
requests:
  A: {blocks: {C: [2, 4], P: [3, 0]}, tokens: 20}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: C, actually: {from: {layout: vllm-fa-hnd}}}
expected: {class: axis-permuted, outcome: FAIL}
)";
  const std::string written = readable_yaml(to_document(parse_cases(text, "(text)").front()));
  EXPECT_NE(written.find("  - move: {request: A, from: P, to: C, actually: {from: {layout: vllm-fa-hnd}}}\n"),
            std::string::npos)
      << written;
}

// A settle of 0s disables the watch for late writes; a deadline of 0s would make every case hang.
TEST(CaseText, SettleMayBeZeroAndNothingElse) {
  const std::string text = "case: my/case\nproducer: {layout: vllm-fa-nhd}\nsettle: 0s\n";
  const CaseSpec spec = parse_cases(text, "(text)").front();
  EXPECT_EQ(spec.settle_ms, 0);
  EXPECT_EQ(to_document(spec).at("settle"), "0s");
  try {
    parse_cases("case: my/case\nproducer: {layout: vllm-fa-nhd}\ndeadlines: {transfer: 0s}\n", "(text)");
    FAIL() << "a deadline of 0s was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("at least 1ms"), std::string::npos) << error.what();
  }
}

TEST(CaseText, QuotesTextThatYamlWouldConvert) {
  EXPECT_EQ(flow(json{{"a", "null"}, {"b", "17"}, {"c", "17a4"}, {"d", "x: y"}, {"e", ""}, {"f", "- x"}, {"g", 17}}),
            R"({a: "null", b: "17", c: 17a4, d: "x: y", e: "", f: "- x", g: 17})");
}

}  // namespace
}  // namespace kvcts::catalogue
