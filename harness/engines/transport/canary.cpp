#include "engines/transport/open_args.hpp"
#include "engines/transport/table.hpp"

namespace kvcts::transport {

bool ask_canary(const Plugin& plugin, const OpenOptions& options) {
  const kvcts_transport& api = plugin.table();
  if (api.canary == nullptr) return false;
  const OpenArgs args(options);
  const std::int32_t status = api.canary(args.get());
  if (status == KVCTS_OK) return true;
  if (status == KVCTS_E_NOT_SUPPORTED) return false;
  const LastError error = last_error(api, static_cast<kvcts_agent*>(nullptr), plugin.engine());
  throw TransportError(Code::backend, plugin.engine() + ": canary: " + (error.text.empty() ? "no reason given" : error.text),
                       error.native);
}

}  // namespace kvcts::transport
