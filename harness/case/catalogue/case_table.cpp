#include "case/catalogue/case_file.hpp"
#include "case/catalogue/scenario_table.hpp"
#include "case/catalogue/tables.hpp"

namespace kvcts::catalogue {

namespace {

// ---- the keys of a case, from the inside out -----------------------------------------------------------------------

const Table<SideSpec>& claim_table() {
  static const Table<SideSpec> table{
      "a claim",
      {
          optional("layout", &SideSpec::claim_layout, identifier(), "layout that the connector is given"),
          optional("template", &SideSpec::claim_text, text(), "the same, written out"),
          optional("tensors", &SideSpec::claim_tensors, object<layout::TensorSpec>(tensor_spec_table),
                   "how tensors are shown to it"),
      }};
  return table;
}

Field<SideSpec> claim_field() {
  return {"claim",
          false,
          "what the connector is given instead of the truth: layout, template, tensors",
          "a claim",
          [] { return schema(claim_table()); },
          [](SideSpec& out, const Node& node) {
            SideSpec claim = read(claim_table(), node);
            out.claim_layout = claim.claim_layout, out.claim_text = claim.claim_text,
            out.claim_tensors = claim.claim_tensors;
          },
          [](const SideSpec& in) -> json {
            json out = write(claim_table(), in);
            return out.empty() ? json(nullptr) : out;
          }};
}

const Table<SideSpec>& side_table() {
  static const Table<SideSpec> table{
      "a side",
      {
          optional("backend", &SideSpec::backend, identifier(), "backend of the catalogue: its layout, dtypes and archs"),
          optional("layout", &SideSpec::layout, identifier(), "layout of the catalogue"),
          optional("template", &SideSpec::text, text(),
                   "a layout written out (grammar: kvcts explain --schema case --reference)"),
          optional("tensors", &SideSpec::tensors, object<layout::TensorSpec>(tensor_spec_table),
                   "what the connector is handed; default as the layout says"),
          optional("dtype", &SideSpec::dtype, identifier(), "cache dtype, when the sides differ"),
          optional("block_size", &SideSpec::block_size, integer(1, 1 << 20), "tokens of a block; default the geometry's"),
          optional("blocks", &SideSpec::blocks, integer(1, 1 << 26), "blocks of the pool; default the geometry's"),
          optional("tp", &SideSpec::tp, integer(1, 1024), "ranks that share the KV heads (more ranks than heads: replicas)"),
          claim_field(),
      },
      [](const SideSpec& side, const Node& node) {
        const int given = !side.layout.empty() + !side.text.empty();
        if (given > 1) fail(node, "one of layout and template", "remove one of them");
        if (given == 0 && side.backend.empty())
          fail(node, "a side with backend, layout or template", "say how its cache is laid out");
        if (!side.claim_layout.empty() && !side.claim_text.empty()) {
          fail(*node.find("claim"), "one of layout and template in a claim", "remove one of them");
        }
      }};
  return table;
}

const Table<RequestSpec>& request_table() {
  static const Table<RequestSpec> table{
      "a request",
      {
          required("tokens", &RequestSpec::tokens, integer(0, many), "tokens in the cache"),
          optional("generation", &RequestSpec::generation, integer(1),
                   "which writer's tags it carries; differs between requests that reuse blocks"),
          optional("transfer", &RequestSpec::transfer, boolean(), "false: written on the producer, not moved"),
          optional("producer_blocks", &RequestSpec::producer_blocks, list_of(integer_codec(0, many)),
                   "block ids there, in order of tokens"),
          optional("consumer_blocks", &RequestSpec::consumer_blocks, list_of(integer_codec(0, many)),
                   "block ids there, in order of tokens"),
      }};
  return table;
}

const Table<CopySpec>& copy_table() {
  static const Table<CopySpec> table{
      "a copy",
      {
          required("from", &CopySpec::from, text(), "region, e.g. producer/g0/r0/kv.L0 or a unique tail of that"),
          optional("from_offset", &CopySpec::from_offset, integer(), "bytes from its start"),
          required("to", &CopySpec::to, text(), "region"),
          optional("to_offset", &CopySpec::to_offset, integer(), "bytes from its start"),
          required("bytes", &CopySpec::bytes, integer(0), "how many"),
      }};
  return table;
}

Codec<std::optional<Phase>> phase() {
  const Codec<std::string> word = one_of(phase_names());
  return {word.words, word.schema, [word](const Node& node) { return phase_from_name(word.read(node)); },
          [](const std::optional<Phase>& value) { return value ? json(name(*value)) : json(nullptr); }};
}

// One class: a case that may end in several ways has several outcomes.
Codec<FaultClass> expected_class() {
  const Codec<FaultClass> word = fault_class_codec();
  return {word.words, word.schema,
          [word](const Node& node) {
            if (node.kind == Node::Kind::list)
              fail(node, "one fault class",
                   "where any of several will do: expected: [{outcome: FAIL, class: ...}, {outcome: FAIL, class: ...}]");
            return word.read(node);
          },
          word.write};
}

/// FLAKY is the outcome of several tries of a case, never one that a user requires.
std::vector<std::string> expectable() {
  std::vector<std::string> out = outcome_names();
  std::erase(out, std::string(name(Outcome::flaky)));
  return out;
}

const Table<Expected>& expected_table() {
  static const Table<Expected> table{
      "an expected outcome",
      {
          required("outcome", &Expected::outcome, outcome_codec(expectable()),
                   "what a user needs; a known defect is a waiver instead"),
          optional("class", &Expected::fault_class, expected_class(), "primary fault class; default any"),
          optional("phase", &Expected::phase, phase(), "phase in which it ends; default any"),
          optional("contains", &Expected::contains, text(), "a part of the message"),
      }};
  return table;
}

// A word ("PASS"), a mapping, or a list of those; any may match.
Codec<Expected> expected() {
  const Codec<Expected> full = object<Expected>(expected_table);
  const Codec<Outcome> word = outcome_codec(expectable());
  return {"an outcome, or a mapping {outcome, class, phase, contains}",
          [full, word] { return json{{"oneOf", json::array({word.schema(), full.schema()})}}; },
          [full, word](const Node& node) {
            if (node.kind != Node::Kind::scalar) return full.read(node);
            Expected out;
            out.outcome = word.read(node);
            return out;
          },
          [full, word](const Expected& value) {
            return value == Expected{value.outcome, {}, {}, ""} ? word.write(value.outcome) : full.write(value);
          }};
}

const Table<ControlSpec>& control_table() {
  static const Table<ControlSpec> table{
      "a control",
      {
          required("name", &ControlSpec::name, identifier(), "its id is <case>#<name>"),
          optional("set", &ControlSpec::set, anything(),
                   "JSON merge patch on the case: keys to replace, null removes; steps by name: {steps: {move2: {...}}}"),
          optional("as_intended", &ControlSpec::as_intended, boolean(), "every step of a scripted case as intended"),
          optional("expected", &ControlSpec::expected, one_or_more_of(expected()), "default PASS"),
      },
      [](const ControlSpec& control, const Node& node) {
        if (!node.find("set") && !control.as_intended) fail_missing_key(node, "a control", "set", "a mapping");
        for (const char* key : {"case", "controls", "expected"}) {
          if (control.set.contains(key)) {
            fail(*node.find("set"), std::string("a patch without '") + key + "'",
                 "a control has its own name and expected outcome");
          }
        }
      }};
  return table;
}

std::vector<std::string> override_keys() {
  return {"layers", "blocks", "block_size", "heads", "head_dim", "v_head_dim", "kv", "tokens", "q_heads"};
}

// geometry: a name, or a mapping of values over a base ("small" by default).
template <class T>
Field<T> geometry_field() {
  const auto values = map_of(integer_codec(0, many), override_keys());
  return {"geometry",
          false,
          "a geometry of the catalogue, or {base: name, heads: 2, ...}: values that replace the base's",
          "an id or a mapping",
          [values] {
            json mapping = values.schema();
            mapping["propertyNames"]["enum"].push_back("base");
            mapping["additionalProperties"] = {{"type", json::array({"integer", "string"})}};
            return json{{"oneOf", json::array({identifier().schema(), mapping})}};
          },
          [values](T& out, const Node& node) {
            if (node.kind != Node::Kind::mapping) {
              out.geometry = identifier().read(node);
              return;
            }
            Node rest = node;
            if (const Node* base = node.find("base")) {
              out.geometry = identifier().read(*base);
              Node removal;
              removal.kind = Node::Kind::mapping, removal.keys = {"base"}, removal.items = {Node{}}, removal.key_lines = {0};
              rest = merge_patch(std::move(rest), removal);
            }
            out.geometry_values = json::object();
            for (const auto& [key, value] : values.read(rest)) out.geometry_values[key] = value;
          },
          [](const T& in) -> json {
            if (!in.geometry_values.is_object() || in.geometry_values.empty()) return in.geometry;
            json out = in.geometry_values;
            if (!in.geometry.empty()) out["base"] = in.geometry;
            return out;
          }};
}

const Table<GroupSpec>& group_table() {
  static const Table<GroupSpec> table{
      "a group",
      {
          required("name", &GroupSpec::name, identifier(), "unique in the case"),
          geometry_field<GroupSpec>(),
          required("producer", &GroupSpec::producer, object<SideSpec>(side_table), "as in the case"),
          optional("consumer", &GroupSpec::consumer, object<SideSpec>(side_table),
                   "what it does not say is as on the producer, its claim aside"),
          optional("requests", &GroupSpec::requests, list_of(object<RequestSpec>(request_table)),
                   "default: one of geometry.tokens"),
      }};
  return table;
}

// reader: a name, or {name: ..., option: ...}.
Field<CaseSpec> reader_field() {
  return {"reader",
          false,
          "who gathers the consumer's cache afterwards: a name, or {name: ..., and its options}",
          "an id or a mapping",
          [] {
            json mapping{
                {"type", "object"}, {"required", json::array({"name"})}, {"properties", {{"name", identifier().schema()}}}};
            return json{{"oneOf", json::array({identifier().schema(), mapping})}};
          },
          [](CaseSpec& out, const Node& node) {
            if (node.kind != Node::Kind::mapping) {
              out.reader = identifier().read(node);
              return;
            }
            const Node* reader_name = node.find("name");
            if (!reader_name) fail_missing_key(node, "a reader", "name", "an id");
            out.reader = identifier().read(*reader_name);
            out.reader_options = to_json(node);
            out.reader_options.erase("name");
          },
          [](const CaseSpec& in) -> json {
            if (in.reader_options.empty()) return in.reader;
            json out = in.reader_options;
            out["name"] = in.reader;
            return out;
          }};
}

// ---- scripted cases ------------------------------------------------------------------------------------------------

// memory and steps as in the scenarios' table.
Field<CaseSpec> scenario_field(const std::string& key) {
  for (const auto& field : scenario_table().fields) {
    if (field.key == key) {
      return {
          key,
          false,
          field.doc + " (a scripted case)",
          field.words,
          field.schema,
          [field](CaseSpec& out, const Node& node) { field.read(out.scenario, node); },
          [field](const CaseSpec& in) -> json { return in.scenario.empty() ? json(nullptr) : field.write(in.scenario); }};
    }
  }
  throw Error("script_table: no key '" + key + "'");
}

// requests: a list; by name in a scripted case.
Field<CaseSpec> requests_field() {
  const auto list = list_of(object<RequestSpec>(request_table));
  const auto by_name = scenario_field("requests");
  return {"requests",
          false,
          "default: one of geometry.tokens; in a scripted case by name",
          "a list, each a request, or a mapping by name",
          [list, by_name] { return json{{"oneOf", json::array({list.schema(), by_name.schema()})}}; },
          [list, by_name](CaseSpec& out, const Node& node) {
            if (node.kind == Node::Kind::mapping)
              by_name.read(out, node);
            else
              out.requests = list.read(node);
          },
          [list, by_name](const CaseSpec& in) -> json {
            return in.scenario.empty() ? list.write(in.requests) : by_name.write(in);
          }};
}

void check_kind(const CaseSpec& spec, const Node& node) {
  const Node* memory = node.find("memory");
  const Node* steps = node.find("steps");
  const Node* requests = node.find("requests");
  if (!memory && !steps) {
    if (!node.find("producer"))
      fail_missing_key(node, "a case", "producer", "a side; or memory and steps for a scripted case");
    if (requests && requests->kind == Node::Kind::mapping)
      fail(*requests, "a list of requests", "names are for scripted cases, which have memory and steps");
    return;
  }
  if (!memory) fail_missing_key(node, "a case with steps", "memory", "name -> memory");
  if (!steps) fail_missing_key(node, "a case with memory", "steps", "a list of steps");
  for (const char* key : {"producer", "consumer", "groups", "connector", "engine", "engine_options", "op", "ids", "content",
                          "reader", "copies", "deadlines", "settle", "misalign"}) {
    if (const Node* given = node.find(key))
      fail_in_key(Error(given->where() + ": expected no such key in a case with memory and steps, found " +
                        given->describe() + "; its steps say everything, remove it"),
                  *given, key);
  }
  if (requests && requests->kind == Node::Kind::list)
    fail(*requests, "requests by name in a case with memory and steps", "write {A: {tokens: 8, blocks: {...}}}");
  check_scenario(spec.scenario, node);
}

// the case's guard applies to every memory without its own.
Node with_guards(Node document) {
  const Node* guard = document.find("guard");
  if (document.kind != Node::Kind::mapping || !guard || !document.find("memory")) return document;
  const Node bytes = *guard;
  for (std::size_t i = 0; i < document.keys.size(); ++i) {
    if (document.keys[i] != "memory" || document.items[i].kind != Node::Kind::mapping) continue;
    for (Node& memory : document.items[i].items) {
      if (memory.kind != Node::Kind::mapping || memory.find("of")) continue;
      for (const char* key : {"guard_below", "guard_above"}) {
        if (!memory.find(key))
          memory.keys.emplace_back(key), memory.key_lines.push_back(bytes.line), memory.items.push_back(bytes);
      }
    }
  }
  return document;
}

// Works on nodes, to distinguish "absent" from "at its default": consumer = producer less its claim, then key by key what
// consumer says (a null removes the producer's). The consumer's own layout replaces the producer's and everything that
// belongs to it.
Node inherit(const Node& producer, const Node* consumer) {
  if (producer.kind != Node::Kind::mapping || (consumer && consumer->kind != Node::Kind::mapping))
    return consumer ? *consumer : producer;
  static const std::vector<std::string> of_layout{"backend", "layout", "template", "tensors"};
  const bool own_layout = consumer && (consumer->find("backend") || consumer->find("layout") || consumer->find("template"));
  Node out = consumer ? *consumer : Node{};
  if (!consumer) out.kind = Node::Kind::mapping, out.file = producer.file, out.line = producer.line;
  for (std::size_t i = 0; i < producer.keys.size(); ++i) {
    const std::string& key = producer.keys[i];
    const bool belongs = std::find(of_layout.begin(), of_layout.end(), key) != of_layout.end();
    if (key == "claim" || (own_layout && belongs) || out.find(key)) continue;
    out.keys.push_back(key), out.key_lines.push_back(producer.key_lines[i]), out.items.push_back(producer.items[i]);
  }
  for (std::size_t i = out.items.size(); i-- > 0;) {
    if (out.items[i].kind != Node::Kind::null && (out.items[i].kind != Node::Kind::scalar || out.items[i].quoted ||
                                                  (out.items[i].text != "null" && out.items[i].text != "~")))
      continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    out.keys.erase(out.keys.begin() + at), out.key_lines.erase(out.key_lines.begin() + at),
        out.items.erase(out.items.begin() + at);
  }
  return out;
}

void set_key(Node& mapping, const std::string& key, Node value) {
  for (std::size_t i = 0; i < mapping.keys.size(); ++i) {
    if (mapping.keys[i] == key) {
      mapping.items[i] = std::move(value);
      return;
    }
  }
  mapping.keys.push_back(key);
  mapping.key_lines.push_back(value.line);
  mapping.items.push_back(std::move(value));
}

// Fills in the consumer sides that the document leaves out.
Node complete(Node document) {
  if (document.kind != Node::Kind::mapping) return document;
  if (const Node* producer = document.find("producer"))
    set_key(document, "consumer", inherit(*producer, document.find("consumer")));
  for (std::size_t i = 0; i < document.keys.size(); ++i) {
    if (document.keys[i] != "groups" || document.items[i].kind != Node::Kind::list) continue;
    for (auto& group : document.items[i].items) {
      if (group.kind != Node::Kind::mapping) continue;
      if (const Node* producer = group.find("producer"))
        set_key(group, "consumer", inherit(*producer, group.find("consumer")));
    }
  }
  return document;
}

template <class T>
void expect_known(const Node& document, const char* key, const std::string& id, const Entries<T>& entries) {
  if (id.empty() || entries.contains(id)) return;
  const Node* at = document.find(key);
  throw Error((at ? *at : document).where() + ": key '" + key + "': expected a known id, found '" + id + "'" +
              suggestion(id, entries.ids()));
}

void check_side(const Node& document, const char* key, const SideSpec& side, const Catalogue& catalogue) {
  const Node* node = document.find(key);
  const Node& at = node ? *node : document;
  expect_known(at, "backend", side.backend, catalogue.backends());
  expect_known(at, "layout", side.layout, catalogue.layouts());
  expect_known(at, "dtype", side.dtype, catalogue.dtypes());
  const Node* claim = at.find("claim");
  expect_known(claim ? *claim : at, "layout", side.claim_layout, catalogue.layouts());
  if (side.backend.empty() || side.layout.empty()) return;
  const BackendEntry& backend = catalogue.backends().at(side.backend);
  std::vector<std::string> its{backend.layout};
  for (const auto& [hint, layout] : backend.hints) its.push_back(layout);
  if (std::find(its.begin(), its.end(), side.layout) == its.end()) {
    throw Error(at.where() + ": key 'layout': expected a layout of backend '" + backend.id + "', found '" + side.layout +
                "'" + suggestion(side.layout, its));
  }
}

void check_names(const Node& document, const CaseSpec& spec, const Catalogue& catalogue) {
  expect_known(document, "arch", spec.arch, catalogue.archs());
  expect_known(document, "dtype", spec.dtype, catalogue.dtypes());
  expect_known(document, "geometry", spec.geometry, catalogue.geometries());
  expect_known(document, "connector", spec.connector, catalogue.connectors());
  expect_known(document, "engine", spec.engine, catalogue.engines());
  check_side(document, "producer", spec.producer, catalogue);
  check_side(document, "consumer", spec.consumer, catalogue);
  const Node* groups = document.find("groups");
  for (std::size_t i = 0; i < spec.groups.size(); ++i) {
    const Node& group = groups->items[i];
    expect_known(group, "geometry", spec.groups[i].geometry, catalogue.geometries());
    check_side(group, "producer", spec.groups[i].producer, catalogue);
    check_side(group, "consumer", spec.groups[i].consumer, catalogue);
  }
}

CaseSpec read_one(const Node& document, const std::string& name, const Catalogue* catalogue) {
  const Node whole = with_guards(complete(document));
  CaseSpec spec = read(case_table(), whole);
  if (spec.expected.empty()) spec.expected.push_back({});
  spec.declared_by = name;
  if (catalogue) check_names(whole, spec, *catalogue);
  return spec;
}

// `steps: {name: {...}}` changes steps by name; everything else is a merge patch.
Node patch_case(Node document, const Node* set) {
  if (!set) return document;
  Node rest = *set;
  for (std::size_t i = 0; i < rest.keys.size(); ++i) {
    if (rest.keys[i] != "steps" || rest.items[i].kind != Node::Kind::mapping) continue;
    document = patch_steps(document, rest.items[i]);
    const auto at = static_cast<std::ptrdiff_t>(i);
    rest.keys.erase(rest.keys.begin() + at), rest.key_lines.erase(rest.key_lines.begin() + at),
        rest.items.erase(rest.items.begin() + at);
    break;
  }
  return merge_patch(std::move(document), rest);
}

// A document and the cases that its controls make of it.
void expand(const Node& document, const std::string& name, const Catalogue* catalogue, std::vector<CaseSpec>& out) {
  out.push_back(read_one(document, name, catalogue));
  const CaseSpec base = out.back();
  const Node* controls = document.find("controls");
  for (std::size_t i = 0; i < base.controls.size(); ++i) {
    const Node* set = controls->items[i].find("set");
    Node patched = patch_case(base.controls[i].as_intended ? as_intended(document) : document, set);
    CaseSpec control = read_one(patched, name, catalogue);
    control.id = base.id + "#" + base.controls[i].name;
    control.title = base.title.empty() ? "" : base.title + " (control: " + base.controls[i].name + ")";
    control.expected = base.controls[i].expected.empty() ? std::vector<Expected>{{}} : base.controls[i].expected;
    control.controls.clear();
    out.push_back(std::move(control));
  }
}

}  // namespace

const Table<CaseSpec>& case_table() {
  static const Table<CaseSpec> table{
      "a case",
      {
          required("case", &CaseSpec::id, path_name(), "id, e.g. seeds/t4-xformers"),
          optional("title", &CaseSpec::title, any_text(), "one line"),
          optional("notes", &CaseSpec::notes, any_text(), "anything else"),
          optional("links", &CaseSpec::links, list_of(text()), "issues, pages"),
          optional("arch", &CaseSpec::arch, identifier(), "arch of the catalogue"),
          optional("dtype", &CaseSpec::dtype, identifier(), "cache dtype of both sides"),
          geometry_field<CaseSpec>(),
          optional("connector", &CaseSpec::connector, identifier(), "who makes the plan"),
          optional("engine", &CaseSpec::engine, identifier(), "who moves the bytes"),
          optional("engine_options", &CaseSpec::engine_options, anything(), "over those of the catalogue"),
          optional("op", &CaseSpec::op, direction_codec(), "write: the producer pushes; read: the consumer pulls"),
          optional("ids", &CaseSpec::ids, one_of(block_id_rules), "block ids where a request names none"),
          optional("content", &CaseSpec::content, one_of({"tags", "golden", "specials"}),
                   "what the producer holds: tags, a golden file's bytes, or tags with NaN, -0 and subnormals among them"),
          optional("seed", &CaseSpec::seed, natural(), "of tags, poison and shuffles"),
          optional("producer", &CaseSpec::producer, object<SideSpec>(side_table),
                   "the side whose cache is filled; needed without memory and steps"),
          optional("consumer", &CaseSpec::consumer, object<SideSpec>(side_table),
                   "the other side; what it does not say is as on the producer, its claim aside"),
          requests_field(),
          scenario_field("memory"),
          scenario_field("steps"),
          optional("groups", &CaseSpec::groups, list_of(object<GroupSpec>(group_table)), "further KV cache groups"),
          reader_field(),
          optional("copies", &CaseSpec::copies, list_of(object<CopySpec>(copy_table)),
                   "the plan itself (connector: explicit)"),
          optional("deadlines", &CaseSpec::deadlines_ms, deadlines(), "phase -> deadline"),
          optional("settle", &CaseSpec::settle_ms, duration(true),
                   "how long memory is watched for late writes; 0s: it is not watched after the end"),
          optional("guard", &CaseSpec::guard_bytes, integer(0, 1 << 30), "bytes of guard below and above each allocation"),
          optional("misalign", &CaseSpec::misalign, integer(0, 1 << 20),
                   "bytes by which each allocation's base is off a page"),
          optional("expected", &CaseSpec::expected, one_or_more_of(expected()), "what a user needs; default PASS"),
          optional("controls", &CaseSpec::controls, list_of(object<ControlSpec>(control_table)),
                   "variants that must end otherwise"),
      },
      [](const CaseSpec& spec, const Node& node) {
        check_kind(spec, node);
        if (!spec.copies.empty() && spec.connector != "explicit") {
          fail(*node.find("copies"), "copies only with connector: explicit", "add connector: explicit, or remove copies");
        }
        for (std::size_t i = 0; i < spec.controls.size(); ++i) {
          if (spec.controls[i].as_intended && spec.scenario.empty()) {
            fail(*node.find("controls"), "as_intended only in a case with memory and steps",
                 "say with 'set' what is different");
          }
          for (std::size_t k = 0; k < i; ++k) {
            if (spec.controls[i].name == spec.controls[k].name) {
              fail(*node.find("controls"), "controls with distinct names",
                   "rename one of the two called '" + spec.controls[i].name + "'");
            }
          }
        }
      }};
  return table;
}

std::vector<CaseSpec> parse_cases(std::string_view text, const std::string& name, const Catalogue* catalogue) {
  std::vector<CaseSpec> out;
  for (const auto& document : parse_yaml(text, name)) {
    const std::size_t first = out.size();
    expand(document, name, catalogue, out);
    for (std::size_t i = 0; i < first; ++i) {
      if (out[i].id == out[first].id) {
        throw Error(document.where() + ": expected a new case id, found '" + out[i].id + "' again; rename one of them");
      }
    }
  }
  if (out.empty())
    throw Error(name + ":1: expected at least one case, found an empty file; add a document with the key 'case'");
  return out;
}

std::vector<CaseSpec> read_case_file(const std::filesystem::path& path, const std::string& shown,
                                     const Catalogue* catalogue) {
  const std::string name = shown.empty() ? path.string() : shown;
  return parse_cases(read_text_file(path, name), name, catalogue);
}

json to_document(const CaseSpec& spec) {
  json out = write(case_table(), spec);
  const auto consumer_difference = [](const SideSpec& producer, const SideSpec& consumer) {
    SideSpec base = producer;
    base.claim_layout.clear(), base.claim_text.clear(), base.claim_tensors.reset();
    json difference = json::object();
    const bool other_layout =
        base.backend != consumer.backend || base.layout != consumer.layout || base.text != consumer.text;
    if (other_layout) base.backend.clear(), base.layout.clear(), base.text.clear(), base.tensors.reset();
    for (const auto& field : side_table().fields) {
      json value = field.write(consumer);
      if (value != field.write(base)) difference[field.key] = value == "" ? json(nullptr) : std::move(value);
    }
    return difference;
  };
  out.erase("consumer");
  if (json difference = consumer_difference(spec.producer, spec.consumer); !difference.empty())
    out["consumer"] = std::move(difference);
  for (std::size_t i = 0; i < spec.groups.size(); ++i) {
    auto& group = out["groups"][i];
    group.erase("consumer");
    if (json difference = consumer_difference(spec.groups[i].producer, spec.groups[i].consumer); !difference.empty()) {
      group["consumer"] = std::move(difference);
    }
  }
  return out;
}

std::string to_yaml(const CaseSpec& spec) {
  const json document = to_document(spec);
  std::string out;
  for (const auto& field : case_table().fields) {  // in table order, not alphabetical
    const auto it = document.find(field.key);
    if (it == document.end()) continue;
    if (it->is_array() && !it->empty() && it->front().is_object()) {
      out += field.key + ":\n";
      for (const auto& item : *it) out += "  - " + item.dump() + "\n";
    } else {
      out += field.key + ": " + it->dump() + "\n";
    }
  }
  return out;
}

}  // namespace kvcts::catalogue
