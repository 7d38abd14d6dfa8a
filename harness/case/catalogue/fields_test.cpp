#include "case/catalogue/fields.hpp"

#include <gtest/gtest.h>

namespace kvcts::catalogue {
namespace {

struct Inner {
  std::int32_t count{3};
};
struct Thing {
  std::string name;
  std::int64_t tokens{40};
  bool on{true};
  std::string mode{"fast"};
  std::int64_t wait{2000}, pause{100};
  std::string day;
  std::vector<std::string> tags;
  Inner inner;
  std::optional<std::int64_t> size;
};

const Table<Inner>& inner_table() {
  static const Table<Inner> table{"an inner", {required("count", &Inner::count, integer(), "how many")}};
  return table;
}
const Table<Thing>& thing_table() {
  static const Table<Thing> table{"a thing",
                                  {
                                      required("name", &Thing::name, identifier(), "id"),
                                      optional("tokens", &Thing::tokens, integer(0, 100), "tokens"),
                                      optional("on", &Thing::on, boolean(), "switch"),
                                      optional("mode", &Thing::mode, one_of({"fast", "slow"}), "mode"),
                                      optional("wait", &Thing::wait, duration(), "wait"),
                                      optional("pause", &Thing::pause, duration(true), "pause"),
                                      optional("day", &Thing::day, date(), "day"),
                                      optional("tags", &Thing::tags, one_or_list_of(text()), "tags"),
                                      optional("inner", &Thing::inner, object<Inner>(inner_table), "inner"),
                                      optional("size", &Thing::size, integer(1), "size"),
                                  }};
  return table;
}

Thing thing(const std::string& text) { return read(thing_table(), parse_yaml(text, "f.yaml").at(0)); }
std::string refusal_of(const std::string& text) {
  try {
    thing(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Fields, ReadsEveryType) {
  const Thing t = thing(
      "name: a-b.c\ntokens: 0x10\non: false\nmode: slow\nwait: 1.5s\nday: 2028-02-29\ntags: one\ninner: {count: -4}\nsize: "
      "9\n");
  EXPECT_EQ(t.name, "a-b.c");
  EXPECT_EQ(t.tokens, 16);
  EXPECT_FALSE(t.on);
  EXPECT_EQ(t.mode, "slow");
  EXPECT_EQ(t.wait, 1500);
  EXPECT_EQ(t.day, "2028-02-29");
  EXPECT_EQ(t.tags, std::vector<std::string>{"one"});
  EXPECT_EQ(t.inner.count, -4);
  EXPECT_EQ(t.size, 9);
}

using Refusals = std::vector<std::pair<const char*, const char*>>;

void expect_refused(const Refusals& refusals) {
  for (const auto& [text, expected] : refusals) EXPECT_EQ(refusal_of(text), expected) << text;
}

TEST(Fields, ErrorsNameUnknownAndMissingKeys) {
  expect_refused({
      {"name: a\ntokns: 1\n", "f.yaml:2: expected a key of a thing, found 'tokns'; did you mean 'tokens'?"},
      {"name: a\nzzzzzz: 1\n",
       "f.yaml:2: expected a key of a thing, found 'zzzzzz'; known: name, tokens, on, mode, wait, pause, day, tags, inner, "
       "size"},
      {"tokens: 1\n",
       "f.yaml:1: expected the key 'name' in a thing, found none; add 'name: <an id (letters, digits, - _ . +)>'"},
      {"name: a\ninner: 4\n",
       "f.yaml:2: key 'inner': expected an inner as a mapping, found '4'; write lines of the form key: value"},
      {"name: a\ninner: {}\n",
       "f.yaml:2: key 'inner': expected the key 'count' in an inner, found none; add 'count: <an integer in "
       "-2147483648..2147483647>'"},
      {"- a\n", "f.yaml:1: expected a thing as a mapping, found a list of 1; write lines of the form key: value"},
  });
}

TEST(Fields, ErrorsNameTheRangeOfIntegers) {
  expect_refused({
      {"name: a\ntokens: many\n",
       "f.yaml:2: key 'tokens': expected an integer in 0..100, found 'many'; write a whole number without quotes"},
      {"name: a\ntokens: 101\n",
       "f.yaml:2: key 'tokens': expected an integer in 0..100, found '101'; write a whole number without quotes"},
      {"name: a\ntokens: \"5\"\n",
       "f.yaml:2: key 'tokens': expected an integer in 0..100, found '5'; write a whole number without quotes"},
      {"name: a\ntokens: 99999999999999999999\n",
       "f.yaml:2: key 'tokens': expected an integer in 0..100, found '99999999999999999999'; write a whole number without "
       "quotes"},
      {"name: a\ntokens: [1]\n",
       "f.yaml:2: key 'tokens': expected an integer in 0..100, found a list of 1; write a whole number without quotes"},
      {"name: a\ninner: {count: 3000000000}\n",
       "f.yaml:2: key 'count': expected an integer in -2147483648..2147483647, found '3000000000'; write a whole number "
       "without quotes"},
  });
}

TEST(Fields, ErrorsNameTheFormOfTextsDurationsAndDates) {
  expect_refused({
      {"name: a b\n",
       "f.yaml:1: key 'name': expected an id (letters, digits, - _ . +), found 'a b'; use at most 64 of those characters"},
      {"name: a\non: yes\n", "f.yaml:2: key 'on': expected true or false, found 'yes'; write true or false"},
      {"name: a\nmode: fats\n", "f.yaml:2: key 'mode': expected one of fast, slow, found 'fats'; did you mean 'fast'?"},
      {"name: a\nwait: 5\n",
       "f.yaml:2: key 'wait': expected a duration (250ms, 2s, 3m), found '5'; write a number and ms, s or m, at least 1ms, "
       "at most 60m"},
      {"name: a\nwait: -5s\n",
       "f.yaml:2: key 'wait': expected a duration (250ms, 2s, 3m), found '-5s'; write a number and ms, s or m, at least "
       "1ms, at most 60m"},
      {"name: a\nwait: 0s\n",
       "f.yaml:2: key 'wait': expected a duration (250ms, 2s, 3m), found '0s'; write a number and ms, s or m, at least 1ms, "
       "at most 60m"},
      {"name: a\npause: 0.4ms\n",
       "f.yaml:2: key 'pause': expected a duration (0s, 250ms, 2s), found '0.4ms'; write a number and ms, s or m, 0s or at "
       "least 1ms, at most 60m"},
      {"name: a\nwait: 999m\n",
       "f.yaml:2: key 'wait': expected a duration (250ms, 2s, 3m), found '999m'; write a number and ms, s or m, at least "
       "1ms, at most 60m"},
      {"name: a\nday: 2027-02-29\n",
       "f.yaml:2: key 'day': expected a date (YYYY-MM-DD), found '2027-02-29'; write a day of the calendar, e.g. "
       "2027-03-31"},
      {"name:\n",
       "f.yaml:1: key 'name': expected an id (letters, digits, - _ . +), found nothing; use at most 64 of those characters"},
  });
}

TEST(Fields, RoundTripsAZeroDurationWhereAllowed) {
  const Thing t = thing("name: x\npause: 0s\n");
  EXPECT_EQ(t.pause, 0);
  EXPECT_EQ(thing("name: x\npause: 0ms\n").pause, 0);
  EXPECT_EQ(write(thing_table(), t).dump(), R"({"name":"x","pause":"0s"})");
}

TEST(Fields, RoundTripsAndOmitsDefaults) {
  const Thing t = thing("name: x\nmode: slow\ntags: [a, b]\nwait: 250ms\n");
  const json written = write(thing_table(), t);
  EXPECT_EQ(written.dump(), R"({"mode":"slow","name":"x","tags":["a","b"],"wait":"250ms"})");
  EXPECT_EQ(write(thing_table(), thing(written.dump())), written);  // JSON is YAML
}

TEST(Fields, DescribesItselfInTheSchema) {
  const json s = schema(thing_table());
  EXPECT_EQ(s.at("additionalProperties"), false);
  EXPECT_EQ(s.at("required"), json::array({"name"}));
  EXPECT_EQ(s.at("properties").at("tokens").at("maximum"), 100);
  EXPECT_EQ(s.at("properties").at("tokens").at("default"), 40);
  EXPECT_EQ(s.at("properties").at("mode").at("enum"), json::array({"fast", "slow"}));
  EXPECT_EQ(s.at("properties").at("inner").at("properties").at("count").at("type"), "integer");
  const auto rows = doc_rows(thing_table());
  EXPECT_EQ(rows[0].fallback, "required");
  EXPECT_EQ(rows[4].fallback, "\"2s\"");
}

}  // namespace
}  // namespace kvcts::catalogue
