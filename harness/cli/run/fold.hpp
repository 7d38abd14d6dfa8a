// Folds the tries of one case into one result.
#pragma once

#include <cstdint>
#include <optional>

#include "case/result.hpp"

namespace kvcts::cli {

/// Did it end otherwise than it should? Also where a waiver says that it may.
bool failed(const CaseResult& judged);

/// Takes the judged tries of a case as they come. What was not run or is skipped is no try.
class Fold {
 public:
  /// `retry`: made because the first one failed.
  explicit Fold(bool retry = false) : retry_(retry) {}
  /// One try, or, as the first, the result of earlier ones.
  void add(const CaseResult& judged);
  std::int64_t made() const { return tries_.made; }
  std::int64_t failures() const { return tries_.failed; }
  /// The first try that failed, else the last one, with the tries counted; FLAKY where some failed and some did not. An
  /// ERROR of the suite is the result, whatever the others said. Of a single try: that try. To be judged anew. Nothing was
  /// added: nullopt.
  std::optional<CaseResult> whole() const;

 private:
  bool retry_;
  Tries tries_;
  std::optional<CaseResult> error_, bad_, good_, idle_;
};

}  // namespace kvcts::cli
