// The detection matrix, for a terminal and as JSON.
#pragma once

#include <string>
#include <vector>

#include "tools/sabotage/campaign.hpp"

namespace kvcts::sabotage {

/// What ran: a suite, or its cases behind another engine.
struct Campaigned {
  std::string name;
  std::vector<CampaignRow> rows;
};

/// "smoke: 71 of 71 fault injectors caught, 71 named (100.0 %); 0 false alarms of 3 controls"
std::string totals_text(const Campaigned& campaign);

std::string matrix_text(const Campaigned& campaign);
nlohmann::json matrix_json(const Campaigned& campaign);

}  // namespace kvcts::sabotage
