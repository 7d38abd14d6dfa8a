// Merges the shards of one plan into one run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "run/store/run.hpp"

namespace kvcts::store {

/// Merges the runs in `parts` into one run in `out`, in the order of the unsharded plan; on any error it writes
/// nothing. The parts are unchanged. `out` appears atomically: the next merge removes what a killed one leaves
/// (`out`.merging).
///
/// Throws Error, one sentence: `out` exists; a part is unreadable, was planned differently from the first one (suite,
/// selection, seed, version, commit, cases, golden tensors), was cut by other times, or is no shard; a shard is missing; or
/// two parts have a result for one id. A case decided in only one part takes that result.
void merge(const std::filesystem::path& out, const std::vector<std::filesystem::path>& parts,
           const std::vector<std::string>& argv);

}  // namespace kvcts::store
