#include "cli/report/text.hpp"
#include "cli/report/repro.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace kvcts::report {
namespace {

TEST(Text, VisibleEscapesControlCharacters) {
  EXPECT_EQ(visible("a\x1b[31m\x07\x7f"), "a\\x1b[31m\\x07\\x7f");
  EXPECT_EQ(visible(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(visible("a\nb\tc\r"), "a\\nb\\tc\\x0d");
  EXPECT_EQ(visible("a\nb\tc\r", true), "a\nb\tc\\x0d");
  EXPECT_EQ(visible("caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80"), "caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80");
  EXPECT_EQ(visible("\xe2\x80\xae\xef\xbf\xbf\xc2\x9b"), "\\u202e\\uffff\\x9b");
  // Not UTF-8: stray tail, overlong, surrogate, beyond the last, cut off.
  for (const std::string_view bad : {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    std::string replaced;
    for (std::size_t i = 0; i < bad.size(); ++i) replaced += "\xef\xbf\xbd";
    EXPECT_EQ(visible(bad), replaced);
  }
}

TEST(Text, EscapedIsSafeInAttributes) {
  EXPECT_EQ(escaped("<a href=\"x\" o='y'>&amp;"), "&lt;a href=&quot;x&quot; o=&#39;y&#39;&gt;&amp;amp;");
}

TEST(Text, CutCountsCharacters) {
  EXPECT_EQ(cut("\xc3\xa9\xc3\xa9\xc3\xa9", 3), "\xc3\xa9\xc3\xa9\xc3\xa9");
  EXPECT_EQ(cut("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9\xc3\xa9...");
  EXPECT_EQ(cut("", 0), "");
}

// What a repro line prints, a shell must hand back unchanged.
TEST(Text, QuotedArgumentsSurviveTheShell) {
  for (const std::string word : {"plain", "a b", "it's", "$HOME `id` \"x\" \\", "*?[]{}!#~&|;<>()"}) {
    std::FILE* pipe = ::popen(("printf %s " + shell_word(word)).c_str(), "r");
    std::array<char, 200> buffer{};
    const std::string back(buffer.data(), std::fread(buffer.data(), 1, buffer.size(), pipe));
    ::pclose(pipe);
    EXPECT_EQ(back, word);
  }
}

TEST(Repro, RepeatsTheOptionsOfTheRun) {
  EXPECT_EQ(Repro{}.line("kv/producer=a b"), "kvcts repro 'kv/producer=a b'");
  const Repro all{{{"KVCTS_ENGINE_PATH", "/x/it's"}, {"KVCTS_PYTHON", "/usr/bin/python3"}},
                  "/data/cases",
                  {"/a/b.yaml", "/c d.yaml"},
                  7,
                  {}};
  EXPECT_EQ(all.line("a/b#c"),
            "KVCTS_ENGINE_PATH='/x/it'\\''s' KVCTS_PYTHON=/usr/bin/python3 kvcts --cases /data/cases repro 'a/b#c' --file "
            "/a/b.yaml --file '/c d.yaml' --seed 7");
  EXPECT_EQ(repro_from_json(to_json(all)), all);
  EXPECT_EQ(repro_from_json(to_json(Repro{})), Repro{});
  EXPECT_EQ(repro_from_json(nullptr), Repro{});
  EXPECT_FALSE(to_json(Repro{}).empty()) << "nothing given is not the same as nothing known";
}

TEST(Repro, MakesRelativePathsAbsolute) {
  const auto here = std::filesystem::current_path().string();
  ::setenv("KVCTS_ENGINE_PATH", "some/folder:/already/there", 1);
  ::setenv("KVCTS_PYTHON_VLLM", "python3", 1);
  ::setenv("KVCTS_TEST_SOMETHING", "x", 1);
  const Repro found = repro_here("./cases/../other");
  EXPECT_EQ(found.environment.at("KVCTS_ENGINE_PATH"), here + "/some/folder:/already/there");
  EXPECT_EQ(found.environment.at("KVCTS_PYTHON_VLLM"), "python3");
  EXPECT_FALSE(found.environment.contains("KVCTS_TEST_SOMETHING"));
  EXPECT_EQ(found.cases, here + "/other");
  for (const char* name : {"KVCTS_ENGINE_PATH", "KVCTS_PYTHON_VLLM", "KVCTS_TEST_SOMETHING"}) ::unsetenv(name);
}

TEST(Text, FormatsNumbersForReading) {
  EXPECT_EQ(thousands(0), "0");
  EXPECT_EQ(thousands(999), "999");
  EXPECT_EQ(thousands(31744), "31,744");
  EXPECT_EQ(thousands(-1234567), "-1,234,567");
  EXPECT_EQ(thousands(INT64_MIN), "-9,223,372,036,854,775,808");
  EXPECT_EQ(duration(0), "0 µs");
  EXPECT_EQ(duration(612000), "612 µs");
  EXPECT_EQ(duration(6120000), "6.12 ms");
  EXPECT_EQ(duration(61200000), "61 ms");
  EXPECT_EQ(duration(12'340'000'000), "12.3 s");
  EXPECT_EQ(duration(200'000'000'000), "3 min 20 s");
  EXPECT_EQ(duration(3'720'000'000'000), "1 h 02 min");
  EXPECT_EQ(bytes(512), "512 B");
  EXPECT_EQ(bytes(1536), "1.5 KiB");
  EXPECT_EQ(bytes(1 << 20), "1.0 MiB");
  EXPECT_EQ(plural(1, "case"), "1 case");
  EXPECT_EQ(plural(2000, "case"), "2,000 cases");
}

TEST(Text, CpuTransfersCountAsExecuted) {
  CaseResult r;
  r.outcome = Outcome::pass;
  r.facts = {{"arch", "cpu"}, {"engine_claims", {{"transport", "cma"}}}};
  EXPECT_EQ(evidence_name(r), "executed on this CPU");
  const auto with = [&](const char* fact, const nlohmann::json& value) {
    CaseResult other = r;
    other.facts[fact] = value;
    return evidence_name(other);
  };
  EXPECT_EQ(with("arch", "sm_90"), "modelled");
  EXPECT_EQ(with("scripted", true), "modelled");
  EXPECT_EQ(with("engine_claims", {{"device_evidence", "executed"}}), "modelled") << "a claim of a device";
  r.evidence = Evidence::executed;
  EXPECT_EQ(evidence_name(r), "executed") << "on a device";
  r.outcome = Outcome::skipped;
  EXPECT_EQ(evidence_name(r), "");
}

TEST(Text, OmitsACauseThatRepeatsTheException) {
  CaseResult r;
  r.outcome = Outcome::fail;
  r.message = "NameError: name 'x' is not defined (at mykv.py:40 in transfer)";
  r.diagnosis.text = "NameError: name 'x' is not defined";
  r.diagnosis.fault_class = FaultClass::truncated;
  EXPECT_FALSE(is_reported(r)) << "a guess is marked as one";
  r.diagnosis.fault_class = FaultClass::raised, r.diagnosis.exact = true;
  EXPECT_TRUE(is_reported(r));
  r.diagnosis.text = "something else";
  EXPECT_FALSE(is_reported(r));
}

TEST(Text, DescribesEveryEnding) {
  CaseResult r;
  r.outcome = Outcome::hang;
  r.hang = HangKind::runaway;
  r.phase = Phase::read_back;
  EXPECT_EQ(ending_text(r), "HANG runaway at read back");
  EXPECT_EQ(expected_text({}), "PASS");
  EXPECT_EQ(expected_text({{Outcome::fail, FaultClass::axis_permuted, Phase::compare, ""},
                           {Outcome::refused, FaultClass::none, std::nullopt, "5"}}),
            "FAIL axis-permuted at compare or REFUSED saying \"5\"");
}

}  // namespace
}  // namespace kvcts::report
