#include "connector/explicit.hpp"

namespace kvcts::connector {

Plan Explicit::plan(const ResolvedCase& view, process::Progress progress) {
  Plan plan;
  plan.copies = view.copies;
  plan.note = "copies as the case lists them";
  progress.set(plan.copies.size(), plan.copies.size());
  return plan;
}

Plan None::plan(const ResolvedCase&, process::Progress) { return {{}, false, "this case moves nothing"}; }

}  // namespace kvcts::connector
