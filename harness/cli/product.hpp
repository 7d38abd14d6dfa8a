// What is under test and no file of cases/ names: a transport's product file, its plug-in alone, a connector's class.
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

/// A class of Python's that a suite is for: --connector and --store.
struct Subject {
  const char *option, *variable, *suite, *what;
};
inline constexpr Subject connector_subject{"--connector", "KVCTS_CONNECTOR", "contract",
                                           "Test this class of vLLM's connector interface"};
inline constexpr Subject store_subject{"--store", "KVCTS_STORE", "store", "Test this class, a key-value store of pages"};

void declare_subject(Command& command, const Subject& subject, std::string& text);
/// [FOLDER:]MODULE:CLASS, for this process and for the lines that it prints (the subject's variable). FOLDER: where Python
/// finds the module; default: this one. Throws UsageError on anything else.
void take_subject(const Subject& subject, const std::string& text);

/// What $KVCTS_PRODUCT adds to the case data: of a product file, engine and waivers; of a plug-in, an engine made of what
/// it says of itself, and plugin_suite; nothing when it is unset. Throws UsageError on a plug-in that does not answer.
catalogue::Additions additions_here(const std::string& cases);

/// {file} -> {name, version, processes}: a question (cli/child_query.hpp).
nlohmann::json describe_plugin(const nlohmann::json& about);

}  // namespace kvcts::cli
