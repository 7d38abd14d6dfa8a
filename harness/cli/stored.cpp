#include "cli/stored.hpp"

#include <fmt/format.h>

namespace kvcts::cli {

std::optional<store::Row> stored_case(const std::string& directory, const std::string& id) {
  if (directory.empty()) return std::nullopt;
  auto row = opening([&] { return store::RunReader::open(directory).find(id); });
  if (!row) throw UsageError(fmt::format("the run in {} has no case '{}'", directory, id));
  return row;
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
