// How to run a case again: a line that a shell accepts as printed, from any folder. The only place that writes such lines.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "case/result.hpp"

namespace kvcts::report {

/// What brings a result back.
struct RepeatOptions {
  std::int64_t tries{1};  ///< more than 1: of a case that does not always fail, see tries_to_see (case/tries.hpp)
  bool as_run{false};     ///< only after what its worker had run before
};
RepeatOptions repeat_options_of(const CaseResult& result);

/// What a session was given beside the ids. Paths are absolute: a report is read in other folders.
struct Repro {
  std::map<std::string, std::string> environment;  ///< variables that decide what runs: KVCTS_ENGINE_PATH and the like
  std::string cases;                               ///< --cases; "" = the catalogue beside the program
  std::vector<std::string> files;                  ///< --file
  std::uint64_t seed{0};                           ///< --seed; 0 = each case's own
  std::string run;                                 ///< folder of the run; "" = none yet. Not stored: a run may be moved

  /// "KVCTS_ENGINE_PATH='/x' kvcts --cases '/y' repro " and " --file '/z.yaml'": a case's line is its id as a shell word
  /// between them.
  std::string before(std::string_view verb = "repro") const;
  std::string after() const;
  std::string line(std::string_view id, const RepeatOptions& again = {}) const;
  /// " --run '/x' --as-run", which ends the line of a case that depends on what its worker had run.
  std::string as_run() const;
  bool operator==(const Repro&) const = default;
};

/// As a run store keeps it. From {} (runs of earlier versions) come empty values.
nlohmann::json to_json(const Repro& repro);
Repro repro_from_json(const nlohmann::json& json);

/// What this process was given: its environment, and the folder of --cases ("" = none).
Repro repro_here(const std::string& cases);

}  // namespace kvcts::report
