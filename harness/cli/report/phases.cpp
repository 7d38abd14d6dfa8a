#include "cli/report/phases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/report/text.hpp"

namespace kvcts::report {

namespace {

constexpr std::array detecting{Phase::generate, Phase::compare, Phase::diagnose};

double share(std::int64_t part, std::int64_t all) {
  return all > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(all) : 0.0;
}

}  // namespace

std::int64_t PhaseShares::all() const { return std::accumulate(ns.begin(), ns.end(), other_ns); }

double PhaseShares::detection() const {
  std::int64_t part = 0;
  for (const Phase phase : detecting) part += ns[static_cast<std::size_t>(phase)];
  return share(part, all()) / 100;
}

PhaseShares phase_shares(const store::RunReader& reader) {
  PhaseShares out;
  for (const auto& session : reader.sessions()) out.run_ns += (session.ended_ms - session.started_ms) * 1'000'000;
  reader.for_each([&](const store::Row& row) {
    if (!row.decided || row.executions == 0 || row.result.outcome != Outcome::pass) return;
    ++out.executions;
    std::int64_t in_phases = 0;
    for (const PhaseTime& time : row.result.phases)
      out.ns[static_cast<std::size_t>(time.phase)] += time.ns, in_phases += time.ns;
    out.other_ns += std::max<std::int64_t>(0, row.result.wall_ns - in_phases);
  });
  return out;
}

std::string phases_text(const PhaseShares& shares) {
  std::string out = fmt::format("{} passed, {} in cases, {} in all\n", plural(shares.executions, "execution"),
                                duration(shares.all()), duration(shares.run_ns));
  for (int p = 0; p < phase_count; ++p) {
    const std::int64_t ns = shares.ns[static_cast<std::size_t>(p)];
    out += fmt::format("  {:<10} {:>9}  {:>5.1f} %\n", name(static_cast<Phase>(p)), duration(ns), share(ns, shares.all()));
  }
  out += fmt::format("  {:<10} {:>9}  {:>5.1f} %\n", "between", duration(shares.other_ns),
                     share(shares.other_ns, shares.all()));
  return out + fmt::format("identity and diagnosis (generate, compare, diagnose): {:.1f} % of the time in cases\n",
                           100 * shares.detection());
}

}  // namespace kvcts::report
