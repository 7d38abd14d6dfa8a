#include "cli/trials.hpp"

#include "cli/devices.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {

std::vector<CaseResult> run_until(const std::vector<ResolvedCase>& cases, int jobs,
                                  const std::function<bool(const CaseResult&)>& enough,
                                  const std::optional<supervisor::Look>& look) {
  std::vector<std::optional<CaseResult>> all(cases.size());
  std::size_t in_order = 0;
  bool found = false;
  const supervisor::Jobs queue{cases.size(), [&](std::size_t i) { return cases[i].id; },
                               [&](std::size_t i) { return cases[i]; }};
  supervisor::Options options;
  options.devices = devices_for;
  options.jobs = jobs;
  options.look = look;
  supervisor::Handlers handlers;
  handlers.on_result = [&](std::size_t at, CaseResult&& result) {
    if (result.outcome == Outcome::not_run) return;
    all[at] = std::move(result);
    while (!found && in_order < all.size() && all[in_order]) found = enough(*all[in_order++]);
  };
  handlers.stop = [&] { return found; };
  if (supervisor::run_cases(queue, options, handlers).interrupted) throw supervisor::Interrupted();
  std::vector<CaseResult> out;
  for (std::size_t i = 0; i < in_order; ++i) out.push_back(std::move(*all[i]));
  return out;
}

}  // namespace kvcts::cli
