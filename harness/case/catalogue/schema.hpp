// Every kind of YAML file: its JSON Schema and its reference table, both from the field table that parses it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "case/catalogue/fields.hpp"

namespace kvcts::catalogue {

/// Keys of a mapping inside the documents of a kind.
struct Section {
  std::string title, doc;
  std::vector<DocRow> rows;
};

struct Kind {
  std::string name;              ///< "layout"
  std::string folder;            ///< folders of cases/ with files of this kind
  std::function<json()> schema;  ///< with "$schema" and "title"
  std::function<std::vector<DocRow>()> rows;
  std::function<void(const Node&)> read;             ///< parses a document of the kind; throws Error
  std::function<std::vector<Section>()> sections{};  ///< further sections of its reference
};
const std::vector<Kind>& kinds();

/// As printed by `kvcts explain --schema KIND` and installed in share/kvcts/schema.
std::string schema_text(const Kind& kind);
std::string table_text(const std::vector<DocRow>& rows);
/// The rows as a Markdown table; of a case, its whole reference (case_reference.md), with a table for each section.
std::string reference_text(const Kind& kind);

}  // namespace kvcts::catalogue
