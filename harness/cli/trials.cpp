#include "cli/trials.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "cli/devices.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {

std::vector<CaseResult> run_until(const std::vector<ResolvedCase>& cases, int jobs, const std::function<bool(const CaseResult&)>& enough,
                                  const std::optional<supervisor::Look>& look) {
  std::vector<std::optional<CaseResult>> all(cases.size());
  std::map<std::string, std::size_t> number;  // the cases may all have one id
  const auto id_of = [&](std::size_t i) { return fmt::format("{}~{}", cases[i].id, i); };
  for (std::size_t i = 0; i < cases.size(); ++i) number[id_of(i)] = i;
  std::size_t in_order = 0;
  bool found = false;
  const supervisor::Jobs queue{cases.size(), id_of, [&](std::size_t i) { return cases[i]; }};
  supervisor::Options options;
  options.devices = devices_for;
  options.jobs = jobs;
  options.look = look;
  supervisor::Handlers handlers;
  handlers.on_result = [&](CaseResult&& result) {
    if (result.outcome == Outcome::not_run) return;
    const std::size_t at = number.at(result.id);
    result.id = cases[at].id;
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
