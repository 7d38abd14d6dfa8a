#include "certificate/form.hpp"

#include <algorithm>

#include "certificate/error.hpp"

namespace kvcts::certificate {

using nlohmann::json;

void expect_few_values(std::string_view text, const std::string& what) {
  const auto marks = std::count_if(text.begin(), text.end(), [](char c) { return c == ',' || c == '[' || c == '{'; });
  if (static_cast<std::size_t>(marks) > most_values) throw Error(what + " has more than 8,000,000 values");
}

json canonical(std::string_view text, const std::string& what) {
  constexpr int deepest = 64;  // whoever copies or walks a value recurses
  const auto strict = [&](int depth, json::parse_event_t event, json& value) {
    if (depth >= deepest && (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start))
      throw Error(what + " is nested more than " + std::to_string(deepest) + " deep");
    if (event == json::parse_event_t::value && value.is_number_float())
      throw Error(what + " has a number that is no integer of 64 bits");
    return true;
  };
  expect_few_values(text, what);
  json value = json::parse(text, strict, false);
  if (value.is_discarded()) throw Error(what + " is not JSON");
  if (value.dump() != text) throw Error(what + " is not in its canonical form");
  return value;
}

void expect_keys(const json& value, std::initializer_list<const char*> keys, const std::string& what) {
  if (!value.is_object()) throw Error("expected a mapping as the " + what + ", found " + value.type_name());
  const auto names = value.items();
  if (!std::equal(names.begin(), names.end(), keys.begin(), keys.end(),
                  [](const auto& item, const char* key) { return item.key() == key; }))
    throw Error("the " + what + " lacks a key, or has one that does not belong there");
}

}  // namespace kvcts::certificate
