// Devices as the suite itself finds them: the basis of evidence.
#pragma once

#include <string>
#include <vector>

namespace kvcts::cli {

/// Architectures of the devices that the suite's own look at the driver found, for a plug-in of this installation. None for
/// a plug-in from elsewhere: its word alone would stand for what it did. The driver is asked once per process.
std::vector<std::string> devices_for(const std::string& plugin);

}  // namespace kvcts::cli
