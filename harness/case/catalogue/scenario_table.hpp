// The language of scripted cases: memory, requests, steps. Each operation has two tables: as intended, and as it happened,
// where a step may also say when it executes. Semantics: case_reference.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "case/catalogue/fields.hpp"
#include "case/scenario.hpp"

namespace kvcts::catalogue {

/// The largest number of blocks, tokens or ids that a file may write.
constexpr std::int64_t many = std::int64_t{1} << 40;

const Table<scenario::Arithmetic>& arithmetic_table();
const Table<scenario::View>& view_table();
const Table<scenario::Memory>& memory_table();
const Table<scenario::ScenarioRequest>& scenario_request_table();
/// layers, kv, tokens, heads, channels: keys of steps that select a part (with the prefix to_: where it goes).
const Table<scenario::StepSelection>& picks_table();

/// The operations of steps.
struct Op {
  std::string name, doc;
  Table<scenario::Action> intended, actual;
};
const std::vector<Op>& ops();

/// The keys memory, requests and steps together.
const Table<scenario::Scenario>& scenario_table();
/// Definitions that the JSON Schemas of these tables refer to as #/$defs/<name>.
json scenario_definitions();

/// Rules that need the whole scenario: every name that a step uses exists. `document`: the mapping with the key steps.
void check_scenario(const scenario::Scenario& scenario, const Node& document);

/// The steps of `document` with patches by step name (a merge patch on its body, or null to remove the step); everything
/// else unchanged. `changes`: the mapping under the key `steps` of a control.
Node patch_steps(const Node& document, const Node& changes);
/// The steps of `document` without `actually`: the code without its fault.
Node as_intended(const Node& document);

/// One scenario: a document with the keys memory, requests and steps. Throws Error.
scenario::Scenario scenario_from_yaml(std::string_view text, const std::string& name = "(text)");
/// The same value as a document, without keys at their default.
json scenario_document(const scenario::Scenario& scenario);

}  // namespace kvcts::catalogue
