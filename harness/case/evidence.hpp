// What kind of evidence a result is: from what the suite itself saw, never from an engine's word.
#pragma once

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "case/outcome.hpp"

namespace kvcts {

/// `claims`: what the engine says about itself (null if it never got that far). `devices`: architectures of the devices that
/// the suite itself found and that this engine may use, queried only if the engine claims one; {}: none. Executed only if
/// both name one device, and the case requires that device's architecture or none ("cpu"); anything else is modelled.
inline Evidence evidence_of(const nlohmann::json& claims, const std::string& arch,
                            const std::function<std::vector<std::string>()>& devices) {
  const auto text = [&](const char* key) {
    const auto at = claims.is_object() ? claims.find(key) : claims.end();
    return at != claims.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const std::string on = text("arch");
  if (text("device_evidence") != "executed" || (arch != "cpu" && arch != on) || !devices) return Evidence::modelled;
  const std::vector<std::string> found = devices();
  return std::find(found.begin(), found.end(), on) != found.end() ? Evidence::executed : Evidence::modelled;
}

}  // namespace kvcts
