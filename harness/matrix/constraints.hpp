// Which points cannot run, and why: the constraints of the catalogue and the limits that layouts and backends declare. A constrained
// point is listed with its reason, never dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "case/outcome.hpp"
#include "matrix/expr.hpp"

namespace kvcts::matrix {

/// What is known of a case before it runs. UNSUPPORTED and NOT_RUN: it is not run. REFUSED: it is run, and must refuse.
struct Declared {
  Outcome outcome{Outcome::unsupported};
  std::string constraint;  ///< id of the constraint, "layout", "backend" or "budget"
  std::string reason;      ///< one sentence
  bool operator==(const Declared&) const = default;
};

class Constraints {
 public:
  /// Compiles every constraint of the catalogue. Throws Error "file: ...: column ...".
  explicit Constraints(Space& space);

  /// 0 = free; otherwise a number for declared(). UNSUPPORTED wins over REFUSED; then order of ids.
  int check(const Point& point);
  Declared declared(const Point& point, int number) const;
  bool refuses(int number) const;  ///< REFUSED (it runs), not UNSUPPORTED
  /// Bit per axis: any rule that looks only at these axes can be decided from them.
  struct Rule {
    std::string name;
    std::uint32_t support{0};
  };
  /// All rules, in the order of checking; rule i is checked by violates(i, point).
  const std::vector<Rule>& rules() const { return rules_; }
  bool violates(std::size_t rule, const Point& point);

 private:
  struct Compiled {
    const catalogue::ConstraintEntry* entry;
    Expression when;
  };
  enum class Limit : std::uint8_t { producer_layout, consumer_layout, producer_backend, consumer_backend };
  static constexpr std::size_t limit_count = 4;

  std::string limit_reason(Limit limit, const Point& point) const;  ///< "" = within
  bool over_limit(Limit limit, const Point& point);
  std::string fill_in(const std::string& reason, const Point& point) const;

  Space& space_;
  std::vector<Compiled> compiled_;  ///< UNSUPPORTED first
  std::vector<Rule> rules_;         ///< limits, then compiled_
  std::unordered_map<std::uint64_t, bool> memo_[limit_count];
};

}  // namespace kvcts::matrix
