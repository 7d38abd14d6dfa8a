#include "case/catalogue/fields.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

namespace kvcts::catalogue {

namespace {

constexpr std::string_view marker = ": key '";

bool identifier_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
         c == '+';
}

const std::string& scalar(const Node& node, const std::string& expected, const std::string& what_to_do) {
  if (node.kind != Node::Kind::scalar) fail(node, expected, what_to_do);
  return node.text;
}

Codec<std::string> checked_text(std::string words, json schema, std::function<bool(const std::string&)> good,
                                std::string what_to_do) {
  return {words, [schema] { return schema; },
          [=](const Node& node) {
            const std::string& value = scalar(node, words, what_to_do);
            if (!good(value)) fail(node, words, what_to_do);
            return value;
          },
          [](const std::string& value) { return json(value); }};
}

bool parse_integer(const Node& node, std::int64_t& value) {
  if (node.kind != Node::Kind::scalar || node.quoted) return false;
  std::string_view text = node.text;
  int base = 10;
  if (text.starts_with("0x")) text.remove_prefix(2), base = 16;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && (base == 10 || text[0] != '-') && result.ec == std::errc{} &&
         result.ptr == text.data() + text.size();
}

}  // namespace

void fail(const Node& node, const std::string& expected, const std::string& what_to_do) {
  throw Error(node.where() + ": expected " + expected + ", found " + node.describe() + "; " + what_to_do);
}

void fail_unknown_key(const Node& mapping, std::size_t index, const std::string& what,
                      const std::vector<std::string>& known) {
  Node at;
  at.file = mapping.file, at.line = mapping.key_lines[index], at.kind = Node::Kind::scalar, at.text = mapping.keys[index];
  throw Error(at.where() + ": expected a key of " + what + ", found " + at.describe() +
              suggestion(mapping.keys[index], known));
}

void fail_missing_key(const Node& mapping, const std::string& what, const std::string& key, const std::string& words) {
  throw Error(mapping.where() + ": expected the key '" + key + "' in " + what + ", found none; add '" + key + ": <" + words +
              ">'");
}

void fail_in_key(const Error& error, const Node& value, const std::string& key) {
  std::string message = error.what();
  if (message.find(marker) != std::string::npos) throw Error(message);
  const std::string prefix = (value.file ? *value.file : std::string{"(text)"}) + ":";
  const std::size_t at = message.starts_with(prefix) ? message.find(": ", prefix.size()) : std::string::npos;
  if (at == std::string::npos) throw Error(message);
  throw Error(message.substr(0, at) + std::string(marker) + key + "'" + message.substr(at));
}

Codec<std::string> text() {
  return checked_text(
      "text", {{"type", "string"}, {"minLength", 1}}, [](const std::string& s) { return !s.empty(); }, "write some text");
}

Codec<std::string> any_text() {
  return checked_text("text", {{"type", "string"}}, [](const std::string&) { return true; }, "write text, or \"\"");
}

Codec<std::string> identifier() {
  return checked_text(
      "an id (letters, digits, - _ . +)", {{"type", "string"}, {"pattern", "^[A-Za-z0-9_.+-]{1,64}$"}},
      [](const std::string& s) { return !s.empty() && s.size() <= 64 && std::all_of(s.begin(), s.end(), identifier_char); },
      "use at most 64 of those characters");
}

namespace {

// A case's id becomes an argument and a file name: a leading '-' or '.' would make it an option, or another place.
bool word_begins(char c) { return identifier_char(c) && c != '-' && c != '.' && c != '+'; }

}  // namespace

Codec<std::string> path_name() {
  return checked_text(
      "a case id (words of letters, digits, - _ . + joined by '/', each beginning with a letter, a digit or _)",
      {{"type", "string"}, {"pattern", "^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$"}},
      [](const std::string& s) {
        if (s.empty() || s.size() > 200 || s.back() == '/') return false;
        for (std::size_t i = 0; i < s.size(); ++i) {
          const bool begins = i == 0 || s[i - 1] == '/';
          if (begins ? !word_begins(s[i]) : s[i] != '/' && !identifier_char(s[i])) return false;
        }
        return true;
      },
      "use at most 200 of those characters, e.g. seeds/t4-xformers ('=' and '#' are the suite's own)");
}

Codec<std::string> one_of(std::vector<std::string> names) {
  std::string words = "one of ";
  for (std::size_t i = 0; i < names.size(); ++i) words += (i ? ", " : "") + names[i];
  return {words, [names] { return json{{"enum", names}}; },
          [names, words](const Node& node) {
            const std::string value = scalar(node, words, "write one of those words");
            if (std::find(names.begin(), names.end(), value) == names.end()) {
              const std::string near = nearest(value, names);
              fail(node, words, near.empty() ? "write one of those words" : "did you mean '" + near + "'?");
            }
            return value;
          },
          [](const std::string& value) { return json(value); }};
}

