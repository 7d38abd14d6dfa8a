// Whether a sandbox holds, as seen from inside.
#pragma once

#include <string>

namespace kvcts::process {

/// The first promise that does not hold here, in words; "" = all do.
std::string probe_sandbox();

}  // namespace kvcts::process
