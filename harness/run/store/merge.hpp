// Shards of one plan, made one run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "run/store/run.hpp"

namespace kvcts::store {

/// Writes the runs in `parts` as one run into `out`, in the order of the unsharded plan; nothing is written where that
/// cannot be. The parts stay as they are. `out` appears whole: what a killed merge leaves behind (`out`.merging) is removed
/// by the next one.
///
/// Throws Error, one sentence, when `out` is there already, when a part cannot be read, was planned otherwise than the first
/// one (suite, selection, seed, version, commit, cases, golden tensors), or is no shard; when a shard is missing; and when
/// two parts have a result for one id. A case that one part has decided and another has not is that one's.
void merge(const std::filesystem::path& out, const std::vector<std::filesystem::path>& parts,
           const std::vector<std::string>& argv);

}  // namespace kvcts::store
