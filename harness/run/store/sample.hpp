// Results to test with: one of every outcome, and runs of any length. Used by the tests of store and report only.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "run/store/store.hpp"

namespace kvcts::store::sample {

/// A directory of its own, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

RunInfo info();
/// Case n of a run: ids like "flash_attn-nhd/memcpy/case=17/sm_75"; every fourth starts a new execution, the three after it
/// differ from it only in arch.
PlannedCase planned(int n);
std::vector<PlannedCase> plan(int count);
/// A passing result for a planned case; equal for cases of one execution but for id, arch and evidence.
CaseResult passed(const PlannedCase& planned);
/// One result of every outcome, and of every verdict: ids "every/<outcome or verdict>". Messages hold what is hard to print:
/// control characters, markup, quotes, bytes that are not UTF-8.
std::vector<CaseResult> every_kind();
std::vector<PlannedCase> plan_for(const std::vector<CaseResult>& results);

/// What the store will give back: texts made valid UTF-8.
CaseResult as_stored(const CaseResult& result);

}  // namespace kvcts::store::sample
