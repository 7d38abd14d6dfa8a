// Case documents as people write them: flow mappings in reference order, and of an actual step only what differs from the
// intended one.
#pragma once

#include <string>

#include "case/catalogue/fields.hpp"

namespace kvcts::catalogue {

/// A value as YAML in flow style: {tokens: 8, blocks: {P: [4, 1]}}.
std::string flow(const json& value);
/// The keys of an operation's body in reference order, without the braces: "request: A, from: P, to: C".
std::string step_yaml(const json& body, const std::string& operation);
/// The merge patch that turns `from` into `to`.
json difference(const json& from, const json& to);

/// A document of to_document() (case_file.hpp) as text: one line per memory, request, step and control. Reads back as the
/// same document.
std::string readable_yaml(const json& document);

}  // namespace kvcts::catalogue
