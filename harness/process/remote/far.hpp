// The other host's end (see near.hpp): starts launchers for the supervisor and relays all that they and their children say.
#pragma once

namespace kvcts::process {

/// Reads {key, addresses, port, name} from standard input, whose end is its own. Returns an exit status.
int run_far();

}  // namespace kvcts::process
