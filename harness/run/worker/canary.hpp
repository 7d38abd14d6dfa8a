// kvcts-worker canary ENGINE: does what an engine shares with other processes still work? Asked by the supervisor after a
// hang or a death.
#pragma once

#include <string>

namespace kvcts::worker {

enum CanaryExit : int { canary_passes = 0, canary_fails = 1, canary_none = 4 };

/// `engine`: JSON, {plugin, options}. Says on stdout what is broken. Returns a CanaryExit.
int canary(const std::string& engine);

}  // namespace kvcts::worker
