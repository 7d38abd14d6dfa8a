// The one case of a verb: an id, or a case file with one case.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/run/plan.hpp"

namespace kvcts::cli {

struct OneCase {
  std::string id, file;  ///< as given; after choose(): the id of the case, and the file or ""
  std::optional<std::uint64_t> seed;
  std::unique_ptr<Plan> plan;
  std::size_t item{0};  ///< of the plan

  const Item& chosen() const { return plan->items()[item]; }
  CaseSpec spec() const;
};

/// `subject`: an id, or the name of a YAML file. Throws UsageError when that is no case, or several.
OneCase choose(const catalogue::Catalogue& catalogue, const std::string& verb, const std::string& subject,
               const std::string& file, std::optional<std::uint64_t> seed);

}  // namespace kvcts::cli
