// kvcts schema: the keys of a kind of file, as JSON Schema or as a Markdown reference. Both come from the tables that parse the files.
#include <fmt/format.h>

#include <functional>
#include <memory>

#include "catalogue/case_file.hpp"
#include "catalogue/nearest.hpp"
#include "catalogue/tables.hpp"
#include "cli/verbs/verbs.hpp"
#include "matrix/axes.hpp"

namespace kvcts::cli {
namespace {

struct Kind {
  std::string name, folder;
  std::function<nlohmann::json()> schema;
  std::function<std::vector<catalogue::DocRow>()> rows;
};

template <class T>
Kind kind(std::string name, std::string folder, const catalogue::Table<T>& (*table)()) {
  return {std::move(name), std::move(folder), [table] { return catalogue::schema(table()); }, [table] { return catalogue::doc_rows(table()); }};
}

const std::vector<Kind>& kinds() {
  using namespace catalogue;
  static const std::vector<Kind> all{
      kind("case", "seeds, crash and any file for --file", case_table), kind("layout", "layouts", layout_table), kind("dtype", "dtypes", dtype_table),
      kind("geometry", "geometries", geometry_table), kind("backend", "backends", backend_table), kind("arch", "archs", arch_table),
      kind("connector", "connectors", connector_table), kind("engine", "engines", engine_table), kind("constraint", "constraints", constraint_table),
      kind("suite", "suites", suite_table), kind("waiver", "waivers", waiver_table),
  };
  return all;
}

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

int show(const std::string& wanted, bool reference, const Globals& globals) {
  if (wanted.empty()) {
    if (globals.json) {
      nlohmann::json names = nlohmann::json::array();
      for (const Kind& k : kinds()) names.push_back(k.name);
      fmt::print("{}\n", names.dump());
    } else {
      for (const Kind& k : kinds()) fmt::print("{:<11} cases/: {}\n", k.name, k.folder);
      fmt::print("{:<11} what varies between cases, in the order of their ids\n", "axes");
    }
    return exit_as_expected;
  }
  if (wanted == "axes") {
    fmt::print("{}", matrix::axes_reference());
    return exit_as_expected;
  }
  for (const Kind& k : kinds()) {
    if (k.name != wanted) continue;
    if (!reference || globals.json) {
      nlohmann::json schema = k.schema();
      schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
      schema["title"] = k.name;
      fmt::print("{}\n", schema.dump(2));
      return exit_as_expected;
    }
    fmt::print("| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
    for (const auto& row : k.rows()) fmt::print("| {} | {} | {} | {} |\n", row.key, cell(row.type), cell(row.fallback), cell(row.doc));
    return exit_as_expected;
  }
  std::vector<std::string> names;
  for (const Kind& k : kinds()) names.push_back(k.name);
  throw UsageError(fmt::format("expected a kind of file, found '{}'{}", wanted, catalogue::suggestion(wanted, names)));
}

}  // namespace

Action declare_schema(CLI::App& app, const Globals& globals) {
  auto wanted = std::make_shared<std::string>();
  auto reference = std::make_shared<bool>(false);
  app.add_option("KIND", *wanted, "case, layout, dtype, geometry, backend, arch, connector, engine, constraint, suite, waiver; or axes");
  app.add_flag("--reference", *reference, "A Markdown table of the keys instead of the JSON Schema");
  return [=, &globals] { return show(*wanted, *reference, globals); };
}

}  // namespace kvcts::cli
