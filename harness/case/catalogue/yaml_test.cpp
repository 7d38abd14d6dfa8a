#include "case/catalogue/yaml.hpp"

#include <gtest/gtest.h>

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/nearest.hpp"

namespace kvcts::catalogue {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_yaml(text, "f.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Yaml, KeepsLinesAndKinds) {
  const auto documents = parse_yaml("a: 1\nb:\n  - x\n  - {c: \"2\"}\n---\nd: ~\n", "f.yaml");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].find("b")->items[1].find("c")->line, 4);
  EXPECT_EQ(to_json(documents[0]).dump(), R"({"a":1,"b":["x",{"c":"2"}]})");
  EXPECT_EQ(to_json(documents[1]).dump(), R"({"d":null})");
}

TEST(Yaml, ReadsScalarsOfTheCoreSchema) {
  const auto value = [](const std::string& text) { return to_json(parse_yaml("v: " + text, "f")[0]).at("v"); };
  EXPECT_EQ(value("12"), 12);
  EXPECT_EQ(value("-7"), -7);
  EXPECT_EQ(value("0x1f"), 31);
  EXPECT_EQ(value("18446744073709551615"), 18446744073709551615u);
  EXPECT_EQ(value("1.5"), 1.5);
  EXPECT_EQ(value("0.10.2"), "0.10.2");
  EXPECT_EQ(value("true"), true);
  EXPECT_EQ(value("yes"), "yes");  // YAML 1.2: no longer a boolean
  EXPECT_EQ(value("\"12\""), "12");
  EXPECT_EQ(value("nan"), "nan");
  EXPECT_EQ(value("1_000"), "1_000");
}

TEST(Yaml, RefusesAnythingButPlainYaml) {
  const std::pair<std::string, std::string> table[]{
      {"a: 1\na: 2\n", "f.yaml:2: expected key 'a' once, found it again (first at line 1); remove one"},
      {"a: [1, 2\n", "f.yaml:"},
      {"a: !!python/object x\n", "f.yaml:1: expected a plain value, found the tag"},
      {"{[1, 2]: 3}\n", "f.yaml:1: expected a key, found a list"},
      {"a: &x [*x]\n", "f.yaml:1: expected"},
      {"a: *missing\n", "f.yaml:1: expected YAML, found a syntax error"},
      {std::string("a: b\nc: \xff\n"), "f.yaml:2: expected UTF-8 text, found byte 255"},
      {std::string("a: \0b", 5), "f.yaml:1: expected UTF-8 text, found byte 0"},
      {"a: " + std::string(40, '[') + std::string(40, ']'), "f.yaml:1: expected at most 32 levels"},
      {std::string(200'000, '['), "f.yaml:1: expected"},
      {std::string(max_file_bytes + 1, 'a'), "f.yaml:1: expected at most 1048576 bytes"},
  };
  for (const auto& [text, expected] : table)
    EXPECT_EQ(error_of(text).substr(0, expected.size()), expected) << text.substr(0, 40);
}

TEST(Yaml, CapsWhatAliasesExpandTo) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) laughs += (k ? ", " : "") + last;
    laughs += "]\n";
  }
  EXPECT_NE(error_of(laughs).find("expected at most 100000 values"), std::string::npos);
  EXPECT_EQ(to_json(parse_yaml("a: &x [1]\nb: *x\n", "f")[0]).dump(), R"({"a":[1],"b":[1]})");
}

// The examples of RFC 7396, appendix A, as far as YAML can express them.
TEST(Yaml, AppliesMergePatches) {
  const std::tuple<const char*, const char*, const char*> table[]{
      {"{a: b}", "{a: c}", R"({"a":"c"})"},
      {"{a: b}", "{b: c}", R"({"a":"b","b":"c"})"},
      {"{a: b}", "{a: null}", "{}"},
      {"{a: b, b: c}", "{a: null}", R"({"b":"c"})"},
      {"{a: [b]}", "{a: c}", R"({"a":"c"})"},
      {"{a: c}", "{a: [b]}", R"({"a":["b"]})"},
      {"{a: {b: c}}", "{a: {b: d, c: null}}", R"({"a":{"b":"d"}})"},
      {"{a: [{b: c}]}", "{a: [1]}", R"({"a":[1]})"},
      {"{e: null}", "{a: 1}", R"({"a":1,"e":null})"},
      {"{a: foo}", "{a: {b: {c: null}}}", R"({"a":{"b":{}}})"},
  };
  for (const auto& [target, patch, result] : table) {
    EXPECT_EQ(to_json(merge_patch(parse_yaml(target, "t")[0], parse_yaml(patch, "p")[0])).dump(), result)
        << target << " " << patch;
  }
}

TEST(Names, SuggestTheNearestName) {
  EXPECT_EQ(nearest("tokns", {"tokens", "blocks"}), "tokens");
  EXPECT_EQ(nearest("engien", {"engine", "arch"}), "engine");  // a transposition is one step
  EXPECT_EQ(nearest("quite-another", {"tokens", "blocks"}), "");
  EXPECT_EQ(suggestion("x", {"alpha", "beta"}), "; known: alpha, beta");
}

TEST(Globs, MatchTheTable) {
  const std::tuple<const char*, const char*, bool> table[]{
      {"*", "", true},
      {"a*c", "abbc", true},
      {"a*c", "abbd", false},
      {"?", "a", true},
      {"?", "", false},
      {"[a-c]x", "bx", true},
      {"[!a-c]x", "bx", false},
      {"kv/*engine=shm*", "kv/producer=x/engine=shm", true},
      {"**", "ab", true},
      {"a[", "a[", true},
      {"[]]", "]", true},
      {"*a*b*c", "xaybzc", true},
      {"*a*b*c", "xaybz", false},
      {"", "", true},
  };
  for (const auto& [glob, text, expected] : table) EXPECT_EQ(matches_glob(glob, text), expected) << glob << " " << text;
}

// Against the definition: recursive, no loops in common with the implementation.
bool by_definition(std::string_view glob, std::string_view text) {
  if (glob.empty()) return text.empty();
  if (glob[0] == '*') return by_definition(glob.substr(1), text) || (!text.empty() && by_definition(glob, text.substr(1)));
  return !text.empty() && (glob[0] == '?' || glob[0] == text[0]) && by_definition(glob.substr(1), text.substr(1));
}

TEST(Globs, AgreeWithTheDefinition) {
  std::uint32_t state = 1;
  const auto next = [&](std::uint32_t n) { return (state = state * 1664525 + 1013904223) / 65536 % n; };
  int matched = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string glob, text;
    for (auto n = next(7); n > 0; --n) glob += "ab*?"[next(4)];
    for (auto n = next(9); n > 0; --n) text += "ab"[next(2)];
    const bool expected = by_definition(glob, text);
    matched += expected;
    ASSERT_EQ(matches_glob(glob, text), expected) << glob << " " << text;
  }
  EXPECT_GT(matched, 1000);
}

}  // namespace
}  // namespace kvcts::catalogue
