// What do the cases that fail have in common, and none of those that pass? The smallest conjunction of axis values and facts
// of the catalogue that says so, as an expression that `kvcts run --where` takes, and the cases that would prove it wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "matrix/constraints.hpp"
#include "matrix/expr.hpp"

namespace kvcts::triage {

/// A case that ran: what is known of it (facts["axes"] of its result), and whether it failed in the way that is asked about.
struct Observation {
  std::string id;
  nlohmann::json axes;
  bool fails{false};
};

struct Rule {
  std::vector<std::string> literals;  ///< "dtype == fp8_e4m3", "consumer.hnd", "geometry.head_dim % 32 != 0"
  std::string expression() const;     ///< joined by &&
};

struct Explanation {
  Rule rule;
  std::vector<Rule> as_good;          ///< of as many literals, explaining the same; at most ten
  std::vector<std::string> failures;  ///< ids that it explains
  std::vector<std::string> against;   ///< ids that it holds for and that pass: counter-examples
};

struct Finding {
  std::vector<Explanation>
      parts;  ///< one, or several that share the failures between them (any of them: ||), the largest first
  std::vector<std::string> unexplained;  ///< ids of failures that nothing tells from cases that pass
  std::int64_t failures{0}, passes{0};
};

/// The fewest literals first, then the plainest (an axis' value before a fact, a fact before a relation). Deterministic.
Finding explain(const std::vector<Observation>& observations, matrix::Space& space);

/// A point that was not run, and what the rule says of it.
struct Refuter {
  std::string id;
  bool fails{false};
  std::string why;  ///< "not dtype == fp8_e4m3", "elsewhere: engine shm"
};

/// Points beside those that failed, which would prove the rule wrong if they ended otherwise: one literal does not hold
/// (must pass), or something else differs (must fail). Those about which equally good rules disagree come first. At most
/// `most`, of those that `runs` takes.
std::vector<Refuter> refuters(
    const Explanation& explanation, const std::vector<Observation>& observations, matrix::Space& space,
    matrix::Constraints& constraints, std::size_t most,
    const std::function<bool(const std::string& id)>& runs = [](const std::string&) { return true; });

/// With `held` tries and none against: at least this share of such cases is as the rule says, with 95 % confidence (the
/// exact binomial bound, 0.05^(1/n)).
double lower_bound(std::size_t held);

}  // namespace kvcts::triage
