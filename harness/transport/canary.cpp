#include "transport/session.hpp"

namespace kvcts::transport {

bool ask_canary(const Plugin& plugin, const OpenOptions& options) {
  const kvcts_transport& api = plugin.table();
  if (api.canary == nullptr) return false;
  std::vector<kvcts_option> list;
  for (const auto& [key, value] : options.options) list.push_back({key.c_str(), value.c_str()});
  kvcts_open_args args{};
  args.size = sizeof args;
  args.name = options.name.c_str();
  args.role = static_cast<std::uint32_t>(options.role);
  args.options = list.data();
  args.option_count = list.size();
  const std::int32_t status = api.canary(&args);
  if (status == KVCTS_OK) return true;
  if (status == KVCTS_E_NOT_SUPPORTED) return false;
  kvcts_error error{};
  error.size = sizeof error;
  api.last_error(nullptr, &error);
  const std::string words = error.text != nullptr && *error.text != '\0' ? error.text : "no reason given";
  throw TransportError(Code::backend, plugin.engine() + ": canary: " + words, error.native);
}

}  // namespace kvcts::transport
