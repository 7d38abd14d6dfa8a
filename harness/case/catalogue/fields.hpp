// One table per kind of YAML mapping: key, type, need, default, doc, and how to read and write it. Strict parsing, the error
// texts, JSON Schema, the Markdown reference and the facts of axis expressions all derive from it.
//
//   const Table<Request>& request_table() {
//     static const Table<Request> table{"a request", {
//         required("tokens", &Request::tokens, integer(1), "tokens in the request"),
//         optional("generation", &Request::generation, integer(0), "which writer's tags it carries"),
//     }};
//     return table;
//   }
//
// The struct (or Table::initial) states each default once; the documentation reads it from there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "case/catalogue/error.hpp"
#include "case/catalogue/nearest.hpp"
#include "case/catalogue/yaml.hpp"

namespace kvcts::catalogue {

using nlohmann::json;

/// How one type of value is read from a node, written as JSON, and described.
template <class M>
struct Codec {
  std::string words;                   ///< "an integer >= 1"
  std::function<json()> schema;        ///< JSON Schema of the value
  std::function<M(const Node&)> read;  ///< throws Error
  std::function<json(const M&)> write;
};

/// Throws "file:line: key 'k': expected <words>, found <node>; <what to do>".
[[noreturn]] void fail(const Node& node, const std::string& expected, const std::string& what_to_do);

// ---- scalars (fields.cpp) ------------------------------------------------------------------------------------------

Codec<std::string> text();                                  ///< any non-empty text
Codec<std::string> any_text();                              ///< may be empty
Codec<std::string> identifier();                            ///< letters, digits and - _ . + : an id of the catalogue
Codec<std::string> path_name();                             ///< an id with '/': a case id
Codec<std::string> one_of(std::vector<std::string> names);  ///< a word of a closed list
Codec<std::string> date();                                  ///< YYYY-MM-DD, a day that exists
Codec<bool> boolean();
Codec<json> anything();  ///< any mapping, kept as JSON
Codec<std::int64_t> duration(
    bool may_be_zero = false);  ///< "250ms", "2s", "1.5s", "3m" -> milliseconds; "0s" only where it means "not at all"

/// A whole number in [low, high]; decimal, or hexadecimal with 0x.
Codec<std::int64_t> integer_codec(std::int64_t low, std::int64_t high);
Codec<std::uint64_t> natural();

struct IntegerRange {
  std::int64_t low{0}, high{std::numeric_limits<std::int64_t>::max()};
};
inline IntegerRange integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                            std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
  return {low, high};
}

/// One of an enum's words, which name() has; `from` is its inverse and knows all of `names`.
template <class E>
Codec<E> word_of(std::vector<std::string> names, std::optional<E> (*from)(std::string_view)) {
  const Codec<std::string> word = one_of(std::move(names));
  return {word.words, word.schema, [word, from](const Node& node) { return *from(word.read(node)); },
          [](const E& value) { return json(name(value)); }};
}

// ---- compounds -----------------------------------------------------------------------------------------------------

template <class M>
Codec<std::vector<M>> list_of(Codec<M> item) {
  return {"a list, each " + item.words, [item] { return json{{"type", "array"}, {"items", item.schema()}}; },
          [item](const Node& node) {
            if (node.kind != Node::Kind::list)
              fail(node, "a list, each " + item.words, "write it as [a, b] or as lines that start with '- '");
            std::vector<M> out;
            out.reserve(node.items.size());
            for (const auto& element : node.items) out.push_back(item.read(element));
            return out;
          },
          [item](const std::vector<M>& values) {
            json out = json::array();
            for (const auto& value : values) out.push_back(item.write(value));
            return out;
          }};
}

/// One value, or a list of them.
template <class M>
Codec<std::vector<M>> one_or_list_of(Codec<M> item) {
  Codec<std::vector<M>> list = list_of(item);
  return {item.words + ", or a list of them",
          [item, list] { return json{{"oneOf", json::array({item.schema(), list.schema()})}}; },
          [item, list](const Node& node) {
            return node.kind == Node::Kind::list ? list.read(node) : std::vector<M>{item.read(node)};
          },
          [item, list](const std::vector<M>& values) {
            return values.size() == 1 ? item.write(values[0]) : list.write(values);
          }};
}

