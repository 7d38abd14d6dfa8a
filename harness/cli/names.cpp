#include "cli/names.hpp"

#include <fmt/format.h>

#include "case/catalogue/nearest.hpp"
#include "cli/exit.hpp"

namespace kvcts::cli {

void expect_known(const std::string& expected, const std::vector<std::string>& names,
                  const std::vector<std::string>& known) {
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw UsageError(fmt::format("{}, found '{}'{}", expected, name, catalogue::suggestion(name, known)));
  }
}

}  // namespace kvcts::cli
