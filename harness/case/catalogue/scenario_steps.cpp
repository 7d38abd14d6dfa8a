#include "case/catalogue/scenario_steps.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "case/catalogue/scenario_table.hpp"
#include "case/catalogue/scenario_values.hpp"

namespace kvcts::catalogue {

using scenario::Action;
using scenario::Step;

namespace {

std::string op_names() {
  std::string out;
  for (const Op& o : ops()) out += (out.empty() ? "" : ", ") + o.name;
  return out;
}

struct Named {
  const Op* op;
  Node body;
};

// One key, an operation, with a mapping as its value. A bare word has no body.
Named taken_apart(const Node& item, bool or_intended = false) {
  Node key = item;
  key.kind = Node::Kind::scalar, key.quoted = false;
  Node body;
  body.kind = Node::Kind::mapping, body.file = item.file, body.line = item.line;
  if (item.kind == Node::Kind::mapping && item.keys.size() == 1) {
    key.text = item.keys[0], key.line = item.key_lines[0];
    const Node& value = item.items[0];
    if (value.kind == Node::Kind::mapping)
      body = value;
    else if (value.kind != Node::Kind::null)
      fail(value, "the keys of the step '" + key.text + "' as a mapping", "write '" + key.text + ": {...}'");
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
    mapping.keys.erase(mapping.keys.begin() + at), mapping.key_lines.erase(mapping.key_lines.begin() + at),
        mapping.items.erase(mapping.items.begin() + at);
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

// Where a patch sets keys of a view, "P" means {of: P}.
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
  if (const Node* given = named.body.find("name"))
    step.name = within(*given, "name", [&] { return identifier().read(*given); });
  std::optional<Node> actual;
  if (const Node* given = named.body.find("actually")) actual = *given;
  remove_key(named.body, "name"), remove_key(named.body, "actually");
  step.intended = read(named.op->intended, named.body);
  if (actual) {
    step.as_intended = false;
    step.actual = within(*actual, "actually", [&] { return read_actual(*named.op, named.body, *actual); });
  }
  const auto name_output = [&](Action& action) {
    if (action.op == scenario::Operation::read && action.output.empty()) action.output = step.name;
  };
  name_output(step.intended);
  for (Action& action : step.actual) name_output(action);
  return step;
}

const Op& op_of(const Action& action) {
  for (const Op& o : ops()) {
    if (o.name == name(action.op)) return o;
  }
  throw Error("script: '" + std::string(name(action.op)) + "' is no operation");
}

json write_action(const Step& step, const Action& action, bool intended) {
  const Op& o = op_of(action);
  json body = write(intended ? o.intended : o.actual, action);
  if (action.op == scenario::Operation::read && action.output == step.name) body.erase("output");
  return body;
}

json write_step(const Step& step, std::size_t index) {
  json body = write_action(step, step.intended, true);
  if (step.name != default_name(std::string(name(step.intended.op)), index)) body["name"] = step.name;
  if (!step.as_intended) {
    json actual = json::array();
    for (const Action& action : step.actual)
      actual.push_back({{std::string(name(action.op)), write_action(step, action, false)}});
    body["actually"] = actual.empty() ? json("skipped") : std::move(actual);
  }
  return {{std::string(name(step.intended.op)), std::move(body)}};
}

// Replaces the value of the key `steps`.
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
  return value.kind == Node::Kind::null ||
         (value.kind == Node::Kind::scalar && !value.quoted && (value.text == "~" || value.text == "null"));
}

}  // namespace

Codec<std::vector<Step>> steps_codec() {
  const std::string words = "a list of steps";
  return {words, [] { return json{{"type", "array"}, {"items", reference("step")}}; },
          [words](const Node& node) {
            if (node.kind != Node::Kind::list || node.items.empty())
              fail(node, words, "write lines that start with '- ' and an operation");
            std::vector<Step> out;
            std::set<std::string> names;
            for (std::size_t i = 0; i < node.items.size(); ++i) {
              out.push_back(read_step(node.items[i], i));
              if (!names.insert(out.back().name).second)
                fail(node.items[i], "steps with distinct names", "rename one of the two called '" + out.back().name + "'");
            }
            return out;
          },
          [](const std::vector<Step>& steps) {
            json out = json::array();
            for (std::size_t i = 0; i < steps.size(); ++i) out.push_back(write_step(steps[i], i));
            return out;
          }};
}

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
        throw Error(at.where() + ": expected the name of a step, found '" + changes.keys[k] + "'" +
                    suggestion(changes.keys[k], names));
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

}  // namespace kvcts::catalogue
