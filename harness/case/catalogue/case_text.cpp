#include "case/catalogue/case_text.hpp"

#include <algorithm>
#include <vector>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/scenario_table.hpp"
#include "case/catalogue/yaml.hpp"

namespace kvcts::catalogue {

namespace {

// Text that needs no quotes in a flow mapping, and reads back as text.
bool plain(const std::string& text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ' ||
      text.find_first_of(",:{}[]\"'#&*!|>%@`\n\t\\") != std::string::npos)
    return false;
  if (text.front() == '-' || text.front() == '?' || text == "~" || text == "<<" || text == "=") return false;
  Node node;
  node.kind = Node::Kind::scalar, node.text = text;
  return to_json(node).is_string();
}

// The first operation of a list of one, as {name, body}.
const json* only_action(const json& actual, const std::string& operation) {
  if (!actual.is_array() || actual.size() != 1 || !actual[0].is_object() || actual[0].size() != 1) return nullptr;
  const auto action = actual[0].begin();
  return action.key() == operation ? &action.value() : nullptr;
}

std::string step_text(const json& step) {
  if (!step.is_object() || step.size() != 1 || !step.begin().value().is_object()) return flow(step);
  const std::string& operation = step.begin().key();
  json body = step.begin().value();
  const json actual = body.value("actually", json());
  const json name = body.value("name", json());
  body.erase("actually"), body.erase("name");
  std::string out = step_yaml(body, operation);
  const auto add = [&out](const std::string& key, const std::string& text) {
    out += (out.empty() ? "" : ", ") + key + ": " + text;
  };
  if (!name.is_null()) add("name", flow(name));
  if (actual.is_null()) return operation + ": {" + out + "}";
  const json* alone = only_action(actual, operation);
  const json patch = alone ? difference(body, *alone) : json();
  if (alone && !patch.empty()) {
    add("actually", "{" + step_yaml(patch, operation) + "}");
  } else if (actual.is_array()) {
    std::string list;
    for (const json& action : actual) {
      const bool one = action.is_object() && action.size() == 1 && action.begin().value().is_object();
      list += (list.empty() ? "" : ", ") +
              (one ? "{" + action.begin().key() + ": {" + step_yaml(action.begin().value(), action.begin().key()) + "}}"
                   : flow(action));
    }
    add("actually", "[" + list + "]");
  } else {
    add("actually", flow(actual));
  }
  return operation + ": {" + out + "}";
}

}  // namespace

namespace {

// What a mapping is comes before what it has; other keys in alphabetical order.
int place_of(const std::string& key) {
  static const std::vector<std::string> first{
      "base",    "name",   "as_intended", "outcome", "class",  "phase",  "contains",   "side",   "rank",      "of",
      "backend", "layout", "template",    "claim",   "layers", "blocks", "block_size", "tokens", "generation"};
  return static_cast<int>(std::find(first.begin(), first.end(), key) - first.begin());
}

}  // namespace

std::string flow(const json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return plain(text) ? text : value.dump();
  }
  std::string out;
  if (value.is_array()) {
    for (const auto& item : value) out += (out.empty() ? "" : ", ") + flow(item);
    return "[" + out + "]";
  }
  if (value.is_object()) {
    std::vector<std::string> keys;
    for (const auto& [key, item] : value.items()) keys.push_back(key);
    std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
    for (const auto& key : keys) out += (out.empty() ? "" : ", ") + flow(json(key)) + ": " + flow(value[key]);
    return "{" + out + "}";
  }
  return value.dump();
}

std::string step_yaml(const json& body, const std::string& operation) {
  std::string out;
  for (const auto& op : ops()) {
    if (op.name != operation) continue;
    for (const auto& field : op.actual.fields) {
      if (body.contains(field.key)) out += (out.empty() ? "" : ", ") + field.key + ": " + flow(body[field.key]);
    }
  }
  return out;
}

json difference(const json& from, const json& to) {
  json out = json::object();
  for (const auto& [key, value] : to.items()) {
    const auto old = from.find(key);
    if (old == from.end())
      out[key] = value;
    else if (*old != value && value.is_object() && old->is_object())
      out[key] = difference(*old, value);
    else if (*old != value && value.is_object() && old->is_string())
      out[key] = difference({{"of", *old}}, value);  // a view, where there was only a memory name
    else if (*old != value)
      out[key] = value;
  }
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) out[key] = nullptr;
  }
  return out;
}

namespace {

std::string written_out(const json& document) {
  std::vector<std::string> keys;
  for (const auto& field : case_table().fields) keys.push_back(field.key);
  if (const auto memory = std::find(keys.begin(), keys.end(), "memory"),
      requests = std::find(keys.begin(), keys.end(), "requests");
      requests < memory) {
    std::iter_swap(memory, requests);  // first the memories, then their users
  }
  std::string out;
  for (const std::string& key : keys) {
    const auto it = document.find(key);
    if (it == document.end()) continue;
    const bool lines = it->is_array() && !it->empty() && it->front().is_object();
    if (key == "memory" || (key == "requests" && it->is_object())) {
      out += key + ":\n";
      for (const auto& [name, value] : it->items()) out += "  " + flow(json(name)) + ": " + flow(value) + "\n";
    } else if (lines) {
      out += key + ":\n";
      for (const auto& item : *it) out += "  - " + (key == "steps" ? step_text(item) : flow(item)) + "\n";
    } else {
      out += key + ": " + flow(*it) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string readable_yaml(const json& document) {
  std::string text = written_out(document);
  try {
    if (to_document(parse_cases(text, "(text)").front()) == document) return text;
  } catch (const Error&) {
    // No flow-style form exists: use JSON.
  }
  text.clear();
  for (const auto& [key, value] : document.items()) text += key + ": " + value.dump() + "\n";
  return text;
}

}  // namespace kvcts::catalogue
