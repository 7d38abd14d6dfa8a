#include "case/catalogue/schema.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/certification.hpp"
#include "case/catalogue/fault_injector.hpp"
#include "case/catalogue/rule_table.hpp"
#include "case/catalogue/scenario_table.hpp"
#include "case/catalogue/tables.hpp"

namespace kvcts::catalogue {

std::string_view case_reference();  // case_reference.md, embedded by the build

namespace {

template <class T>
Kind kind(std::string name, std::string folder, const Table<T>& (*table)()) {
  Kind out;
  out.schema = [name, table] {
    json whole = schema(table());
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    whole["title"] = name;
    return whole;
  };
  out.rows = [table] { return doc_rows(table()); };
  out.read = [table](const Node& node) { read(table(), node); };
  out.name = std::move(name);
  out.folder = std::move(folder);
  return out;
}

// The rows of a step, its picks as one.
std::vector<DocRow> step_rows(const Table<scenario::Action>& table) {
  std::vector<DocRow> out;
  const auto keys = [](const std::string& prefix) {
    std::string all;
    for (const auto& field : picks_table().fields) all += (all.empty() ? "" : "`, `") + prefix + field.key;
    return all;
  };
  const auto names = keys_of(picks_table()), own = keys_of(table);
  const bool picks = std::find(own.begin(), own.end(), names.front()) != own.end();
  for (const auto& row : doc_rows(table)) {
    const bool placed = row.key.starts_with("to_");
    if (!picks || std::find(names.begin(), names.end(), placed ? row.key.substr(3) : row.key) == names.end()) {
      out.push_back(row);
    } else if (row.key.ends_with(names.front())) {
      out.push_back({keys(placed ? "to_" : ""), "picks", "",
                     placed ? "where each of those goes, as many; default to itself" : "what it takes; default all"});
    }
  }
  return out;
}

Kind case_kind() {
  Kind out = kind("case", "seeds readers crash faults field museum engine-faults", case_table);
  out.schema = [plain = out.schema] {
    json whole = plain();
    whole["anyOf"] =
        json::array({json{{"required", json::array({"producer"})}}, json{{"required", json::array({"memory", "steps"})}}});
    whole["$defs"] = scenario_definitions();
    return whole;
  };
  out.sections = [] {
    std::vector<Section> all{{"memory", "scripted cases: what lies where", doc_rows(memory_table())},
                             {"requests", "scripted cases: tokens and their blocks", doc_rows(scenario_request_table())},
                             {"views", "what `from` and `to` take instead of the name of a memory", doc_rows(view_table())},
                             {"arithmetic", "of a view", doc_rows(arithmetic_table())},
                             {"picks", "of steps that take part of something", doc_rows(picks_table())}};
    for (const Op& op : ops()) all.push_back({"step " + op.name, op.doc, step_rows(op.intended)});
    for (const Op& op : ops()) {
      if (op.name != "move") continue;  // has them all
      const auto rows = doc_rows(op.actual);
      all.push_back({"actually",
                     "keys of steps, only in what they actually did",
                     {rows.begin() + static_cast<std::ptrdiff_t>(op.intended.fields.size()), rows.end()}});
    }
    return all;
  };
  return out;
}

// A '|' would end the cell.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      case_kind(),
      kind("layout", "layouts", layout_table),
      kind("dtype", "dtypes", dtype_table),
      kind("geometry", "geometries", geometry_table),
      kind("backend", "backends", backend_table),
      kind("arch", "archs", arch_table),
      kind("connector", "connectors", connector_table),
      kind("engine", "engines", engine_table),
      kind("constraint", "constraints", constraint_table),
      kind("suite", "suites", suite_table),
      kind("waiver", "waivers", waiver_table),
      kind("rule", "rules", rule_table),
      kind("claim", "claims", claim_table),
      kind("saboteur", "saboteurs", fault_injector_table),
      kind("profile", "profiles", profile_table),
      kind("product", "", product_table),
  };
  return all;
}

std::string schema_text(const Kind& kind) { return kind.schema().dump(2) + "\n"; }

std::string table_text(const std::vector<DocRow>& rows) {
  std::string out = "| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const auto& row : rows) {
    out += "| `" + row.key + "` | " + cell(row.type) + " | " + (row.fallback.empty() ? "" : cell(row.fallback)) + " | " +
           cell(row.doc) + " |\n";
  }
  return out;
}

std::string reference_text(const Kind& kind) {
  if (!kind.sections) return table_text(kind.rows());
  // {{table NAME}} is replaced by the section's table.
  std::map<std::string, std::string> tables{{kind.name, table_text(kind.rows())}};
  for (const auto& section : kind.sections()) tables[section.title] = table_text(section.rows);
  constexpr std::string_view opening = "{{table ", closing = "}}\n";
  std::string out;
  std::string_view rest = case_reference();
  for (std::size_t at = rest.find(opening); at != std::string_view::npos; at = rest.find(opening)) {
    const std::size_t end = rest.find(closing, at), name = at + opening.size();
    out.append(rest.substr(0, at)).append(tables.at(std::string(rest.substr(name, end - name))));
    rest.remove_prefix(end + closing.size());
  }
  return out.append(rest);
}

}  // namespace kvcts::catalogue
