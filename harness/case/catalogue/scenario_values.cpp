#include "case/catalogue/scenario_values.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "case/catalogue/scenario_table.hpp"

namespace kvcts::catalogue {

using scenario::Arithmetic;
using scenario::View;

namespace {

constexpr std::int64_t any_bytes = std::int64_t{1} << 56;  // sums of several are still 64-bit numbers of bits
constexpr std::size_t most_picks = 1 << 20;

Codec<std::int64_t> whole(std::int64_t low, std::string words) {
  Codec<std::int64_t> out = integer_codec(low, any_bytes);
  out.words = std::move(words);
  out.read = [low, words = out.words](const Node& node) {
    try {
      return integer_codec(low, any_bytes).read(node);
    } catch (const Error&) {
      fail(node, words, "write a whole number without quotes");
    }
  };
  return out;
}

void add_picks(const Node& node, bool kv, Ids& out) {
  const std::string words =
      kv ? "K, V, an index, or a list of those" : "an index, a range \"0..4\" (its end is not in it), or a list of those";
  const std::string advice = kv ? "write K, V or both as [K, V]" : "write e.g. 3, [3, 1] or \"0..4\"";
  if (node.kind != Node::Kind::scalar) fail(node, words, advice);
  if (kv && (node.text == "K" || node.text == "V")) {
    out.push_back(node.text == "V");
    return;
  }
  const char* at = node.text.data();
  const char* end = at + node.text.size();
  std::int64_t first = 0, last = 0;
  auto read = std::from_chars(at, end, first);
  bool good = read.ec == std::errc{} && first >= 0;
  if (good && read.ptr == end) {
    last = first + 1;
  } else if (good && end - read.ptr > 2 && read.ptr[0] == '.' && read.ptr[1] == '.') {
    read = std::from_chars(read.ptr + 2, end, last);
    good = read.ec == std::errc{} && read.ptr == end && last > first;
  } else {
    good = false;
  }
  if (!good || last > many) fail(node, words, advice);
  if (static_cast<std::uint64_t>(last - first) + out.size() > most_picks)
    fail(node, "at most " + std::to_string(most_picks) + " indices", "take fewer");
  for (std::int64_t i = first; i < last; ++i) out.push_back(i);
}

View plain_view(const std::string& of) {
  View out;
  out.of = of;
  return out;
}

const std::vector<std::string>& axis_text() {
  static const std::vector<std::string> words{"layer", "kv", "block", "slot", "head", "channel"};
  return words;
}

}  // namespace

json reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

Codec<std::int64_t> offset_codec() { return whole(-any_bytes, "bytes, may be negative"); }
Codec<std::int64_t> bytes_codec(std::int64_t low) { return whole(low, low > 0 ? "bytes, at least 1" : "bytes"); }

Codec<Ids> picks(bool kv) {
  return {
      kv ? "K, V, or a list of them" : "an index, a range \"0..4\", or a list of those", [] { return reference("picks"); },
      [kv](const Node& node) {
        Ids out;
        if (node.kind != Node::Kind::list)
          add_picks(node, kv, out);
        else
          for (const auto& item : node.items) add_picks(item, kv, out);
        return out;
      },
      [kv](const Ids& ids) {
        const bool range = !kv && ids.size() > 2 && ids.back() - ids.front() == static_cast<std::int64_t>(ids.size()) - 1 &&
                           std::is_sorted(ids.begin(), ids.end());
        if (range) return json(std::to_string(ids.front()) + ".." + std::to_string(ids.back() + 1));
        json out = json::array();
        for (const auto id : ids) out.push_back(kv && id < 2 ? json(id ? "V" : "K") : json(id));
        return out;
      }};
}

Codec<Ids> block_ids() {
  Codec<std::int64_t> id = integer_codec(-many, many);
  Codec<std::int64_t> or_none = id;
  or_none.words = "a block id or none";
  or_none.read = [id](const Node& node) {
    return node.kind == Node::Kind::scalar && node.text == "none" ? scenario::no_block : id.read(node);
  };
  or_none.write = [](const std::int64_t& value) { return value == scenario::no_block ? json("none") : json(value); };
  Codec<Ids> out = list_of(or_none);
  out.words = "a list of block ids, none for no block";
  out.schema = [] { return reference("blocks"); };
  return out;
}

Codec<std::map<std::string, Ids>> tables(Codec<Ids> ids) {
  auto out = map_of(std::move(ids));
  out.words = "memory -> list";
  return out;
}

Codec<std::uint32_t> generation() {
  const Codec<std::int64_t> number = integer_codec(1, std::numeric_limits<std::uint32_t>::max());
  return {number.words, number.schema, [number](const Node& node) { return static_cast<std::uint32_t>(number.read(node)); },
          [](const std::uint32_t& value) { return json(value); }};
}

Codec<json> any_value() {
  return {"any value", [] { return json::object(); }, [](const Node& node) { return to_json(node); },
          [](const json& value) { return value; }};
}

Codec<std::string> pattern() {
  const std::string words = "poison, zero, or bytes in hexadecimal (\"7fc0\")";
  return {words, [] { return json{{"type", "string"}, {"pattern", "^(poison|zero|(0x)?([0-9a-fA-F]{2})+)$"}}; },
          [words](const Node& node) {
            if (node.kind != Node::Kind::scalar) fail(node, words, "write one of those");
            std::string value = node.text;
            if (value == "poison" || value == "zero") return value;
            if (value.starts_with("0x")) value.erase(0, 2);
            const bool hex = !value.empty() && value.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
            if (!hex || value.size() % 2 != 0 || value.size() > 8192)
              fail(node, words, "write two digits a byte, at most 4096 bytes");
            return value;
          },
          [](const std::string& value) { return json(value); }};
}

// A word is short for {key: word}.
Codec<std::map<std::string, std::string>> store_key() {
  const std::string words = "text, or a mapping of the fields of the key";
  return {words,
          [] {
            const json one{{"type", json::array({"string", "integer", "boolean"})}};
            return json{
                {"oneOf", json::array({one, {{"type", "object"}, {"additionalProperties", one}, {"minProperties", 1}}})}};
          },
          [words](const Node& node) {
            std::map<std::string, std::string> out;
            if (node.kind == Node::Kind::scalar) {
              out["key"] = node.text;
              return out;
            }
            if (node.kind != Node::Kind::mapping || node.keys.empty())
              fail(node, words, "write e.g. {model: llama, block: 3}");
            for (std::size_t i = 0; i < node.keys.size(); ++i) {
              if (node.items[i].kind != Node::Kind::scalar)
                fail(node.items[i], "text or a number", "write one value a field");
              out[node.keys[i]] = node.items[i].text;
            }
            return out;
          },
          [](const std::map<std::string, std::string>& value) -> json {
            if (value.size() == 1 && value.contains("key")) return value.at("key");
            return value;
          }};
}

// "int32", "uint16", or the mapping.
Codec<Arithmetic> arithmetic() {
  const Codec<Arithmetic> full = object<Arithmetic>(arithmetic_table);
  return {"int32, uint32, ..., or a mapping {bits, signed, unit, of}",
          [full] {
            return json{{"oneOf", json::array({json{{"type", "string"}, {"pattern", "^u?int[0-9]{1,2}$"}}, full.schema()})}};
          },
          [full](const Node& node) {
            if (node.kind != Node::Kind::scalar) return full.read(node);
            Arithmetic out;
            std::string_view word = node.text;
            if (word.starts_with('u')) out.is_signed = false, word.remove_prefix(1);
            const bool named = word.starts_with("int");
            if (named) word.remove_prefix(3);
            const auto read = std::from_chars(word.data(), word.data() + word.size(), out.bits);
            if (!named || word.empty() || read.ec != std::errc{} || read.ptr != word.data() + word.size() || out.bits < 8 ||
                out.bits > 64) {
              fail(node, "int8 to int64, uint8 to uint64, or a mapping", "write e.g. int32, or {bits: 32, of: product}");
            }
            return out;
          },
          [full](const Arithmetic& value) -> json {
            if (value == Arithmetic{value.bits, value.is_signed})
              return (value.is_signed ? "int" : "uint") + std::to_string(value.bits);
            return full.write(value);
          }};
}

bool is_plain(const View& view) {
  View plain = plain_view(view.of);
  plain.cache = view.cache;
  return view == plain;
}

// "P" is short for {of: P}.
Codec<View> view() {
  return {"a memory, or a view of one", [] { return reference("view"); },
          [](const Node& node) {
            return node.kind == Node::Kind::scalar ? plain_view(text().read(node)) : read(view_table(), node);
          },
          [](const View& value) -> json { return is_plain(value) ? json(value.of) : write(view_table(), value); }};
}

// Raw bytes of a memory with one allocation, or of an allocation.
Codec<std::vector<View>> place() {
  const std::string words = "a memory \"P\" or an allocation \"P/kv.L0\"";
  return {words, [] { return json{{"type", "string"}}; },
          [words](const Node& node) {
            if (node.kind != Node::Kind::scalar || node.text.empty()) fail(node, words, "name one piece of memory");
            return std::vector<View>{plain_view(node.text)};
          },
          [](const std::vector<View>& value) -> json { return value.empty() ? "" : value.front().of; }};
}

Codec<std::map<std::string, std::int64_t>> strides_codec() {
  auto out = map_of(offset_codec(), axis_text());
  out.words = "layer, kv, block, slot, head, channel -> bytes";
  return out;
}

}  // namespace kvcts::catalogue
