// From an outcome to a verdict: was it expected, and if not, is the failure known?
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "case/result.hpp"
#include "matrix/expr.hpp"

namespace kvcts::matrix {

/// Does the result meet one of the expected outcomes? None given: PASS.
bool meets(const CaseResult& result, const std::vector<Expected>& expected);
bool meets(const CaseResult& result, const Expected& expected);

struct Ruling {
  Verdict verdict{Verdict::error};
  std::string waiver;  ///< id of the waiver that applied
  std::string reason;  ///< one sentence: what was expected, or the waiver's reason, owner and expiry
};

class Waivers {
 public:
  /// Compiles the waivers of the catalogue. Throws Error on a bad expression.
  explicit Waivers(Space& space);

  /// SKIPPED, NOT_RUN and ERROR keep their own verdicts; UNSUPPORTED counts as expected because it is declared. An
  /// unexpected outcome is XFAIL with a waiver and expired_waiver with an expired one. An expected outcome under a waiver
  /// (by id or expression, not by class alone) is XPASS. `today`: YYYY-MM-DD; a waiver holds on its last day. Expressions
  /// see the axes in result.facts["axes"] (Selection::facts), or those of the id where that is missing.
  Ruling judge(const CaseResult& result, const std::vector<Expected>& expected, std::string_view today);

 private:
  struct Compiled {
    const catalogue::WaiverEntry* entry;
    std::unique_ptr<Expression> where;
  };
  bool covers(const Compiled& waiver, const CaseResult& result);  ///< id and expression
  Space& space_;
  std::vector<Compiled> compiled_;
};

/// Today as YYYY-MM-DD, UTC.
std::string today();

}  // namespace kvcts::matrix
