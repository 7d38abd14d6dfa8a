#include "transport/open_args.hpp"

namespace kvcts::transport {

bool ask_canary(const Plugin& plugin, const OpenOptions& options) {
  const kvcts_transport& api = plugin.table();
  if (api.canary == nullptr) return false;
  const OpenArgs args(options);
  const std::int32_t status = api.canary(args.get());
  if (status == KVCTS_OK) return true;
  if (status == KVCTS_E_NOT_SUPPORTED) return false;
  kvcts_error error{};
  error.size = sizeof error;
  api.last_error(nullptr, &error);
  const std::string words = error.text != nullptr && *error.text != '\0' ? error.text : "no reason given";
  throw TransportError(Code::backend, plugin.engine() + ": canary: " + words, error.native);
}

}  // namespace kvcts::transport
