#include "cli/stored.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace kvcts::cli {

std::optional<store::Row> stored_case(const std::string& directory, const std::string& id) {
  if (directory.empty()) return std::nullopt;
  auto row = opening([&] { return store::RunReader::open(directory).find(id); });
  if (!row) throw UsageError(fmt::format("the run in {} has no case '{}'", directory, id));
  return row;
}

std::vector<std::string> ran_before(const store::RunReader& reader, const store::Row& row) {
  constexpr std::size_t most = 1000;
  std::vector<std::string> chain;
  std::set<std::string> seen{row.planned.id};
  for (std::string id = row.result.ran_before; !id.empty() && chain.size() < most && seen.insert(id).second;) {
    chain.push_back(id);
    const auto before = reader.find(id);
    id = before && before->result.worker == row.result.worker ? before->result.ran_before : "";
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::unique_ptr<catalogue::Catalogue> catalogue_if_any(const Globals& globals, const char* verb) {
  try {
    return std::make_unique<catalogue::Catalogue>(catalogue::find_cases(globals.cases));
  } catch (const catalogue::Error& e) {
    if (!globals.cases.empty()) throw;
    fmt::print(stderr, "kvcts {}: without the case data the page's filter knows axes, but no facts like dtype.family ({})\n",
               verb, e.what());
    return nullptr;
  }
}

}  // namespace kvcts::cli
