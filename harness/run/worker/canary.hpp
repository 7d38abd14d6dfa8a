// kvcts-worker canary ENGINE: checks that what an engine shares with other processes still works. The supervisor runs
// it after a hang or a death.
#pragma once

#include <string>

namespace kvcts::worker {

enum CanaryExit : int { canary_passes = 0, canary_fails = 1, canary_none = 4 };

/// `engine`: JSON, {plugin, options}. Prints what is broken to stdout. Returns a CanaryExit.
int canary(const std::string& engine);

}  // namespace kvcts::worker