Codec<std::string> date() {
  return checked_text(
      "a date (YYYY-MM-DD)", {{"type", "string"}, {"format", "date"}},
      [](const std::string& s) {
        int y = 0;
        unsigned m = 0, d = 0;
        if (s.size() != 10 || s[4] != '-' || s[7] != '-') return false;
        const auto number = [&](std::size_t at, std::size_t n, auto& out) {
          const auto r = std::from_chars(s.data() + at, s.data() + at + n, out);
          return r.ec == std::errc{} && r.ptr == s.data() + at + n;
        };
        if (!number(0, 4, y) || !number(5, 2, m) || !number(8, 2, d) || y < 1) return false;
        return std::chrono::year_month_day{std::chrono::year{y}, std::chrono::month{m}, std::chrono::day{d}}.ok();
      },
      "write a day of the calendar, e.g. 2027-03-31");
}

Codec<bool> boolean() {
  return {"true or false", [] { return json{{"type", "boolean"}}; },
          [](const Node& node) {
            if (node.kind == Node::Kind::scalar && !node.quoted) {
              if (node.text == "true") return true;
              if (node.text == "false") return false;
            }
            fail(node, "true or false", "write true or false");
          },
          [](const bool& value) { return json(value); }};
}

Codec<json> anything() {
  return {"a mapping", [] { return json{{"type", "object"}}; },
          [](const Node& node) {
            if (node.kind != Node::Kind::mapping) fail(node, "a mapping", "write lines of the form key: value");
            return to_json(node);
          },
          [](const json& value) { return value; }};
}

Codec<std::int64_t> duration(bool may_be_zero) {
  const std::string words = may_be_zero ? "a duration (0s, 250ms, 2s)" : "a duration (250ms, 2s, 3m)";
  const std::string advice =
      "write a number and ms, s or m, " + std::string(may_be_zero ? "0s or at least 1ms" : "at least 1ms") + ", at most 60m";
  return {words, [] { return json{{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)?(ms|s|m)$"}}; },
          [=](const Node& node) {
            const std::string& value = scalar(node, words, advice);
            double number = 0;
            const auto result = std::from_chars(value.data(), value.data() + value.size(), number, std::chars_format::fixed);
            const std::string unit(result.ptr, value.data() + value.size());
            const double scale = unit == "ms" ? 1 : unit == "s" ? 1e3 : unit == "m" ? 6e4 : 0;
            const double ms = number * scale;
            if (result.ec != std::errc{} || scale == 0 || !(ms >= 1 || (may_be_zero && ms == 0)) || ms > 3.6e6)
              fail(node, words, advice);
            return static_cast<std::int64_t>(std::llround(ms));
          },
          [](const std::int64_t& ms) -> json {
            return ms % 1000 == 0 ? std::to_string(ms / 1000) + "s" : std::to_string(ms) + "ms";
          }};
}

Codec<std::int64_t> integer_codec(std::int64_t low, std::int64_t high) {
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto highest = std::numeric_limits<std::int64_t>::max();
  std::string words = "an integer";
  if (low != lowest && high != highest) {
    words += " in " + std::to_string(low) + ".." + std::to_string(high);
  } else if (low != lowest) {
    words += " >= " + std::to_string(low);
  } else if (high != highest) {
    words += " <= " + std::to_string(high);
  }
  return {words,
          [=] {
            json out{{"type", "integer"}};
            if (low != lowest) out["minimum"] = low;
            if (high != highest) out["maximum"] = high;
            return out;
          },
          [=](const Node& node) {
            std::int64_t value = 0;
            if (!parse_integer(node, value) || value < low || value > high)
              fail(node, words, "write a whole number without quotes");
            return value;
          },
          [](const std::int64_t& value) { return json(value); }};
}

Codec<std::uint64_t> natural() {
  return {"an integer >= 0", [] { return json{{"type", "integer"}, {"minimum", 0}}; },
          [](const Node& node) {
            std::uint64_t value = 0;
            const std::string_view text = node.text;
            const bool hex = text.starts_with("0x");
            const char* begin = text.data() + (hex ? 2 : 0);
            const char* end = text.data() + text.size();
            const auto result = std::from_chars(begin, end, value, hex ? 16 : 10);
            if (node.kind != Node::Kind::scalar || node.quoted || result.ec != std::errc{} || result.ptr != end) {
              fail(node, "an integer >= 0", "write a whole number without quotes");
            }
            return value;
          },
          [](const std::uint64_t& value) { return json(value); }};
}

}  // namespace kvcts::catalogue
