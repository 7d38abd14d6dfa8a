// The detection matrix in words: for a terminal, as JSON, and as the page reports/sabotage.md.
#pragma once

#include <string>
#include <vector>

#include "sabotage/campaign.hpp"

namespace kvcts::sabotage {

std::string matrix_text(const std::string& suite, const std::vector<Row>& rows);
nlohmann::json matrix_json(const std::string& suite, const std::vector<Row>& rows);

}  // namespace kvcts::sabotage
