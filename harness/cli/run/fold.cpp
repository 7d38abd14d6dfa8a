#include "cli/run/fold.hpp"

#include <fmt/format.h>

#include "cli/report/text.hpp"
#include "run/store/counts.hpp"

namespace kvcts::cli {

bool failed(const CaseResult& judged) { return store::is_failure(judged.verdict) || judged.verdict == Verdict::xfail; }

void Fold::add(const CaseResult& judged) {
  if (judged.outcome == Outcome::not_run) return;
  if (judged.outcome == Outcome::skipped) {
    if (!idle_) idle_ = judged;
    return;
  }
  if (judged.outcome == Outcome::error) {
    if (!error_) error_ = judged;
    return;
  }
  const bool bad = failed(judged);
  if (judged.tries.made > 0) {  // a result of earlier tries
    tries_.made += judged.tries.made;
    tries_.failed += judged.tries.failed;
    tries_.failures = judged.tries.failures;
    tries_.retries += judged.tries.retries;
  } else {
    ++tries_.made;
    tries_.failed += bad;
    tries_.retries += retry_ && tries_.made > 1;
    if (bad && tries_.failures.size() < try_limit)
      tries_.failures.push_back(
          {tries_.made, judged.outcome, judged.phase, judged.diagnosis.fault_class, judged.message, judged.wall_ns});
  }
  if (!bad)
    good_ = judged;
  else if (!bad_)
    bad_ = judged;
}

std::optional<CaseResult> Fold::whole() const {
  if (error_) return error_;
  if (!bad_ && !good_) return idle_;
  CaseResult out = bad_ ? *bad_ : *good_;
  if (tries_.made < 2) return out;
  out.tries = tries_;
  if (tries_.failed == 0 || tries_.failed == tries_.made || out.outcome == Outcome::flaky) return out;
  const Try& first = tries_.failures.front();
  out.message = fmt::format("{}; in try {}: {}{}{}", report::tries_text(tries_), first.number, report::ending_text(out),
                            out.message.empty() ? "" : ": ", out.message);
  out.outcome = Outcome::flaky;
  return out;
}

}  // namespace kvcts::cli
