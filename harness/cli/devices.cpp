#include "cli/devices.hpp"

#include "cli/doctor/doctor.hpp"
#include "engines/transport/session.hpp"

namespace kvcts::cli {

std::vector<std::string> devices_for(const std::string& plugin) {
  if (plugin.empty() || !transport::is_own_plugin(plugin)) return {};
  static const std::vector<std::string> found = doctor::device_archs();
  return found;
}

}  // namespace kvcts::cli
