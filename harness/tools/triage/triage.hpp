// What do the failing cases have in common that no passing case has? Finds the smallest conjunction of axis values
// and catalogue facts, as an expression for `kvcts run --where`, and cases that could refute it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "matrix/constraints.hpp"
#include "matrix/expr.hpp"

namespace kvcts::triage {

/// A case that ran: its known facts (facts["axes"] of its result), and whether it failed in the way in question.
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
  std::vector<Rule> as_good;          ///< equally short rules that explain the same; at most ten
  std::vector<std::string> failures;  ///< ids that it explains
  std::vector<std::string> against;   ///< passing ids that it holds for: counter-examples
};

struct Finding {
  std::vector<Explanation> parts;        ///< one, or several that share the failures (any of them: ||), largest first
  std::vector<std::string> unexplained;  ///< ids of failures that nothing distinguishes from passing cases
  std::int64_t failures{0}, passes{0};
};

/// Fewest literals first, then the plainest (an axis's value before a fact, a fact before a relation). Deterministic.
Finding explain(const std::vector<Observation>& observations, matrix::Space& space);

/// A point that did not run, and what the rule predicts for it.
struct Refuter {
  std::string id;
  bool fails{false};
  std::string why;  ///< "not dtype == fp8_e4m3", "elsewhere: engine shm"
};

/// Points next to the failures that would refute the rule if they ended differently: one literal does not hold (must
/// pass), or something else differs (must fail). Those on which equally good rules disagree come first. At most
/// `most`, and only points accepted by `runs`.
std::vector<Refuter> refuters(
    const Explanation& explanation, const std::vector<Observation>& observations, matrix::Space& space,
    matrix::Constraints& constraints, std::size_t most,
    const std::function<bool(const std::string& id)>& runs = [](const std::string&) { return true; });

/// With `held` tries and no counter-example: the minimum share of such cases that follow the rule, with 95 %
/// confidence (the exact binomial bound, 0.05^(1/n)).
double lower_bound(std::size_t held);

}  // namespace kvcts::triage
