// A case that ran more than once: how often it did not end as expected, and what that says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "case/outcome.hpp"

namespace kvcts {

/// One try that did not end as expected.
struct Try {
  std::int64_t number{0};  ///< from 1
  Outcome outcome{Outcome::fail};
  std::optional<Phase> phase;
  FaultClass fault_class{};
  std::string message;
  std::int64_t wall_ns{0};
};

struct Tries {
  std::int64_t made{0};       ///< 0: run once, without --repeat and --retry-failures
  std::int64_t failed{0};     ///< of `made`
  std::int64_t retries{0};    ///< of `made`: those made only because the first one failed
  std::vector<Try> failures;  ///< the first try_limit
};
inline constexpr std::size_t try_limit = 20;

/// Wilson's score interval of a rate seen `failed` times in `made`, at 95 % (Wilson 1927, JASA 22:209). made = 0: 0 to 1.
struct Rate {
  double low{0}, high{1};
};
Rate wilson(std::int64_t failed, std::int64_t made);

/// What the tries say about the failure rate, without the try that caused the others: its failure selected it.
Rate rate_of(const Tries& tries);
/// How many tries see such a failure with 95 % probability, if its rate is the one seen; from 1 to 1000. 1 for a case that
/// always fails.
std::int64_t tries_to_see(const Tries& tries);

}  // namespace kvcts
