#include "run/store/json_column.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "case/text.hpp"

namespace kvcts::store {
namespace {

using nlohmann::json;

constexpr int most_deep = 64;                  // far more than a result has; copying and printing JSON recurse
constexpr std::int64_t most_values = 2 << 20;  // the list of places of a shard is the longest

constexpr std::int64_t exact = std::int64_t{1} << 53;  // so that sums of a few do not overflow

bool between(const json& value, std::int64_t least, std::int64_t most) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  return value.is_number_integer() && value.get<std::int64_t>() >= least;
}

struct Kind {
  std::string_view name, words;
  bool (*is)(const json&);
};
constexpr std::array kinds{
    Kind{"text", "a text", [](const json& v) { return v.is_string(); }},
    Kind{"truth", "true or false", [](const json& v) { return v.is_boolean(); }},
    Kind{"count", "a whole number from 0 to 1,000,000,000", [](const json& v) { return between(v, 0, 1'000'000'000); }},
    Kind{"whole", "a whole number of at most 2^53", [](const json& v) { return between(v, -exact, exact); }},
    Kind{"seed", "a whole number from 0 to 2^64-1", [](const json& v) { return v.is_number_unsigned(); }},
    Kind{"time", "a time in ms before the year 10000", [](const json& v) { return between(v, 0, 253'402'300'799'999); }},
    Kind{"scalar", "a text, a number, true or false", [](const json& v) { return v.is_primitive() && !v.is_null(); }},
    Kind{"place", "a text or a list of 8 whole numbers",
         [](const json& v) {
           const auto whole = [](const json& n) { return between(n, -exact, exact); };
           return v.is_string() || (v.is_array() && v.size() == 8 && std::all_of(v.begin(), v.end(), whole));
         }},
    Kind{"object", "an object", [](const json& v) { return v.is_object(); }},
    Kind{"list", "a list", [](const json& v) { return v.is_array(); }},
};

/// Where a value is; put into words only when it is wrong.
struct Path {
  const Path* above;
  std::string_view key;
  std::size_t index{0};
  std::string to_string() const {
    return above == nullptr ? std::string(key)
                            : above->to_string() + "/" + (key.empty() ? std::to_string(index) : std::string(key));
  }
};

[[noreturn]] void wrong(const Path& at, std::string_view expected, std::string_view found) {
  throw std::runtime_error(fmt::format("{}: expected {}, found {}", at.to_string().substr(0, 200), expected, found));
}

void expect(std::string_view kind, const json& value, const Path& at) {
  const auto* known = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.name == kind; });
  if (!known->is(value)) wrong(at, known->words, value.is_structured() ? value.type_name() : value.dump().substr(0, 60));
}

void check(const json& value, const json& expected, const Path& at) {
  if (expected.is_string()) return expect(expected.get_ref<const std::string&>(), value, at);
  expect(expected.is_array() ? "list" : "object", value, at);
  if (expected.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) check(value[i], expected[0], {&at, "", i});
    return;
  }
  for (const auto& [name, kind] : expected.items()) {
    const bool required = name.ends_with('!');
    const std::string_view key(name.data(), name.size() - (required ? 1 : 0));
    if (key == "*") {
      for (const auto& [each, item] : value.items()) check(item, kind, {&at, each});
    } else if (const auto found = value.find(key); found != value.end()) {
      check(*found, kind, {&at, key});
    } else if (required) {
      wrong(at, fmt::format("the key '{}'", key), "none");
    }
  }
}

void bound(std::string_view text, const Path& at) {
  std::int64_t depth = 0, values = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      while (++i < text.size() && text[i] != '"') i += text[i] == '\\' ? 1 : 0;
    } else if (c == '[' || c == '{') {
      ++values;
      if (++depth > most_deep) wrong(at, fmt::format("values at most {} deep in each other", most_deep), "more");
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++values;
    }
    if (values > most_values) wrong(at, fmt::format("at most {} values", text::thousands(most_values)), "more");
  }
}

}  // namespace

json parse_column(std::string_view text, std::string_view column, const json& expected) {
  const Path whole{nullptr, column};
  bound(text, whole);
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) wrong(whole, "JSON", "'" + std::string(text.substr(0, 40)) + "'");
  check(value, expected, whole);
  return value;
}

}  // namespace kvcts::store
