// Sample results for tests: one of every outcome, and runs of any length. Only the tests of store and report use them.
#pragma once

#include <string>
#include <vector>

#include "run/store/store.hpp"
#include "testing/temporary_folder.hpp"

namespace kvcts::store::sample {

using TemporaryDirectory = testing_support::TemporaryFolder;

RunInfo info();
/// Case n of a run: ids like "flash_attn-nhd/memcpy/case=17/sm_75". Every fourth starts a new execution; the three
/// after it differ from it only in arch.
PlannedCase planned(int n);
std::vector<PlannedCase> plan(int count);
/// A passing result for a planned case; cases of one execution differ only in id, arch and evidence.
CaseResult passed(const PlannedCase& planned);
/// One result of every outcome and every verdict: ids "every/<outcome or verdict>". Messages contain what is hard to
/// print: control characters, markup, quotes, invalid UTF-8.
std::vector<CaseResult> every_kind();
std::vector<PlannedCase> plan_for(const std::vector<CaseResult>& results);

/// What the store will return: texts converted to valid UTF-8.
CaseResult as_stored(const CaseResult& result);

}  // namespace kvcts::store::sample
