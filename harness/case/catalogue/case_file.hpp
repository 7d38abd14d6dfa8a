// Hand-written cases: YAML -> CaseSpec. case_table.cpp has the keys and their defaults; controls become separate cases.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/fields.hpp"
#include "case/spec.hpp"

namespace kvcts::catalogue {

const Table<CaseSpec>& case_table();

/// The cases of one text: each document, followed by its controls as "id#name". With a catalogue, the names it uses (arch,
/// dtype, geometry, layouts, connector, engine) must exist. Throws Error "file:line: expected ..., found ...; ...".
std::vector<CaseSpec> parse_cases(std::string_view text, const std::string& name, const Catalogue* catalogue = nullptr);
/// The same for a file; errors and `declared_by` call it `shown` (default: the path). Ids must be unique in the file.
std::vector<CaseSpec> read_case_file(const std::filesystem::path& path, const std::string& shown = "",
                                     const Catalogue* catalogue = nullptr);
/// Writes a case back as a document: parse_cases(to_yaml(c)) gives the same case. Omits keys at their default.
std::string to_yaml(const CaseSpec& spec);
json to_document(const CaseSpec& spec);

}  // namespace kvcts::catalogue
