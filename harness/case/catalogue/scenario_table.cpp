#include "case/catalogue/scenario_table.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "case/catalogue/scenario_steps.hpp"
#include "case/catalogue/scenario_values.hpp"
#include "case/scenario_walk.hpp"

namespace kvcts::catalogue {

using scenario::Action;
using scenario::Memory;
using scenario::Scenario;
using scenario::Step;
using scenario::View;

namespace {

json one_key_of(const char* suffix) {
  json properties = json::object();
  for (const Op& o : ops()) properties[o.name] = reference(o.name + suffix);
  return {{"oneOf", json::array({json{{"enum",
                                       [] {
                                         json names = json::array();
                                         for (const Op& o : ops()) names.push_back(o.name);
                                         return names;
                                       }()}},
                                 json{{"type", "object"},
                                      {"additionalProperties", false},
                                      {"minProperties", 1},
                                      {"maxProperties", 1},
                                      {"properties", std::move(properties)}}})}};
}

using Requests = std::map<std::string, scenario::ScenarioRequest>;

/// Requests that say no generation get one each that no other has, in the order of their names.
void give_own_content(Requests& requests, const std::function<bool(const std::string&)>& says) {
  std::set<std::uint32_t> taken;
  for (const auto& [name, request] : requests)
    if (says(name)) taken.insert(request.generation);
  std::uint32_t next = 1;
  for (auto& [name, request] : requests) {
    if (says(name)) continue;
    while (taken.contains(next)) ++next;
    request.generation = next++;
  }
}

Codec<Requests> requests_codec() {
  const auto plain = by_reference(named(object<scenario::ScenarioRequest>(scenario_request_table)), "request");
  Codec<Requests> out = plain;
  out.read = [plain](const Node& node) {
    Requests requests = plain.read(node);
    give_own_content(requests, [&](const std::string& name) { return node.find(name)->find("generation") != nullptr; });
    return requests;
  };
  // Where reading would give others than these, all are said.
  out.write = [plain](const Requests& requests) {
    json written = plain.write(requests);
    Requests again = requests;
    give_own_content(again, [&](const std::string& name) { return written.at(name).contains("generation"); });
    if (again != requests)
      for (const auto& [name, request] : requests) written[name]["generation"] = request.generation;
    return written;
  };
  return out;
}

}  // namespace

const Table<Scenario>& scenario_table() {
  static const Table<Scenario> table{
      "a script",
      {
          required("memory", &Scenario::memories, by_reference(named(object<Memory>(memory_table)), "memory"),
                   "name -> memory"),
          optional("requests", &Scenario::requests, requests_codec(), "name -> request"),
          required("steps", &Scenario::steps, steps_codec(), "what is done, in order"),
      },
      check_scenario};
  return table;
}

json scenario_definitions() {
  json out{{"memory", schema(memory_table())},
           {"request", schema(scenario_request_table())},
           {"step", one_key_of("")},
           {"action", one_key_of("-actual")}};
  const json pick{{"type", json::array({"integer", "string"})}};
  out["picks"] = {{"oneOf", json::array({pick, json{{"type", "array"}, {"items", pick}}})}};
  out["blocks"] = {{"type", "array"},
                   {"items", {{"oneOf", json::array({integer_codec(-many, many).schema(), json{{"const", "none"}}})}}}};
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
    body["properties"]["name"] =
        described(identifier().schema(), "unique; default the operation and the position of the step");
    body["properties"]["actually"] = described(
        {{"oneOf", json::array({json{{"const", "skipped"}}, patch,
                                json{{"type", "array"},
                                     {"items",
                                      {{"oneOf", json::array({reference("action"), json{{"const", "intended"}},
                                                              json{{"type", "object"},
                                                                   {"additionalProperties", false},
                                                                   {"properties", {{"intended", patch}}},
                                                                   {"required", json::array({"intended"})}}})}}}}})}},
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

namespace {

void expect_name(const Node& at, const std::string& what, const std::string& name, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  if (known.empty())
    throw Error(at.where() + ": expected the name of a " + what + ", found '" + name + "'; there is none, declare it");
  throw Error(at.where() + ": expected the name of a " + what + ", found '" + name + "'" + suggestion(name, known));
}

}  // namespace

void check_scenario(const Scenario& scenario, const Node& document) {
  const Node* steps = document.find("steps");
  std::vector<std::string> memories, requests, names, places;
  for (const auto& [name, memory] : scenario.memories) memories.push_back(name);
  for (const auto& [name, request] : scenario.requests) requests.push_back(name);
  for (const Step& step : scenario.steps) names.push_back(step.name);
  places = memories;
  scenario::each_action(scenario, [&](const Step&, const Action& action, bool) {
    if (action.op == scenario::Operation::read) places.push_back(action.output);
  });
  const auto line_of = [](const Node* mapping, const std::string& key, const Node& otherwise) -> const Node& {
    const Node* found = mapping ? mapping->find(key) : nullptr;
    return found ? *found : otherwise;
  };
  for (const auto& [name, memory] : scenario.memories) {
    if (memory.view.of.empty()) continue;
    const Node& at = line_of(document.find("memory"), name, document);
    std::set<std::string> seen{name};
    const Memory* up = &memory;
    while (!up->view.of.empty()) {
      const std::string of = scenario::memory_of(up->view.of);
      expect_name(at, "memory", of, memories);
      if (!seen.insert(of).second)
        throw Error(at.where() + ": expected 'of' to lead to a memory with bytes, found a cycle through '" + of +
                    "'; give one of them its own bytes");
      up = &scenario.memories.at(of);
    }
  }
  for (const auto& [name, request] : scenario.requests) {
    for (const auto& [memory, ids] : request.blocks)
      expect_name(line_of(document.find("requests"), name, document), "memory", memory, memories);
  }
  for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
    const Step& step = scenario.steps[i];
    const Node& at = steps && i < steps->items.size() ? steps->items[i] : document;
    const auto check = [&](const Action& action) {
      if (!action.request.empty()) expect_name(at, "request", action.request, requests);
      if (!action.memory.empty()) expect_name(at, "memory", scenario::memory_of(action.memory), places);
      for (const auto* views : {&action.from, &action.to}) {
        for (const View& view : *views) expect_name(at, "memory", scenario::memory_of(view.of), places);
      }
      for (const auto& [memory, ids] : action.blocks) expect_name(at, "memory", memory, memories);
      for (const auto* other : {&action.after, &action.before}) {
        if (!other->empty()) expect_name(at, "step", *other, names);
      }
      if (action.op == scenario::Operation::read && scenario.memories.contains(action.output)) {
        throw Error(at.where() + ": expected an unused output name, found '" + action.output +
                    "', which is a memory; rename one of them");
      }
    };
    check(step.intended);
    for (const Action& action : step.actual) check(action);
  }
}

Scenario scenario_from_yaml(std::string_view text, const std::string& name) {
  const auto documents = parse_yaml(text, name);
  if (documents.size() != 1)
    throw Error(name + ":1: expected one document, found " + std::to_string(documents.size()) + "; write one script");
  return read(scenario_table(), documents.front());
}

json scenario_document(const Scenario& scenario) { return write(scenario_table(), scenario); }

}  // namespace kvcts::catalogue
