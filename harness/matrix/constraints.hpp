// Which points cannot run, and why: the catalogue's constraints and the limits that layouts and backends declare. A
// constrained point is listed with its reason, never dropped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "case/outcome.hpp"
#include "matrix/expr.hpp"
#include "matrix/memo.hpp"

namespace kvcts::matrix {

/// What is known about a case before it runs. UNSUPPORTED and NOT_RUN do not run. REFUSED runs, and must refuse.
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

  /// 0 = free; otherwise a number for declared(). UNSUPPORTED wins over REFUSED; then id order decides.
  int check(const Point& point);
  Declared declared(const Point& point, int number) const;
  /// REFUSED: it runs, and must end in a clean refusal. Otherwise UNSUPPORTED.
  bool refuses(int number) const;
  /// Bit per axis: these axes suffice to decide every rule that reads only them.
  struct Rule {
    std::string name;
    std::uint32_t support{0};
    bool of_consumer{false};  ///< reads the producer only where the consumer is the same
  };
  /// All rules; rule i is checked by violates(i, point).
  const std::vector<Rule>& rules() const { return rules_; }
  bool violates(std::size_t rule, const Point& point);

 private:
  struct Compiled {
    const catalogue::ConstraintEntry* entry;
    Expression when;
  };
  enum class Limit : std::uint8_t { producer_layout, consumer_layout, producer_backend, consumer_backend, golden, planes };
  static constexpr std::size_t limit_count = 6;
  static bool of_consumer(Limit limit) { return limit == Limit::consumer_layout || limit == Limit::consumer_backend; }
  static bool of_backend(Limit limit) { return limit == Limit::producer_backend || limit == Limit::consumer_backend; }

  /// One side of a point: what its layout and backend must hold.
  struct SideAt {
    std::uint16_t side{0};  ///< value of the producer axis, for consumers too
    std::uint16_t geometry{0}, dtype{0}, arch{0};
    std::int64_t block_size{0}, tp{1};
  };
  SideAt side_at(Limit limit, const Point& point) const;
  std::string layout_reason(const SideAt& at_side) const;  ///< "" = it can
  std::string backend_reason(const SideAt& at_side) const;
  std::string golden_reason(const Point& point) const;
  std::string planes_reason(const Point& point) const;
  /// The planes of a side, one line each ("data K channels 0..64 as bf16"), as a number into plane_texts_.
  std::uint32_t planes_of(const SideAt& at_side) const;
  std::string plane_text(const SideAt& at_side) const;
  /// The first line of `want` that `have` lacks, or "".
  static std::string first_missing(const std::string& have, const std::string& want);
  std::string limit_reason(Limit limit, const Point& point) const;
  bool over_limit(Limit limit, const Point& point);
  std::string fill_in(const std::string& reason, const Point& point) const;

  Space& space_;
  std::vector<Compiled> compiled_;  ///< UNSUPPORTED first
  std::vector<Rule> rules_;         ///< limits, then compiled_
  std::vector<std::size_t> order_;  ///< in checking order
  bool any_backend_{false};
  mutable Memo planes_;  ///< side, geometry, dtype -> number
  mutable std::map<std::string, std::uint32_t> plane_numbers_;
  mutable std::vector<std::string> plane_texts_;
  Memo plane_pairs_;  ///< two numbers -> 1 when the first side's rows contain all that the second needs
  /// layout -> dtypes in golden files, from golden/MANIFEST.json beside the case data; read on first use.
  mutable std::optional<std::map<std::string, std::set<std::string>>> golden_;
  Memo layout_memo_, backend_memo_;  ///< by side_at(), packed; both sides share them
};

}  // namespace kvcts::matrix
