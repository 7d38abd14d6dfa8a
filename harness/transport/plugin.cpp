// Loading a plug-in and holding its table to the ABI.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/session.hpp"

namespace kvcts::transport {
namespace {

constexpr std::size_t longest_word = 256;
constexpr std::uint64_t largest_table = 1u << 16;  // a table of more than 64 KiB is not a table

/// A short printable word, or a contract error. The pointer is the plug-in's: it is read up to `longest_word` bytes only.
std::string word(const char* text, const char* what, const std::string& origin) {
  if (text == nullptr)
    throw TransportError(Code::contract, origin + ": the table's " + what + " is NULL; set it to a short text");
  const std::size_t length = strnlen(text, longest_word);
  const bool printable = std::all_of(text, text + length, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  if (length == 0 || length == longest_word || !printable) {
    throw TransportError(Code::contract,
                         origin + ": the table's " + what + " is empty, longer than 255 bytes or not printable ASCII");
  }
  return {text, length};
}

struct Required {
  const char* name;
  bool present;
};

}  // namespace

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
  }
  return "unknown";
}

std::shared_ptr<const Plugin> Plugin::load(const std::filesystem::path& file) {
  dlerror();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw TransportError(Code::cannot_load, "cannot load " + file.string() + ": " + (why ? why : "no reason given"));
  }
  void* symbol = dlsym(library, "kvcts_transport_entry");
  if (symbol == nullptr) {
    throw TransportError(Code::contract,
                         file.string() + ": exports no kvcts_transport_entry; it is not a transport plug-in");
  }
  const auto entry = reinterpret_cast<kvcts_transport_entry_fn>(symbol);
  return adopt(entry(KVCTS_TRANSPORT_ABI), file.string());
}

std::shared_ptr<const Plugin> Plugin::adopt(const kvcts_transport* table, const std::string& origin) {
  if (table == nullptr) {
    throw TransportError(Code::contract,
                         origin + ": kvcts_transport_entry(" + std::to_string(KVCTS_TRANSPORT_ABI) +
                             ") returned NULL: it does not speak this version; build it against this suite's header");
  }
  // size and abi come first: nothing else may be read before both are known to be sane.
  constexpr std::uint64_t head = offsetof(kvcts_transport, name);
  if (table->size < head || table->size > largest_table) {
    throw TransportError(Code::contract, origin + ": the table says it has " + std::to_string(table->size) +
                                             " bytes; expected " + std::to_string(sizeof(kvcts_transport)));
  }
  if (table->abi != KVCTS_TRANSPORT_ABI) {
    throw TransportError(Code::contract, origin + ": built for transport ABI " + std::to_string(table->abi) + ", expected " +
                                             std::to_string(KVCTS_TRANSPORT_ABI) +
                                             "; rebuild it against this suite's header");
  }
  kvcts_transport copy{};
  std::memcpy(&copy, table, std::min<std::uint64_t>(table->size, sizeof copy));
  const std::array<Required, 13> required{{{"open", copy.open != nullptr},
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
                                           {"last_error", copy.last_error != nullptr}}};
  std::string missing;
  for (const auto& call : required) {
    if (!call.present) missing += (missing.empty() ? "" : ", ") + std::string(call.name);
  }
  if (!missing.empty()) {
    const bool truncated = table->size < sizeof(kvcts_transport);
    throw TransportError(Code::contract, origin + ": the table" +
                                             (truncated ? " of " + std::to_string(table->size) + " bytes (expected " +
                                                              std::to_string(sizeof(kvcts_transport)) + ")"
                                                        : std::string()) +
                                             " lacks required calls: " + missing);
  }
  auto plugin = std::shared_ptr<Plugin>(new Plugin());
  plugin->engine_ = word(copy.name, "name", origin);
  plugin->version_ = word(copy.version, "version", origin);
  plugin->origin_ = origin;
  plugin->table_ = copy;
  return plugin;
}

}  // namespace kvcts::transport
