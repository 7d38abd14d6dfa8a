// The detection matrix in words: for a terminal, as JSON, and as the page reports/sabotage.md.
#pragma once

#include <string>
#include <vector>

#include "tools/sabotage/campaign.hpp"

namespace kvcts::sabotage {

/// What was run: a suite, or a suite's cases with the fill and the checks of another harness.
struct Campaigned {
  std::string name;
  std::vector<Row> rows;
};

/// "smoke: 71 of 71 saboteurs caught, 71 named (100.0 %); 0 false alarms of 3 controls"
std::string totals_text(const Campaigned& campaign);

std::string matrix_text(const Campaigned& campaign);
nlohmann::json matrix_json(const Campaigned& campaign);

/// The same saboteurs, ours beside the others'; saboteurs that have no place there are left out.
std::string harnesses_text(const std::vector<Campaigned>& harnesses);
nlohmann::json harnesses_json(const std::vector<Campaigned>& harnesses);

/// Rows of the page's first table.
std::string page_rows(const Campaigned& campaign);
/// The row of one engine (`behind.name`) in the page's table of released engines. `plain`: the same saboteurs with the cases' engines.
std::string behind_row(const Campaigned& plain, const Campaigned& behind);
/// The page's section about released engines: such a row each, then every saboteur side by side.
std::string behind_section(const Campaigned& plain, const std::vector<Campaigned>& behind);
/// `suites`: the first one's rows are shown. `harnesses`: as above. `behind`: released engines.
std::string page(const std::vector<Campaigned>& suites, const std::vector<Campaigned>& harnesses,
                 const std::vector<Campaigned>& behind);

}  // namespace kvcts::sabotage
