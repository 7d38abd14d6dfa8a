// Loads a transport plug-in and checks its table against the ABI.
#include "engines/transport/table.hpp"

namespace kvcts::transport {

std::string_view name(Code code) {
  switch (code) {
    case Code::invalid:
      return "invalid";
    case Code::not_found:
      return "not found";
    case Code::not_permitted:
      return "not permitted";
    case Code::not_supported:
      return "not supported";
    case Code::peer_lost:
      return "peer lost";
    case Code::backend:
      return "backend";
    case Code::mismatch:
      return "mismatch";
    case Code::busy:
      return "busy";
    case Code::canceled:
      return "canceled";
    case Code::too_small:
      return "too small";
    case Code::no_resources:
      return "no resources";
    case Code::timed_out:
      return "timed out";
    case Code::not_posted:
      return "not posted";
    case Code::cannot_load:
      return "cannot load";
    case Code::contract:
      return "broken contract";
    case Code::absent:
      return "absent";
  }
  return "unknown";
}

std::shared_ptr<const Plugin> Plugin::load(const std::filesystem::path& file) {
  return adopt(ask_table<kvcts_transport>(file, "kvcts_transport_entry", KVCTS_TRANSPORT_ABI, "transport"), file.string());
}

std::shared_ptr<const Plugin> Plugin::adopt(const kvcts_transport* table, const std::string& origin) {
  const kvcts_transport copy = checked_table(table, KVCTS_TRANSPORT_ABI, "transport", origin);
  need_calls({{"open", copy.open != nullptr},
              {"close", copy.close != nullptr},
              {"claims", copy.claims != nullptr},
              {"register_region", copy.register_region != nullptr},
              {"deregister_region", copy.deregister_region != nullptr},
              {"export_metadata", copy.export_metadata != nullptr},
              {"add_peer", copy.add_peer != nullptr},
              {"remove_peer", copy.remove_peer != nullptr},
              {"prepare", copy.prepare != nullptr},
              {"post", copy.post != nullptr},
              {"poll", copy.poll != nullptr},
              {"release", copy.release != nullptr},
              {"last_error", copy.last_error != nullptr}},
             table->size, sizeof copy, origin);
  auto plugin = std::shared_ptr<Plugin>(new Plugin());
  plugin->engine_ = table_word(copy.name, "name", origin);
  plugin->version_ = table_word(copy.version, "version", origin);
  plugin->origin_ = origin;
  plugin->table_ = copy;
  return plugin;
}

}  // namespace kvcts::transport
