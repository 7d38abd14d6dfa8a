#include "case/catalogue/script_table.hpp"

#include <charconv>
#include <set>

#include "case/script_walk.hpp"

namespace kvcts::catalogue {

namespace {

using script::Action;
using script::Arithmetic;
using script::Memory;
using script::Picks;
using script::Script;
using script::Selection;
using script::Step;
using script::View;

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t any_bytes = std::int64_t{1} << 56;  // sums of several are still 64-bit numbers of bits
constexpr std::size_t most_picks = 1 << 20;

json reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

// A field of a member that is itself a mapping, under a key of the outer one.
template <class Outer, class Inner>
Field<Outer> lift(Field<Inner> field, Inner Outer::*member, const std::string& prefix = "") {
  Field<Outer> out;
  out.key = prefix + field.key, out.required = field.required, out.doc = field.doc, out.words = field.words, out.schema = field.schema;
  out.read = [field, member](Outer& value, const Node& node) { field.read(value.*member, node); };
  out.write = [field, member](const Outer& value) { return field.write(value.*member); };
  return out;
}

template <class T>
std::vector<Field<T>> join(std::vector<Field<T>> first, const std::vector<Field<T>>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// ---- values ---------------------------------------------------------------------------------------------------------

// A mapping whose keys are names that steps use.
template <class M>
Codec<std::map<std::string, M>> named(Codec<M> item) {
  Codec<std::map<std::string, M>> map = map_of(item);
  return {map.words, [map] {
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
Codec<std::int64_t> offset_codec() { return whole(-any_bytes, "bytes, may be negative"); }
Codec<std::int64_t> bytes_codec(std::int64_t low = 0) { return whole(low, low > 0 ? "bytes, at least 1" : "bytes"); }

void add_picks(const Node& node, bool kv, Ids& out) {
  const std::string words = kv ? "K, V, an index, or a list of those" : "an index, a range \"0..4\" (its end is not in it), or a list of those";
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
  if (static_cast<std::uint64_t>(last - first) + out.size() > most_picks) fail(node, "at most " + std::to_string(most_picks) + " indices", "take fewer");
  for (std::int64_t i = first; i < last; ++i) out.push_back(i);
}

Codec<Ids> picks(bool kv) {
  return {kv ? "K, V, or a list of them" : "an index, a range \"0..4\", or a list of those",
          [] { return reference("picks"); },
          [kv](const Node& node) {
            Ids out;
            if (node.kind != Node::Kind::list) add_picks(node, kv, out);
            else for (const auto& item : node.items) add_picks(item, kv, out);
            return out;
          },
          [kv](const Ids& ids) {
            const bool range = !kv && ids.size() > 2 && ids.back() - ids.front() == static_cast<std::int64_t>(ids.size()) - 1 && std::is_sorted(ids.begin(), ids.end());
            if (range) return json(std::to_string(ids.front()) + ".." + std::to_string(ids.back() + 1));
            json out = json::array();
            for (const auto id : ids) out.push_back(kv && id < 2 ? json(id ? "V" : "K") : json(id));
            return out;
          }};
}

Codec<Ids> block_ids() {
  Codec<Ids> out = list_of(integer_codec(-1, many));
  out.words = "a list of block ids, -1 for none";
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
  return {"any value", [] { return json::object(); }, [](const Node& node) { return to_json(node); }, [](const json& value) { return value; }};
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
            if (!hex || value.size() % 2 != 0 || value.size() > 8192) fail(node, words, "write two digits a byte, at most 4096 bytes");
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
            return json{{"oneOf", json::array({one, {{"type", "object"}, {"additionalProperties", one}, {"minProperties", 1}}})}};
          },
          [words](const Node& node) {
            std::map<std::string, std::string> out;
            if (node.kind == Node::Kind::scalar) {
              out["key"] = node.text;
              return out;
            }
            if (node.kind != Node::Kind::mapping || node.keys.empty()) fail(node, words, "write e.g. {model: llama, block: 3}");
            for (std::size_t i = 0; i < node.keys.size(); ++i) {
              if (node.items[i].kind != Node::Kind::scalar) fail(node.items[i], "text or a number", "write one value a field");
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
          [full] { return json{{"oneOf", json::array({json{{"type", "string"}, {"pattern", "^u?int[0-9]{1,2}$"}}, full.schema()})}}; },
          [full](const Node& node) {
            if (node.kind != Node::Kind::scalar) return full.read(node);
            Arithmetic out;
            std::string_view word = node.text;
            if (word.starts_with('u')) out.is_signed = false, word.remove_prefix(1);
            const bool named = word.starts_with("int");
            if (named) word.remove_prefix(3);
            const auto read = std::from_chars(word.data(), word.data() + word.size(), out.bits);
            if (!named || word.empty() || read.ec != std::errc{} || read.ptr != word.data() + word.size() || out.bits < 8 || out.bits > 64) {
              fail(node, "int8 to int64, uint8 to uint64, or a mapping", "write e.g. int32, or {bits: 32, of: product}");
            }
            return out;
          },
          [full](const Arithmetic& value) -> json {
            if (value == Arithmetic{value.bits, value.is_signed}) return (value.is_signed ? "int" : "uint") + std::to_string(value.bits);
            return full.write(value);
          }};
}

View plain_view(const std::string& of) {
  View out;
  out.of = of;
  return out;
}

bool is_plain(const View& view) {
  View plain = plain_view(view.of);
  plain.cache = view.cache;
  return view == plain;
}

// "P" is short for {of: P}.
Codec<View> view() {
  return {"a memory, or a view of one", [] { return reference("view"); },
          [](const Node& node) { return node.kind == Node::Kind::scalar ? plain_view(text().read(node)) : read(view_table(), node); },
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

// ---- a view and its memory -------------------------------------------------------------------------------------------

const std::vector<std::string>& axis_words() {
  static const std::vector<std::string> words{"layer", "kv", "block", "slot", "head", "channel"};
  return words;
}

Codec<std::map<std::string, std::int64_t>> strides_codec() {
  auto out = map_of(offset_codec(), axis_words());
  out.words = "layer, kv, block, slot, head, channel -> bytes";
  return out;
}

Field<View> view_geometry() {
  auto values = map_of(integer_codec(0, many), {"layers", "blocks", "block_size", "heads", "head_dim", "v_head_dim", "kv", "first_layer", "first_head"});
  values.words = "layers, blocks, block_size, heads, head_dim, v_head_dim, kv, first_layer, first_head -> number";
  return {"geometry", false, "numbers that replace those of the memory, which replace the case's", values.words, values.schema,
          [values](View& out, const Node& node) {
            out.geometry = json::object();
            for (const auto& [key, value] : values.read(node)) out.geometry[key] = value;
          },
          [](const View& in) { return in.geometry; }};
}

std::vector<Field<View>> declared_fields() {
  return {
      optional("of", &View::of, text(), "memory whose bytes these are: \"P\", or one of its allocations \"P/kv.L0\""),
      optional("layout", &View::layout, text(), "layout of the catalogue, or another project's name for one (flashinfer:HND, NL_X_TWO_NB_BS_NH_HS)"),
      optional("template", &View::text, text(), "a layout written out (grammar: cases/README.md, Templates)"),
      optional("planes", &View::planes, text(), "planes written out, a line each: data fp16 a0+0 [B=6:512 N=4:128 H=2:64 C=16:2], bytes"),
      view_geometry(),
      optional("dtype", &View::dtype, identifier(), "cache dtype; default the memory's, and then the case's"),
      optional("offset", &View::offset, offset_codec(), "bytes added to every address"),
      optional("strides", &View::strides, strides_codec(), "outermost stride of the axis, in data planes"),
      optional("scale_strides", &View::scale_strides, strides_codec(), "the same in scale planes"),
      optional("scale_offset", &View::scale_offset, offset_codec(), "bytes added to addresses of scale planes"),
  };
}

void check_view(const View& view, const Node& node) {
  if (!view.layout.empty() + !view.text.empty() + !view.planes.empty() > 1) fail(node, "one of layout, template and planes", "remove the others");
  if (view.planes.empty()) return;
  for (const char* key : {"geometry", "dtype"}) {
    if (const Node* given = node.find(key)) fail(*given, std::string("no '") + key + "' beside planes", "planes say it all, remove it");
  }
}

void check_memory(const Memory& memory, const Node& node) {
  check_view(memory.view, node);
  if (!memory.view.of.empty()) {
    for (const char* key : {"bytes", "pool", "gap", "guard_below", "guard_above", "sparse", "boundaries", "base", "holds"}) {
      if (const Node* given = node.find(key)) {
        fail(*given, std::string("no '") + key + "' in a memory that shares the bytes of '" + memory.view.of + "'", "say it there");
      }
    }
    return;
  }
  if (memory.view.layout.empty() && memory.view.text.empty() && memory.view.planes.empty() && memory.bytes == 0) {
    fail(node, "layout, template, planes, bytes or of", "say what lies in it, or how large it is");
  }
  if (memory.view.offset != 0) fail(*node.find("offset"), "no 'offset' in memory of its own", "an offset is for views, and for memory with 'of'");
  if (memory.gap != 0 && !memory.pool) fail(*node.find("gap"), "a gap only with pool: true", "add pool: true, or remove it");
  for (std::size_t i = 0; i < memory.boundaries.size(); ++i) {
    if (i && memory.boundaries[i] <= memory.boundaries[i - 1]) fail(*node.find("boundaries"), "boundaries in ascending order", "sort them");
  }
}

// ---- steps -----------------------------------------------------------------------------------------------------------

const Table<Selection>& selection_table() {
  static const Table<Selection> table{"a selection", {
      optional("layers", &Selection::layers, picks(false), "layers, as the model counts them; default all"),
      optional("kv", &Selection::kv, picks(true), "K, V (0, 1); default both"),
      optional("tokens", &Selection::tokens, picks(false), "positions in the content (first_token of the request counts); default all"),
      optional("heads", &Selection::heads, picks(false), "KV heads, as the model counts them; default all"),
      optional("channels", &Selection::channels, picks(false), "channels; of scale planes, groups; default all"),
  }};
  return table;
}

using Fields = std::vector<Field<Action>>;

Fields selection(Selection Action::*member, const std::string& prefix = "") {
  Fields out;
  for (auto field : selection_table().fields) {
    if (!prefix.empty()) field.doc = "where each of '" + field.key + "' goes, as many; default to itself";
    out.push_back(lift(field, member, prefix));
  }
  return out;
}
const Fields& taken() {
  static const Fields fields = selection(&Action::pick);
  return fields;
}
const Fields& placed() {
  static const Fields fields = selection(&Action::pick_to, "to_");
  return fields;
}

Field<Action> of_request() { return required("request", &Action::request, identifier(), "whose bytes"); }
Field<Action> from_views() { return required("from", &Action::from, one_or_list_of(view()), "where they are read; of several views, the first that holds an element"); }
Field<Action> to_views() { return required("to", &Action::to, one_or_list_of(view()), "where they are written"); }
Field<Action> from_ids() { return optional("from_blocks", &Action::from_blocks, block_ids(), "there, instead of the request's"); }
Field<Action> to_ids() { return optional("to_blocks", &Action::to_blocks, block_ids(), "there, instead of the request's"); }
Field<Action> part() { return optional("parts", &Action::parts, one_of({"all", "data", "scales"}), "data, scales, or both"); }
Field<Action> splits() { return optional("splits", &Action::splits, boolean(), "copies are cut where a registration or a mapping ends; false: they straddle"); }
Field<Action> accesses() {
  return optional("otherwise", &Action::otherwise, one_of({"refuse", "go on"}), "refuse: an access outside or not registered is not done; go on: it is");
}
Field<Action> words_of(const char* doc) { return optional("text", &Action::text, any_text(), doc); }
Field<Action> bytes_field(const char* doc, bool needed) {
  return needed ? required("bytes", &Action::bytes, bytes_codec(), doc) : optional("bytes", &Action::bytes, bytes_codec(1), doc);
}
Field<Action> range_offset() { return optional("offset", &Action::to_offset, offset_codec(), "byte at which the range begins; then name one allocation"); }
Field<Action> waiting_in() { return optional("in", &Action::in, one_of({"transfer", "kernel", "handshake"}), "what never ends"); }

// Written wherever there is a second one, also when it is 0.
Field<Action> step_field(const char* key, std::int64_t Action::*member, const char* doc) {
  Field<Action> out = optional(key, member, offset_codec(), doc);
  out.write = [member](const Action& in) { return in.count > 1 ? json(in.*member) : json(nullptr); };
  return out;
}

Fields repeated(bool from) {
  Fields out{optional("count", &Action::count, integer(1, 1 << 20), "how many times")};
  if (from) out.push_back(step_field("from_step", &Action::from_step, "bytes from one to the next at the source; needed with count > 1"));
  out.push_back(step_field("to_step", &Action::to_step, "bytes from one to the next at the destination; needed with count > 1"));
  return out;
}

// When and with what an action is executed; what was meant is always executed in its place.
Fields timing(const std::string& op) {
  Fields out{
      optional("after", &Action::after, identifier(), "executed behind the step of this name instead"),
      optional("before", &Action::before, identifier(), "executed in front of the step of this name instead"),
  };
  const auto of = [&](std::initializer_list<const char*> names) { return std::find(names.begin(), names.end(), op) != names.end(); };
  if (of({"move"})) out.push_back(optional("reads", &Action::reads, one_of({"execute", "issue"}), "issue: the bytes are taken at the step's own place, and written where it is executed"));
  if (of({"write", "move", "fill", "read", "put", "get"})) {
    out.push_back(optional("table", &Action::table, one_of({"execute", "issue"}), "issue: the block table is that of the step's own place"));
  }
  return out;
}

void check_pairs(const Action& action, const Node& node) {
  const auto pair = [&](const Picks& from, const Picks& to, const char* key) {
    if (!to) return;
    const std::string far = std::string("to_") + key;
    if (!from) fail(*node.find(far), "'" + far + "' only with '" + key + "'", std::string("say which ") + key + " go there");
    if (from->size() != to->size()) {
      fail(*node.find(far), "as many as in '" + std::string(key) + "' (" + std::to_string(from->size()) + ")", "say for each where it goes");
    }
  };
  pair(action.pick.layers, action.pick_to.layers, "layers");
  pair(action.pick.kv, action.pick_to.kv, "kv");
  pair(action.pick.tokens, action.pick_to.tokens, "tokens");
  pair(action.pick.heads, action.pick_to.heads, "heads");
  pair(action.pick.channels, action.pick_to.channels, "channels");
}

void check_repeats(const Action& action, const Node& node, bool from) {
  for (const char* key : {"from_step", "to_step"}) {
    if (action.count > 1 && (from || key[0] == 't') && !node.find(key)) fail_missing_key(node, "a step with count > 1", key, "bytes");
  }
}

void check_fill(const Action& action, const Node& node) {
  const bool raw = node.find("to_offset") || node.find("bytes") || node.find("count") || node.find("to_step");
  if (action.request.empty() && !action.to_blocks) {
    for (const char* key : {"layers", "kv", "tokens", "heads", "channels", "parts"}) {
      if (const Node* given = node.find(key)) fail(*given, std::string("'") + key + "' only with request or to_blocks", "say whose elements, or which blocks, are filled");
    }
    if (action.to.size() != 1 || !is_plain(action.to.front())) {
      fail(*node.find("to"), "one memory or allocation", "a fill without request and to_blocks fills bytes, which have no layout");
    }
  }
  if (raw + action.to_blocks.has_value() + !action.request.empty() > 1) {
    fail(node, "one of a range of bytes, to_blocks and request", "say in one way which bytes are filled");
  }
  check_repeats(action, node, false);
}

void check_read(const Action& action, const Node& node) {
  const Node *parts = node.find("parts"), *scales = node.find("scales");
  if (action.decode && parts) fail(*parts, "no 'parts' in a read with decode", "a number has the scales of its code in it; say scales: ignored, or leave decode out");
  if (!action.decode && scales) fail(*scales, "'scales' only with decode", "bytes are read as they are; add decode: true, or pick parts");
}

void check_range(const Action& action, const Node& node) {
  if (!action.request.empty() && (node.find("offset") || node.find("bytes"))) fail(node, "one of request and a range of bytes", "remove one of them");
  if (action.memory.empty() && (node.find("offset") || node.find("bytes"))) fail_missing_key(node, "a range of bytes", "memory", "a memory or allocation");
  if (!action.request.empty() && action.memory.empty()) fail_missing_key(node, "a check of a request", "memory", "a memory or allocation");
}

void check_requirement(const Action& action, const Node& node) {
  if (!node.find("expects") && action.needs.empty()) fail(node, "expects and found, or needs", "say what is compared");
  if (!node.find("expects") != !node.find("found")) fail(node, "expects and found together", "add the other one");
}

const std::vector<std::string>& subjects() {
  static const std::vector<std::string> words{"dims", "groups", "heads", "layers", "block_size", "bytes", "stride", "alignment", "registration", "dtype",
                                              "capability", "tokens", "key", "axes", "kv", "blocks", "scales", "size", "width"};
  return words;
}

Op op(const std::string& name, std::string doc, Fields fields, std::function<void(const Action&, const Node&)> check = {}, Action initial = {}) {
  initial.op = name;
  const auto rules = [check](bool actual) {
    return [check, actual](const Action& action, const Node& node) {
      if (actual && !action.after.empty() && !action.before.empty()) fail(node, "one of after and before", "remove one of them");
      for (const char* key : {"reads", "table"}) {
        const Node* given = actual && action.after.empty() && action.before.empty() ? node.find(key) : nullptr;
        if (given) fail(*given, std::string("'") + key + "' only with after or before", "say where the step is executed instead");
      }
      if (check) check(action, node);
    };
  };
  const std::string what = "a '" + name + "' step";
  return {name, std::move(doc), {what, fields, rules(false), initial}, {what, join(fields, timing(name)), rules(true), initial}};
}

std::vector<Op> make_ops() {
  Action store;
  store.store = "store";
  Action raising;
  raising.otherwise = "raise";
  const auto otherwise = optional("otherwise", &Action::otherwise, one_of({"refuse", "raise", "crash", "go on"}), "what the code does when it does not hold");
  const auto store_name = optional("store", &Action::store, identifier(), "which store");
  const auto key = required("key", &Action::key, store_key(), "fields of the key, or one word");
  const auto memory = required("memory", &Action::memory, text(), "memory, or one of its allocations");
  const Fields range{memory, range_offset(), bytes_field("how many; default all from offset on", false)};
  return {
      op("write", "every element of the request gets its tag", join<Action>({of_request(), to_views()}, join(taken(), {
             to_ids(), part(), accesses(),
             optional("generation", &Action::generation, generation(), "of what is written; default the request's"),
             optional("content", &Action::content, one_of({"tags", "codes", "values"}), "tags; codes: every code of the dtype in turn; values: numbers, encoded as the view's dtype says")}))),
      op("move", "elements of the request from view to view, by coordinate",
         join<Action>({of_request(), from_views(), to_views()}, join(join(taken(), placed()), {from_ids(), to_ids(), part(), splits(), accesses()})), check_pairs),
      op("copy", "raw bytes",
         join<Action>({required("from", &Action::from, place(), "memory with one allocation, or an allocation"),
                       optional("from_offset", &Action::from_offset, offset_codec(), "byte there; beyond the ends are the guards"),
                       required("to", &Action::to, place(), "memory with one allocation, or an allocation"),
                       optional("to_offset", &Action::to_offset, offset_codec(), "byte there"), bytes_field("how many", true), splits(), accesses()},
                      repeated(true)),
         [](const Action& action, const Node& node) { check_repeats(action, node, true); }),
      op("fill", "bytes that are not content",
         join<Action>({to_views(), optional("to_offset", &Action::to_offset, offset_codec(), "byte at which the range begins"),
                       bytes_field("how many; default all from to_offset on", false)},
                      join(join(repeated(false), taken()), {to_ids(), part(), accesses(), optional("request", &Action::request, identifier(), "its elements"),
                                                            required("value", &Action::value, pattern(), "what every byte becomes")})),
         check_fill),
      op("read", "gathers elements of the request into an output of its own, as a kernel does", join<Action>({of_request(), from_views()}, join(taken(), {
             from_ids(), part(), accesses(), optional("decode", &Action::decode, boolean(), "numbers (fp32: code, times scale, times global scale) rather than bytes"),
             optional("scales", &Action::scales, one_of({"used", "ignored", "twice"}), "of decoded numbers"),
             optional("output", &Action::output, identifier(), "name of the output; default the step's")})), check_read),
      op("register", "from now on only registered bytes of this memory can be moved",
         join(range, {optional("maps", &Action::maps, offset_codec(), "byte where the registration really begins; default offset")})),
      op("unregister", "takes a registration back", range),
      op("put", "elements of the request into a store, as one object",
         join<Action>({store_name, key, of_request(), from_views()}, join(taken(), {from_ids(), part(), splits(), accesses(),
             optional("on_exists", &Action::on_exists, one_of({"replace", "keep"}), "when the store has this key")})), {}, store),
      op("get", "an object of a store into the request's elements",
         join<Action>({store_name, key, of_request(), to_views()}, join(join(taken(), placed()), {to_ids(), part(), splits(), accesses()})), check_pairs, store),
      op("assign", "the request's blocks, generation or tokens from here on",
         {required("request", &Action::request, identifier(), "which"),
          optional("blocks", &Action::blocks, tables(block_ids()), "memory -> its block ids from here on; positions stay as the request has them"),
          optional("generation", &Action::generation, generation(), "of what is written from here on"),
          optional("tokens", &Action::tokens, integer(0, many), "how many it has")}),
      op("signal", "an event", {required("event", &Action::event, identifier(), "name"), optional("fields", &Action::fields, anything(), "what it carries")}),
      op("wait", "until an event has come; for ever when it has not",
         {required("event", &Action::event, identifier(), "name"), optional("fields", &Action::fields, anything(), "fields that the event must have"), waiting_in()}),
      op("complete", "a completion is reported",
         {optional("request", &Action::request, identifier(), "of which request"), optional("fields", &Action::fields, anything(), "what is reported: status, bytes, ...")}),
      op("fail", "a failure is reported, cleanly", {optional("request", &Action::request, identifier(), "of which request"), words_of("the report")}),
      op("require", "a condition of the code",
         {required("about", &Action::about, one_of(subjects()), "what the condition is about"),
          optional("expects", &Action::expects, any_value(), "what the code wants"), optional("found", &Action::found, any_value(), "what there is; must be equal"),
          optional("needs", &Action::needs, anything(), "fact of the arch (kvcts schema arch --reference) -> least value"), otherwise, words_of("the message")},
         check_requirement),
      op("unpack", "the code takes a tensor's shape apart",
         {required("memory", &Action::memory, text(), "memory whose first tensor it is"),
          required("expects", &Action::expects, any_value(), "names of the dims that it unpacks: [two, blocks, slots, heads, channels]"), otherwise, words_of("the message")},
         [](const Action& action, const Node& node) {
           const bool names = action.expects.is_array() && !action.expects.empty() &&
                              std::all_of(action.expects.begin(), action.expects.end(), [](const json& name) { return name.is_string(); });
           if (!names) fail(*node.find("expects"), "a list of names of dims", "write e.g. [blocks, slots, heads, channels]");
         },
         raising),
      op("refuse", "a clean, typed refusal; nothing may have moved", {words_of("the message")}),
      op("raise", "an exception", {words_of("the message")}),
      op("crash", "the process dies", {optional("signal", &Action::signal, identifier(), "by which signal, or exit code"), words_of("what it says")}),
      op("hang", "it never ends", {waiting_in(), words_of("what it was doing")}),
      op("check", "compares here, too; at the end everything is compared anyway",
         {optional("memory", &Action::memory, text(), "memory, or one of its allocations; default all"),
          optional("request", &Action::request, identifier(), "its elements there"), range_offset(), bytes_field("how many; default all from offset on", false),
          optional("is", &Action::is, one_of({"exact", "unchanged", "any"}), "exact: as intended; unchanged: as at the check before; any: does not matter from here on")},
         check_range),
      op("nothing", "no such step was meant; `actually` says what the code did", {}),
  };
}

std::string op_names() {
  std::string out;
  for (const Op& o : ops()) out += (out.empty() ? "" : ", ") + o.name;
  return out;
}

struct Named {
  const Op* op;
  Node body;
};

// One key, an operation; its value a mapping. A word alone has no body.
Named taken_apart(const Node& item, bool or_intended = false) {
  Node key = item;
  key.kind = Node::Kind::scalar, key.quoted = false;
  Node body;
  body.kind = Node::Kind::mapping, body.file = item.file, body.line = item.line;
  if (item.kind == Node::Kind::mapping && item.keys.size() == 1) {
    key.text = item.keys[0], key.line = item.key_lines[0];
    const Node& value = item.items[0];
    if (value.kind == Node::Kind::mapping) body = value;
    else if (value.kind != Node::Kind::null) fail(value, "the keys of the step '" + key.text + "' as a mapping", "write '" + key.text + ": {...}'");
  } else if (item.kind != Node::Kind::scalar) {
    fail(item, "a step with one operation", "write one of " + op_names() + ", and everything else inside it");
  }
  if (or_intended && key.text == "intended") return {nullptr, body};
  std::vector<std::string> known;
  for (const Op& o : ops()) {
    if (o.name == key.text) return {&o, body};
    known.push_back(o.name);
  }
  throw Error(key.where() + ": expected an operation (" + op_names() + "), found " + key.describe() +
              (nearest(key.text, known).empty() ? "" : "; did you mean '" + nearest(key.text, known) + "'?"));
}

void remove_key(Node& mapping, std::string_view key) {
  for (std::size_t i = 0; i < mapping.keys.size(); ++i) {
    if (mapping.keys[i] != key) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    mapping.keys.erase(mapping.keys.begin() + at), mapping.key_lines.erase(mapping.key_lines.begin() + at), mapping.items.erase(mapping.items.begin() + at);
    return;
  }
}

std::string default_name(const std::string& operation, std::size_t index) { return operation + std::to_string(index + 1); }

template <class F>
auto within(const Node& value, const char* key, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    fail_in_key(error, value, key);
  }
}

// Where a patch sets keys of a view, "P" is {of: P}.
Node opened(Node body, const Node& patch) {
  for (const char* key : {"from", "to"}) {
    const Node* change = patch.find(key);
    if (!change || change->kind != Node::Kind::mapping) continue;
    for (std::size_t i = 0; i < body.keys.size(); ++i) {
      Node& view = body.items[i];
      if (body.keys[i] != key || view.kind != Node::Kind::scalar) continue;
      Node mapping;
      mapping.kind = Node::Kind::mapping, mapping.file = view.file, mapping.line = view.line;
      mapping.keys = {"of"}, mapping.key_lines = {view.line}, mapping.items = {view};
      view = std::move(mapping);
    }
  }
  return body;
}

std::vector<Action> read_actual(const Op& operation, const Node& body, const Node& actual) {
  if (actual.kind == Node::Kind::scalar && actual.text == "skipped") return {};
  const auto patched = [&](const Node& patch) { return read(operation.actual, merge_patch(opened(body, patch), patch)); };
  if (actual.kind == Node::Kind::mapping && operation.name != "nothing") return {patched(actual)};
  if (actual.kind != Node::Kind::list || actual.items.empty()) {
    fail(actual, "skipped, keys that differ from what was intended, or a list of steps", "say what the code did instead");
  }
  std::vector<Action> out;
  for (const Node& item : actual.items) {
    const Named named = taken_apart(item, operation.name != "nothing");
    out.push_back(named.op ? read(named.op->actual, named.body) : patched(named.body));
  }
  return out;
}

Step read_step(const Node& item, std::size_t index) {
  Named named = taken_apart(item);
  Step step;
  step.name = default_name(named.op->name, index);
  if (const Node* given = named.body.find("name")) step.name = within(*given, "name", [&] { return identifier().read(*given); });
  std::optional<Node> actual;
  if (const Node* given = named.body.find("actually")) actual = *given;
  remove_key(named.body, "name"), remove_key(named.body, "actually");
  step.intended = read(named.op->intended, named.body);
  if (actual) {
    step.as_intended = false;
    step.actual = within(*actual, "actually", [&] { return read_actual(*named.op, named.body, *actual); });
  }
  const auto name_output = [&](Action& action) {
    if (action.op == "read" && action.output.empty()) action.output = step.name;
  };
  name_output(step.intended);
  for (Action& action : step.actual) name_output(action);
  return step;
}

const Op& op_of(const Action& action) {
  for (const Op& o : ops()) {
    if (o.name == action.op) return o;
  }
  throw Error("script: '" + action.op + "' is no operation");
}

json write_action(const Step& step, const Action& action, bool intended) {
  const Op& o = op_of(action);
  json body = write(intended ? o.intended : o.actual, action);
  if (action.op == "read" && action.output == step.name) body.erase("output");
  return body;
}

json write_step(const Step& step, std::size_t index) {
  json body = write_action(step, step.intended, true);
  if (step.name != default_name(step.intended.op, index)) body["name"] = step.name;
  if (!step.as_intended) {
    json actual = json::array();
    for (const Action& action : step.actual) actual.push_back({{action.op, write_action(step, action, false)}});
    body["actually"] = actual.empty() ? json("skipped") : std::move(actual);
  }
  return {{step.intended.op, std::move(body)}};
}

Codec<std::vector<Step>> steps_codec() {
  const std::string words = "a list of steps";
  return {words, [] { return json{{"type", "array"}, {"items", reference("step")}}; },
          [words](const Node& node) {
            if (node.kind != Node::Kind::list || node.items.empty()) fail(node, words, "write lines that start with '- ' and an operation");
            std::vector<Step> out;
            std::set<std::string> names;
            for (std::size_t i = 0; i < node.items.size(); ++i) {
              out.push_back(read_step(node.items[i], i));
              if (!names.insert(out.back().name).second) fail(node.items[i], "steps with names of their own", "rename one of the two called '" + out.back().name + "'");
            }
            return out;
          },
          [](const std::vector<Step>& steps) {
            json out = json::array();
            for (std::size_t i = 0; i < steps.size(); ++i) out.push_back(write_step(steps[i], i));
            return out;
          }};
}

json one_key_of(const char* suffix) {
  json properties = json::object();
  for (const Op& o : ops()) properties[o.name] = reference(o.name + suffix);
  return {{"oneOf", json::array({json{{"enum", [] {
                                        json names = json::array();
                                        for (const Op& o : ops()) names.push_back(o.name);
                                        return names;
                                      }()}},
                                 json{{"type", "object"}, {"additionalProperties", false}, {"minProperties", 1}, {"maxProperties", 1},
                                      {"properties", std::move(properties)}}})}};
}

}  // namespace

const Table<Selection>& picks_table() { return selection_table(); }

// ---- tables ----------------------------------------------------------------------------------------------------------

const Table<Arithmetic>& arithmetic_table() {
  static const Table<Arithmetic> table{"an arithmetic", {
      optional("bits", &Arithmetic::bits, integer(8, 64), "width of the number"),
      optional("signed", &Arithmetic::is_signed, boolean(), "read back with a sign"),
      optional("unit", &Arithmetic::unit, one_of({"bytes", "elements"}), "what it counts"),
      optional("of", &Arithmetic::of, one_of({"sum", "product"}), "sum: the whole offset; product: index * stride of each mode"),
  }};
  return table;
}

const Table<View>& view_table() {
  static const Table<View> table{"a view", join(declared_fields(), {
      optional("align", &View::align, integer(1, std::int64_t{1} << 32), "every address is rounded down to a multiple of this many bytes"),
      optional("arithmetic", &View::arithmetic, arithmetic(), "width in which the code computes addresses; default 64 bits"),
    }), [](const View& view, const Node& node) {
      if (view.of.empty()) fail_missing_key(node, "a view", "of", "a memory");
      check_view(view, node);
    }};
  return table;
}

const Table<Memory>& memory_table() {
  static const Table<Memory> table = [] {
    std::vector<Field<Memory>> fields{
        optional("side", &Memory::side, one_of({"producer", "consumer", "staging"}), "whose it is"),
        optional("rank", &Memory::rank, integer(0, 1 << 20), "of which rank"),
    };
    for (const auto& field : declared_fields()) fields.push_back(lift(field, &Memory::view));
    return Table<Memory>{"a memory", join(fields, {
        optional("bytes", &Memory::bytes, bytes_codec(), "size without a layout, or larger than the layout needs (one allocation)"),
        optional("pool", &Memory::pool, boolean(), "all allocations in one piece, one behind the other; default each by itself, with guards"),
        optional("gap", &Memory::gap, bytes_codec(), "bytes between them in a pool"),
        optional("guard_below", &Memory::guard_below, bytes_codec(), "bytes watched in front of each piece"),
        optional("guard_above", &Memory::guard_above, bytes_codec(), "bytes watched behind each piece"),
        optional("sparse", &Memory::sparse, boolean(), "only bytes that somebody touches exist, so that pools of many GiB fit; nothing else is watched"),
        optional("boundaries", &Memory::boundaries, list_of(bytes_codec(1)), "bytes at which one mapping ends and the next begins: no access may straddle one"),
        optional("base", &Memory::base, bytes_codec(), "address of byte 0; matters for align"),
        optional("holds", &Memory::holds, one_of({"poison", "zero"}), "before the first step"),
      }), check_memory};
  }();
  return table;
}

const Table<script::Request>& script_request_table() {
  using script::Request;
  static const Table<Request> table{"a request", {
      required("tokens", &Request::tokens, integer(0, many), "tokens in the cache"),
      optional("generation", &Request::generation, generation(), "which content it holds; equal generations hold equal tokens at equal positions"),
      optional("first_token", &Request::first_token, integer(0, many), "position of its first token in the content"),
      optional("blocks", &Request::blocks, tables(block_ids()), "memory -> its block ids there, in order of tokens"),
      optional("positions", &Request::positions, tables(list_of(integer_codec(0, many))), "memory -> which blocks of the request those are; default 0, 1, 2, ..."),
    }, [](const Request& request, const Node& node) {
      for (const auto& [memory, positions] : request.positions) {
        const auto ids = request.blocks.find(memory);
        if (ids == request.blocks.end() || ids->second.size() != positions.size()) {
          fail(*node.find("positions"), "as many positions as blocks in '" + memory + "'", "say for each block which one of the request it is");
        }
      }
    }};
  return table;
}

const std::vector<Op>& ops() {
  static const std::vector<Op> all = make_ops();
  return all;
}

const Table<Script>& script_table() {
  static const Table<Script> table{"a script", {
      required("memory", &Script::memories, by_reference(named(object<Memory>(memory_table)), "memory"), "name -> memory"),
      optional("requests", &Script::requests, by_reference(named(object<script::Request>(script_request_table)), "request"), "name -> request"),
      required("steps", &Script::steps, steps_codec(), "what is done, in order"),
  }, check_script};
  return table;
}

json script_definitions() {
  json out{{"memory", schema(memory_table())}, {"request", schema(script_request_table())}, {"step", one_key_of("")}, {"action", one_key_of("-actual")}};
  const json pick{{"type", json::array({"integer", "string"})}};
  out["picks"] = {{"oneOf", json::array({pick, json{{"type", "array"}, {"items", pick}}})}};
  out["blocks"] = {{"type", "array"}, {"items", integer_codec(-1, many).schema()}};
  json mapping = schema(view_table());
  mapping["required"] = json::array({"of"});
  out["view"] = {{"oneOf", json::array({json{{"type", "string"}}, std::move(mapping)})}};
  for (const Op& o : ops()) {
    json actual = schema(o.actual);
    json patch{{"type", "object"}, {"propertyNames", {{"enum", keys_of(o.actual)}}}};
    json body = schema(o.intended);
    const auto described = [](json value, const char* doc) {
      value["description"] = doc;
      return value;
    };
    body["properties"]["name"] = described(identifier().schema(), "unique; default the operation and the position of the step");
    body["properties"]["actually"] =
        described({{"oneOf", json::array({json{{"const", "skipped"}}, patch, json{{"type", "array"}, {"items", {{"oneOf", json::array({reference("action"), json{{"const", "intended"}},
                   json{{"type", "object"}, {"additionalProperties", false}, {"properties", {{"intended", patch}}}, {"required", json::array({"intended"})}}})}}}}})}},
                  "what the code did instead: skipped, keys that differ, or a list of steps");
    for (json* one : {&body, &actual}) {
      (*one)["description"] = o.doc;
      if (!one->contains("required")) (*one)["type"] = json::array({"object", "null"});
    }
    out[o.name] = std::move(body);
    out[o.name + "-actual"] = std::move(actual);
  }
  return out;
}

void check_script(const Script& script, const Node& document) {
  const Node* steps = document.find("steps");
  std::vector<std::string> memories, requests, names, places;
  for (const auto& [name, memory] : script.memories) memories.push_back(name);
  for (const auto& [name, request] : script.requests) requests.push_back(name);
  for (const Step& step : script.steps) names.push_back(step.name);
  places = memories;
  script::each_action(script, [&](const Step&, const Action& action, bool) {
    if (action.op == "read") places.push_back(action.output);
  });
  const auto expect = [](const Node& at, const std::string& what, const std::string& name, const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), name) != known.end()) return;
    if (known.empty()) throw Error(at.where() + ": expected the name of a " + what + ", found '" + name + "'; there is none, declare it");
    throw Error(at.where() + ": expected the name of a " + what + ", found '" + name + "'" + suggestion(name, known));
  };
  const auto line_of = [](const Node* mapping, const std::string& key, const Node& otherwise) -> const Node& {
    const Node* found = mapping ? mapping->find(key) : nullptr;
    return found ? *found : otherwise;
  };
  for (const auto& [name, memory] : script.memories) {
    if (memory.view.of.empty()) continue;
    const Node& at = line_of(document.find("memory"), name, document);
    std::set<std::string> seen{name};
    const Memory* up = &memory;
    while (!up->view.of.empty()) {
      const std::string of = script::memory_of(up->view.of);
      expect(at, "memory", of, memories);
      if (!seen.insert(of).second) throw Error(at.where() + ": expected a memory with bytes behind 'of', found a circle through '" + of + "'; give one of them bytes of its own");
      up = &script.memories.at(of);
    }
  }
  for (const auto& [name, request] : script.requests) {
    for (const auto& [memory, ids] : request.blocks) expect(line_of(document.find("requests"), name, document), "memory", memory, memories);
  }
  for (std::size_t i = 0; i < script.steps.size(); ++i) {
    const Step& step = script.steps[i];
    const Node& at = steps && i < steps->items.size() ? steps->items[i] : document;
    const auto check = [&](const Action& action) {
      if (!action.request.empty()) expect(at, "request", action.request, requests);
      if (!action.memory.empty()) expect(at, "memory", script::memory_of(action.memory), places);
      for (const auto* views : {&action.from, &action.to}) {
        for (const View& view : *views) expect(at, "memory", script::memory_of(view.of), places);
      }
      for (const auto& [memory, ids] : action.blocks) expect(at, "memory", memory, memories);
      for (const auto* other : {&action.after, &action.before}) {
        if (!other->empty()) expect(at, "step", *other, names);
      }
      if (action.op == "read" && script.memories.contains(action.output)) {
        throw Error(at.where() + ": expected an output with a name of its own, found '" + action.output + "', which is a memory; rename one of them");
      }
    };
    check(step.intended);
    for (const Action& action : step.actual) check(action);
  }
}

namespace {

// Replaces what is behind the key `steps`.
template <class F>
Node with_steps(const Node& document, F&& change) {
  Node out = document;
  for (std::size_t i = 0; i < out.keys.size(); ++i) {
    if (out.keys[i] == "steps" && out.items[i].kind == Node::Kind::list) change(out.items[i].items);
  }
  return out;
}

std::string name_of(const Node& item, std::size_t index) {
  const Named named = taken_apart(item);
  const Node* given = named.body.find("name");
  return given ? given->text : default_name(named.op->name, index);
}

// A bare word becomes a mapping, so that keys can be set in it.
Node& body_of(Node& item) {
  if (item.kind == Node::Kind::scalar) {
    Node mapping;
    mapping.kind = Node::Kind::mapping, mapping.file = item.file, mapping.line = item.line;
    mapping.keys = {item.text}, mapping.key_lines = {item.line}, mapping.items = {Node{}};
    item = std::move(mapping);
  }
  Node& body = item.items[0];
  if (body.kind == Node::Kind::null) body.kind = Node::Kind::mapping, body.file = item.file, body.line = item.line;
  return body;
}

void set_name(Node& body, const std::string& name) {
  if (body.kind != Node::Kind::mapping || body.find("name")) return;
  Node value;
  value.kind = Node::Kind::scalar, value.file = body.file, value.line = body.line, value.text = name;
  body.keys.emplace_back("name"), body.key_lines.push_back(body.line), body.items.push_back(std::move(value));
}

bool removes(const Node& value) {
  return value.kind == Node::Kind::null || (value.kind == Node::Kind::scalar && !value.quoted && (value.text == "~" || value.text == "null"));
}

}  // namespace

Node patch_steps(const Node& document, const Node& changes) {
  return with_steps(document, [&](std::vector<Node>& steps) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < steps.size(); ++i) names.push_back(name_of(steps[i], i));
    std::vector<bool> gone(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) set_name(body_of(steps[i]), names[i]);  // positions may change
    for (std::size_t k = 0; k < changes.keys.size(); ++k) {
      const auto found = std::find(names.begin(), names.end(), changes.keys[k]);
      if (found == names.end()) {
        Node at = changes;
        at.line = changes.key_lines[k];
        throw Error(at.where() + ": expected the name of a step, found '" + changes.keys[k] + "'" + suggestion(changes.keys[k], names));
      }
      const auto i = static_cast<std::size_t>(found - names.begin());
      gone[i] = removes(changes.items[k]);
      if (!gone[i]) body_of(steps[i]) = merge_patch(body_of(steps[i]), changes.items[k]);
    }
    for (std::size_t i = steps.size(); i-- > 0;) {
      if (gone[i]) steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
    }
  });
}

Node as_intended(const Node& document) {
  return with_steps(document, [](std::vector<Node>& steps) {
    for (Node& item : steps) {
      if (item.kind == Node::Kind::mapping && item.items.size() == 1) remove_key(item.items[0], "actually");
    }
  });
}

Script script_from_yaml(std::string_view text, const std::string& name) {
  const auto documents = parse_yaml(text, name);
  if (documents.size() != 1) throw Error(name + ":1: expected one document, found " + std::to_string(documents.size()) + "; write one script");
  return read(script_table(), documents.front());
}

json script_document(const Script& script) { return write(script_table(), script); }

}  // namespace kvcts::catalogue
