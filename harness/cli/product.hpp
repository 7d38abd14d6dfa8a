// The transport under test that no file of cases/ names: a product file, or a plug-in alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "case/catalogue/certification.hpp"
#include "cli/options.hpp"

namespace kvcts::cli {

void declare_engine(Command& command, std::string& file);
/// --engine FILE: a plug-in, for this process and for the lines that it prints ($KVCTS_PRODUCT). Throws UsageError on any
/// other file.
void take_plugin(const std::string& file);
/// The suite of take_plugin(): profile core with that engine.
inline constexpr const char* plugin_suite = "profile-core";

/// What $KVCTS_PRODUCT adds to the case data: of a product file, engine and waivers; of a plug-in, an engine made of what
/// it says of itself, and plugin_suite; nothing when it is unset. Throws UsageError on a plug-in that does not answer.
catalogue::Additions additions_here(const std::string& cases);

/// {file} -> {name, version, processes}: a question (cli/question.hpp).
nlohmann::json describe_plugin(const nlohmann::json& about);

}  // namespace kvcts::cli
