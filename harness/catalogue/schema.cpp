#include "catalogue/schema.hpp"

#include "catalogue/case_file.hpp"
#include "catalogue/tables.hpp"

namespace kvcts::catalogue {

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

// A '|' would end the cell.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      kind("case", "seeds crash", case_table),
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
  };
  return all;
}

std::string schema_text(const Kind& kind) { return kind.schema().dump(2) + "\n"; }

std::string reference_text(const Kind& kind) {
  std::string out = "| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const auto& row : kind.rows()) {
    out += "| `" + row.key + "` | " + cell(row.type) + " | " + (row.fallback.empty() ? "" : cell(row.fallback)) + " | " + cell(row.doc) + " |\n";
  }
  return out;
}

}  // namespace kvcts::catalogue