/// The same, but an empty list is an error.
template <class M>
Codec<std::vector<M>> one_or_more_of(Codec<M> item) {
  const Codec<std::vector<M>> list = list_of(item), any = one_or_list_of(item);
  return {any.words,
          [item, list] {
            json some = list.schema();
            some["minItems"] = 1;
            return json{{"oneOf", json::array({item.schema(), some})}};
          },
          [any](const Node& node) {
            if (node.kind == Node::Kind::list && node.items.empty())
              fail(node, any.words + ", at least one", "write one, or leave the key out for its default");
            return any.read(node);
          },
          any.write};
}

/// A mapping with author-chosen keys. `key_words`: what a key is.
template <class M>
Codec<std::map<std::string, M>> map_of(Codec<M> item, std::vector<std::string> keys = {}) {
  const std::string words = "a mapping of " + item.words;
  return {words,
          [item, keys] {
            json out{{"type", "object"}, {"additionalProperties", item.schema()}};
            if (!keys.empty()) out["propertyNames"] = {{"enum", keys}};
            return out;
          },
          [item, words, keys](const Node& node) {
            if (node.kind != Node::Kind::mapping) fail(node, words, "write lines of the form key: value");
            std::map<std::string, M> out;
            for (std::size_t i = 0; i < node.keys.size(); ++i) {
              if (!keys.empty() && std::find(keys.begin(), keys.end(), node.keys[i]) == keys.end()) {
                Node at = node.items[i];
                at.line = node.key_lines[i], at.kind = Node::Kind::scalar, at.text = node.keys[i];
                fail(at, "one of the keys of this mapping", "use a known key" + suggestion(node.keys[i], keys));
              }
              out.emplace(node.keys[i], item.read(node.items[i]));
            }
            return out;
          },
          [item](const std::map<std::string, M>& values) {
            json out = json::object();
            for (const auto& [key, value] : values) out[key] = item.write(value);
            return out;
          }};
}

// ---- tables --------------------------------------------------------------------------------------------------------

template <class T>
struct Field {
  std::string key;
  bool required{false};
  std::string doc;
  std::string words;
  std::function<json()> schema;
  std::function<void(T&, const Node&)> read;
  std::function<json(const T&)> write;
};

template <class T>
struct Table {
  std::string what;  ///< "a request"
  std::vector<Field<T>> fields;
  std::function<void(const T&, const Node&)> check{};  ///< rules over several keys; throws Error
  T initial{};                                         ///< what absent keys leave in place: the defaults
};

template <class T, class M, class V>
Field<T> make_field(std::string key, bool is_required, M T::* member, Codec<V> codec, std::string doc) {
  Field<T> field;
  field.key = std::move(key);
  field.required = is_required;
  field.doc = std::move(doc);
  field.words = codec.words;
  field.schema = codec.schema;
  field.read = [member, codec](T& out, const Node& node) { out.*member = static_cast<M>(codec.read(node)); };
  field.write = [member, codec](const T& in) -> json {
    if constexpr (std::is_same_v<M, std::optional<V>>) {
      return (in.*member) ? codec.write(*(in.*member)) : json(nullptr);
    } else {
      return codec.write(static_cast<V>(in.*member));
    }
  };
  return field;
}
template <class T, class M, class V>
Field<T> required(std::string key, M T::* member, Codec<V> codec, std::string doc) {
  return make_field<T>(std::move(key), true, member, std::move(codec), std::move(doc));
}
template <class T, class M, class V>
Field<T> optional(std::string key, M T::* member, Codec<V> codec, std::string doc) {
  return make_field<T>(std::move(key), false, member, std::move(codec), std::move(doc));
}
// Integers are clipped to the member's range, so a cast never narrows silently.
template <class M>
Codec<std::int64_t> integer_for(IntegerRange range) {
  if constexpr (sizeof(M) < sizeof(std::int64_t)) {
    range.low = std::max<std::int64_t>(range.low, std::numeric_limits<M>::min());
    range.high = std::min<std::int64_t>(range.high, std::numeric_limits<M>::max());
  }
  return integer_codec(range.low, range.high);
}
template <class T, class M>
Field<T> required(std::string key, M T::* member, IntegerRange range, std::string doc) {
  return make_field<T>(std::move(key), true, member, integer_for<M>(range), std::move(doc));
}
template <class T, class M>
Field<T> optional(std::string key, M T::* member, IntegerRange range, std::string doc) {
  if constexpr (std::is_same_v<M, std::optional<std::int64_t>>) {
    return make_field<T>(std::move(key), false, member, integer_codec(range.low, range.high), std::move(doc));
  } else {
    return make_field<T>(std::move(key), false, member, integer_for<M>(range), std::move(doc));
  }
}

