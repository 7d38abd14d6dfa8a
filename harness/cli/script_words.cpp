#include "cli/script_words.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "catalogue/script_table.hpp"
#include "layout/layout.hpp"
#include "report/text.hpp"

namespace kvcts::cli {

using nlohmann::json;

namespace {

// As it could stand in the file.
std::string flow(const json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const bool plain = !text.empty() && text.find_first_of(",:{}[]\"'#\n") == std::string::npos && text.front() != ' ' && text.back() != ' ';
    return plain ? text : value.dump();
  }
  std::string out;
  if (value.is_array()) {
    for (const auto& item : value) out += (out.empty() ? "" : ", ") + flow(item);
    return "[" + out + "]";
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) out += (out.empty() ? "" : ", ") + key + ": " + flow(item);
    return "{" + out + "}";
  }
  return value.dump();
}

// Keys in the order of the reference.
std::string words_of(const json& body, const std::string& operation) {
  std::string out;
  for (const auto& op : catalogue::ops()) {
    if (op.name != operation) continue;
    for (const auto& field : op.actual.fields) {
      if (body.contains(field.key)) out += (out.empty() ? "" : ", ") + field.key + ": " + flow(body[field.key]);
    }
  }
  return out;
}

// The merge patch that makes `to` of `from`.
json difference(const json& from, const json& to) {
  json out = json::object();
  for (const auto& [key, value] : to.items()) {
    const auto old = from.find(key);
    if (old == from.end()) out[key] = value;
    else if (*old != value && value.is_object() && old->is_object()) out[key] = difference(*old, value);
    else if (*old != value && value.is_object() && old->is_string()) out[key] = difference({{"of", *old}}, value);  // a view, where only the memory was named
    else if (*old != value) out[key] = value;
  }
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) out[key] = nullptr;
  }
  return out;
}

std::string memory_words(const script::Memory& memory) {
  std::string out = memory.side + (memory.rank ? fmt::format(" rank {}", memory.rank) : "");
  const auto& view = memory.view;
  if (!view.of.empty()) out += ", bytes of " + view.of + (view.offset ? fmt::format(" + {}", view.offset) : "");
  if (!view.layout.empty()) out += ": " + view.layout;
  else if (!view.text.empty()) out += ": " + view.text;
  else if (!view.planes.empty()) out += ": planes written out";
  if (view.cache.empty()) return out + fmt::format(", {} bytes", report::thousands(memory.bytes));
  const auto cache = layout::cache_from_text(view.cache);
  for (std::size_t i = 0; i < cache.allocations.size() && i < 3; ++i) {
    out += fmt::format("{}{} {}", i ? ", " : "; ", cache.allocations[i].name, report::thousands(cache.allocations[i].bytes));
  }
  if (cache.allocations.size() > 3) out += fmt::format(", and {} more", cache.allocations.size() - 3);
  return out + " bytes" + (memory.pool ? ", in one pool" : "") + (memory.sparse ? ", sparse" : "");
}

}  // namespace

std::vector<std::string> script_lines(const script::Script& script) {
  std::vector<std::string> lines;
  for (const auto& [name, memory] : script.memories) lines.push_back(fmt::format("memory    {}: {}", name, memory_words(memory)));
  for (const auto& [name, request] : script.requests) {
    std::string line = fmt::format("request   {}: {} tokens, generation {}", name, request.tokens, request.generation);
    for (const auto& [memory, ids] : request.blocks) line += fmt::format(", {} [{}]", memory, fmt::join(ids, " "));
    lines.push_back(std::move(line));
  }
  lines.emplace_back("steps");
  std::size_t widest = 0;
  for (const auto& step : script.steps) widest = std::max(widest, step.name.size());
  const json document = catalogue::script_document(script);
  for (std::size_t i = 0; i < script.steps.size(); ++i) {
    const auto& step = script.steps[i];
    json body = document["steps"][i].begin().value();
    const json actual = body.value("actually", json());
    body.erase("actually"), body.erase("name");
    const std::string words = words_of(body, step.intended.op);
    lines.push_back(fmt::format("  {:<{}}  {}{}{}", step.name, widest, step.intended.op, words.empty() ? "" : " ", words));
    if (step.as_intended) continue;
    if (!actual.is_array()) {
      lines.push_back(fmt::format("  {:<{}}  actually: skipped", "", widest));
      continue;
    }
    for (const auto& item : actual) {
      const std::string& op = item.begin().key();
      const bool same = op == step.intended.op;
      const json shown = same ? difference(body, item.begin().value()) : item.begin().value();
      lines.push_back(fmt::format("  {:<{}}  actually: {}", "", widest, same ? (shown.empty() ? "as intended" : words_of(shown, op)) : op + " " + words_of(shown, op)));
    }
  }
  return lines;
}

}  // namespace kvcts::cli
