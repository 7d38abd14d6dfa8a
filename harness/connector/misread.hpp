// What a wrong connector, planner or reader believes: its view, changed in one of the ways listed in a table. The suite's
// own connector then plans from it, so a misreading is data: {fault: NAME, side: producer|consumer, ...} under the option
// `sabotage` of a connector or a reader (cases/saboteurs/). misread.cpp has the rows and their keys.
#pragma once

#include <string>
#include <vector>

#include "connector/connector.hpp"

namespace kvcts::connector {

/// Changes claims, geometry and requests of every group. A row with nothing to misread in this case leaves the view
/// unchanged. Throws std::runtime_error on an unknown fault or key.
void misread(ResolvedCase& view, const nlohmann::json& sabotage);

/// Names of the rows.
std::vector<std::string> misreadings();

/// Plans as the inner connector does, from the misread view.
class Misreading final : public Connector {
 public:
  Misreading(std::unique_ptr<Connector> inside, nlohmann::json sabotage)
      : inside_(std::move(inside)), sabotage_(std::move(sabotage)) {}
  void register_caches(const ResolvedCase& view, Side side) override { inside_->register_caches(view, side); }
  Plan plan(const ResolvedCase& view, process::Progress progress) override;

 private:
  std::unique_ptr<Connector> inside_;
  nlohmann::json sabotage_;
};

}  // namespace kvcts::connector