[[noreturn]] void fail_unknown_key(const Node& mapping, std::size_t index, const std::string& what,
                                   const std::vector<std::string>& known);
[[noreturn]] void fail_missing_key(const Node& mapping, const std::string& what, const std::string& key,
                                   const std::string& words);
/// Rethrows `error` with "key 'k': " after "file:line: " (once, for the innermost key).
[[noreturn]] void fail_in_key(const Error& error, const Node& value, const std::string& key);

template <class T>
std::vector<std::string> keys_of(const Table<T>& table) {
  std::vector<std::string> keys;
  for (const auto& field : table.fields) keys.push_back(field.key);
  return keys;
}

/// Reads a mapping by its table. Unknown, missing and ill-typed keys are errors.
template <class T>
T read(const Table<T>& table, const Node& node) {
  if (node.kind != Node::Kind::mapping) fail(node, table.what + " as a mapping", "write lines of the form key: value");
  T out = table.initial;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const Field<T>* match = nullptr;
    for (const auto& field : table.fields) {
      if (field.key == node.keys[i]) match = &field;
    }
    if (!match) fail_unknown_key(node, i, table.what, keys_of(table));
    try {
      match->read(out, node.items[i]);
    } catch (const Error& error) {
      fail_in_key(error, node.items[i], match->key);
    }
  }
  for (const auto& field : table.fields) {
    if (field.required && !node.find(field.key)) fail_missing_key(node, table.what, field.key, field.words);
  }
  if (table.check) table.check(out, node);
  return out;
}

/// The value as JSON, without keys at their default.
template <class T>
json write(const Table<T>& table, const T& value) {
  const T& fallback = table.initial;
  json out = json::object();
  for (const auto& field : table.fields) {
    json written = field.write(value);
    if (field.required || written != field.write(fallback)) out[field.key] = std::move(written);
  }
  return out;
}

/// JSON Schema of the mapping; unknown keys are not allowed.
template <class T>
json schema(const Table<T>& table) {
  const T& fallback = table.initial;
  json properties = json::object();
  json needed = json::array();
  for (const auto& field : table.fields) {
    json property = field.schema();
    property["description"] = field.doc;
    if (field.required) {
      needed.push_back(field.key);
    } else if (json value = field.write(fallback);
               !value.is_null() && value != "" && !(value.is_structured() && value.empty())) {
      property["default"] = std::move(value);
    }
    properties[field.key] = std::move(property);
  }
  json out{{"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
  if (!needed.empty()) out["required"] = std::move(needed);
  return out;
}

/// A mapping with its own table as a value. The table is a function so that tables can refer to later ones.
template <class T>
Codec<T> object(const Table<T>& (*table)()) {
  return {table().what, [table] { return schema(table()); }, [table](const Node& node) { return read(table(), node); },
          [table](const T& value) { return write(table(), value); }};
}

/// Rows of the Markdown reference: | key | type | default | meaning |.
struct DocRow {
  std::string key, type, fallback, doc;
};
template <class T>
std::vector<DocRow> doc_rows(const Table<T>& table) {
  const T& fallback = table.initial;
  std::vector<DocRow> rows;
  for (const auto& field : table.fields) {
    std::string shown = "required";
    if (!field.required) {
      const json value = field.write(fallback);
      shown = value.is_null() || value == "" || (value.is_structured() && value.empty()) ? "" : value.dump();
    }
    rows.push_back({field.key, field.words, shown, field.doc});
  }
  return rows;
}

}  // namespace kvcts::catalogue
