// What kind of evidence a result is, from what its engine says of the path that the bytes took.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "case/outcome.hpp"

namespace kvcts {

/// `path`: the engine's facts (null where it never got so far). Executed only where a device moved the bytes, and the case asks for that
/// device's architecture or for none ("cpu"); anything else is modelled.
inline Evidence evidence_of(const nlohmann::json& path, const std::string& arch) {
  if (!path.is_object() || path.value("device_evidence", "") != "executed") return Evidence::modelled;
  return arch == "cpu" || path.value("arch", "") == arch ? Evidence::executed : Evidence::modelled;
}

}  // namespace kvcts
