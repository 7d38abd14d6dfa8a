#include "cli/stored.hpp"

#include <fmt/format.h>

namespace kvcts::cli {

std::optional<store::Row> stored_case(const std::string& directory, const std::string& id) {
  if (directory.empty()) return std::nullopt;
  auto row = opening([&] { return store::RunReader::open(directory).find(id); });
  if (!row) throw UsageError(fmt::format("the run in {} has no case '{}'", directory, id));
  return row;
}

}  // namespace kvcts::cli
