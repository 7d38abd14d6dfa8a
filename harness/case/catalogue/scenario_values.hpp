// Values of the language of scripted cases, as codecs: picks, block ids, patterns, keys of a store, arithmetic, views,
// places.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "case/catalogue/fields.hpp"
#include "case/scenario.hpp"

namespace kvcts::catalogue {

using Ids = std::vector<std::int64_t>;

/// {"$ref": "#/$defs/<name>"}
json reference(const std::string& name);

// A field of a member that is itself a mapping, under a key of the outer one.
template <class Outer, class Inner>
Field<Outer> lift(Field<Inner> field, Inner Outer::* member, const std::string& prefix = "") {
  Field<Outer> out;
  out.key = prefix + field.key, out.required = field.required, out.doc = field.doc, out.words = field.words,
  out.schema = field.schema;
  out.read = [field, member](Outer& value, const Node& node) { field.read(value.*member, node); };
  out.write = [field, member](const Outer& value) { return field.write(value.*member); };
  return out;
}

template <class T>
std::vector<Field<T>> join(std::vector<Field<T>> first, const std::vector<Field<T>>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A mapping whose keys are names that steps use.
template <class M>
Codec<std::map<std::string, M>> named(Codec<M> item) {
  Codec<std::map<std::string, M>> map = map_of(item);
  return {map.words,
          [map] {
            json out = map.schema();
            out["propertyNames"] = identifier().schema();
            return out;
          },
          [map](const Node& node) {
            for (std::size_t i = 0; node.kind == Node::Kind::mapping && i < node.keys.size(); ++i) {
              Node key = node.items[i];
              key.line = node.key_lines[i], key.kind = Node::Kind::scalar, key.text = node.keys[i], key.items.clear();
              identifier().read(key);
            }
            return map.read(node);
          },
          map.write};
}

template <class M>
Codec<std::map<std::string, M>> by_reference(Codec<std::map<std::string, M>> codec, const std::string& name) {
  codec.schema = [name] { return json{{"type", "object"}, {"additionalProperties", reference(name)}}; };
  return codec;
}

/// Bytes: any integer, or one >= `low`.
Codec<std::int64_t> offset_codec();
Codec<std::int64_t> bytes_codec(std::int64_t low = 0);
/// Indices: 3, [3, 1] or "0..4"; of kv also K and V.
Codec<Ids> picks(bool kv);
Codec<Ids> block_ids();
/// Memory -> list.
Codec<std::map<std::string, Ids>> tables(Codec<Ids> ids);
Codec<std::uint32_t> generation();
Codec<json> any_value();
/// poison, zero, or bytes in hexadecimal.
Codec<std::string> pattern();
/// A word is short for {key: word}.
Codec<std::map<std::string, std::string>> store_key();
/// "int32", "uint16", or the mapping.
Codec<scenario::Arithmetic> arithmetic();
/// "P" is short for {of: P}.
Codec<scenario::View> view();
bool is_plain(const scenario::View& view);
/// Raw bytes of a memory with one allocation, or of an allocation.
Codec<std::vector<scenario::View>> place();
/// Axis -> bytes.
Codec<std::map<std::string, std::int64_t>> strides_codec();

}  // namespace kvcts::catalogue
