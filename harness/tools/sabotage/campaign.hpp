// Suite x fault injectors: every fault injector replaces real code in cases of the suite, until a case notices.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "case/result.hpp"
#include "matrix/select.hpp"
#include "tools/sabotage/fault_injectors.hpp"

namespace kvcts::sabotage {

/// How a case noticed.
struct Catch {
  std::string id;                   ///< of the case
  std::string suite;                ///< smallest suite that has the case
  std::vector<std::string> checks;  ///< bytes, guard, padding, source, count, late write, reader, outcome
  CaseResult result;
  bool named{false};  ///< the diagnosis explains every byte and has the right class
};

struct CampaignRow {
  FaultInjector injector;
  std::optional<Catch> caught;
  std::size_t tried{0};    ///< cases run against it; 0: no case of the suite has a place for it
  std::size_t silent{0};   ///< of those, cases that could not run
  std::string why_silent;  ///< reason for the first of them
  bool skipped() const { return tried > 0 && silent == tried; }
};

struct CampaignOptions {
  int jobs{1};
  std::string
      behind;  ///< "" = the case's engine; else the engine that replaces it, with fault injectors of engines in front
  std::function<void(const std::string&)> log;
};

/// Runs the cases of the selection in its order, those that a fault injector marks as likely first. Excludes cases that do
/// not PASS with correct code. Throws catalogue::Error for a malformed expression.
std::vector<CampaignRow> run_campaign(const catalogue::Catalogue& catalogue, const matrix::Selection& selection,
                                      const std::vector<FaultInjector>& injectors, const CampaignOptions& options);

struct Totals {
  std::size_t injectors{0}, caught{0}, named{0};  ///< excluding the controls
  std::size_t skipped{0};                         ///< fault injectors that cannot run here
  std::size_t false_alarms{0};                    ///< controls that were caught
  bool good() const {
    const std::size_t ran = injectors - skipped;
    return ran > 0 && caught == ran && named * 100 >= ran * 95 && false_alarms == 0;
  }
};
Totals totals_of(const std::vector<CampaignRow>& rows);

}  // namespace kvcts::sabotage
