// An engine as a plain C++ class, exposed as the C table. The class needs no base; optional calls exist if the class has
// them.
//
//   class MyEngine {
//    public:
//     static constexpr const char* engine_name = "mine";
//     static const char* engine_version();
//     explicit MyEngine(const OpenArgs& args);
//     void claims(kvcts_claims& claims) const;
//     std::uint64_t register_region(const kvcts_region& region);
//     void deregister_region(std::uint64_t handle);
//     std::string export_metadata(std::span<const std::uint64_t> handles);
//     std::uint64_t add_peer(std::string_view metadata);
//     void remove_peer(std::uint64_t peer);
//     std::uint64_t prepare(const kvcts_transfer& transfer);
//     std::int32_t post(std::uint64_t request);
//     std::int32_t poll(std::uint64_t request, kvcts_progress& progress);
//     void release(std::uint64_t request);
//     // optional, by presence:
//     std::int32_t descriptor_status(std::uint64_t request, std::uint64_t index);
//     std::int32_t cancel(std::uint64_t request);
//     bool progress();
//     std::int32_t flush(std::uint64_t peer);
//     void notify(std::uint64_t peer, std::string_view data);
//     const std::string* oldest_notification();   // nullptr: none
//     void drop_notification();
//     std::map<std::string, std::string> facts();
//     static void canary(const OpenArgs& args);
//   };
//   extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t abi) {
//     return kvcts::engines::table<MyEngine>(abi);
//   }
//
// Errors are thrown as Failure. Other exceptions are converted: std::bad_alloc to KVCTS_E_NO_RESOURCES, anything else
// to KVCTS_E_BACKEND.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engines/support/failure.hpp"
#include "engines/transport/kvcts_transport.h"

namespace kvcts::engines {

/// The arguments of open(). take() marks an option as known; finish() refuses untaken ones.
class OpenArgs {
 public:
  explicit OpenArgs(const kvcts_open_args& raw) : name(raw.name), role(raw.role) {
    for (std::uint64_t i = 0; i < raw.option_count; ++i) options_[raw.options[i].key] = raw.options[i].value;
  }
  std::string take(const std::string& key, std::string fallback) const {
    const auto found = options_.find(key);
    if (found == options_.end()) return fallback;
    std::string value = found->second;
    options_.erase(found);
    return value;
  }
  std::uint64_t take_number(const std::string& key, std::uint64_t fallback) const {
    const std::string value = take(key, "");
    if (value.empty()) return fallback;
    if (value.size() > 18 || value.find_first_not_of("0123456789") != std::string::npos)
      throw Failure{KVCTS_E_INVALID, "option " + key + " is \"" + value + "\", expected a whole number"};
    return std::stoull(value);
  }
  bool take_switch(const std::string& key, const std::string& fallback) const {
    const std::string value = take(key, fallback);
    if (value != "on" && value != "off")
      throw Failure{KVCTS_E_INVALID, "option " + key + " is \"" + value + "\", expected on or off"};
    return value == "on";
  }
  /// The untaken options, for a plug-in that passes them on.
  std::map<std::string, std::string> rest() const { return std::exchange(options_, {}); }
  void finish() const {
    if (options_.empty()) return;
    throw Failure{KVCTS_E_INVALID,
                  "unknown option \"" + options_.begin()->first + "\"; see the engine's entry in the catalogue"};
  }
  std::string name;
  std::uint32_t role;

 private:
  mutable std::map<std::string, std::string> options_;
};

/// A size-prefixed structure, cut to the members that its writer knew; the others are zero.
template <class T>
T sized(const T* raw) {
  T value{};
  std::memcpy(&value, raw, std::min<std::uint64_t>(raw->size, sizeof value));
  return value;
}
/// Writes as much as the caller has room for; its size member is unchanged.
template <class T>
void write_sized(T* raw, T value) {
  value.size = raw->size;
  std::memcpy(raw, &value, std::min<std::uint64_t>(raw->size, sizeof value));
}
/// Out-buffers of export_metadata and take_notification.
inline std::int32_t write_bytes(std::string_view bytes, void* buffer, std::uint64_t* capacity) {
  const std::uint64_t room = *capacity;
  *capacity = bytes.size();
  if (room < bytes.size()) return KVCTS_E_TOO_SMALL;
  if (!bytes.empty()) std::memcpy(buffer, bytes.data(), bytes.size());
  return KVCTS_OK;
}

template <class Engine>
struct Agent {
  explicit Agent(const OpenArgs& args) : engine(args) {}
  Engine engine;
  Failure last;
};

template <class Engine>
class Table {
 public:
  static const kvcts_transport* make() {
    static const kvcts_transport table = build();
    return &table;
  }

 private:
  static Failure& open_failure() {
    thread_local Failure failure;
    return failure;
  }
  static Agent<Engine>& agent(kvcts_agent* raw) { return *reinterpret_cast<Agent<Engine>*>(raw); }

  /// Runs `call`; converts whatever it throws into a status and stores the text in `failure`.
  template <class Call>
  static std::int32_t guarded(Failure& failure, Call&& call) noexcept {
    try {
      return call();
    } catch (const Failure& thrown) {
      failure = thrown;
    } catch (const std::bad_alloc&) {
      failure = {KVCTS_E_NO_RESOURCES, "out of memory"};
    } catch (const std::exception& thrown) {
      failure = {KVCTS_E_BACKEND, thrown.what()};
    }
    return failure.status;
  }
  template <class Call>
  static std::int32_t on(kvcts_agent* raw, Call&& call) noexcept {
    return guarded(agent(raw).last, [&]() -> std::int32_t {
      if constexpr (std::is_void_v<decltype(call(agent(raw).engine))>) {
        call(agent(raw).engine);
        return KVCTS_OK;
      } else {
        return call(agent(raw).engine);
      }
    });
  }

  using Id = std::uint64_t;

  static kvcts_transport build() {
    kvcts_transport t{};
    t.size = sizeof t;
    t.abi = KVCTS_TRANSPORT_ABI;
    t.name = Engine::engine_name;
    t.version = Engine::engine_version();
    t.open = [](const kvcts_open_args* args, kvcts_agent** out) {
      *out = nullptr;
      return guarded(open_failure(), [&]() -> std::int32_t {
        *out = reinterpret_cast<kvcts_agent*>(new Agent<Engine>(OpenArgs(sized(args))));
        return KVCTS_OK;
      });
    };
    t.close = [](kvcts_agent* raw) { delete &agent(raw); };
    t.claims = [](kvcts_agent* raw, kvcts_claims* out) {
      return on(raw, [&](Engine& engine) {
        kvcts_claims claims{};
        claims.alignment = 1;
        claims.max_descriptors = claims.max_bytes = UINT64_MAX;
        engine.claims(claims);
        write_sized(out, claims);
      });
    };
    t.register_region = [](kvcts_agent* raw, const kvcts_region* region, Id* handle) {
      return on(raw, [&](Engine& engine) { *handle = engine.register_region(sized(region)); });
    };
    t.deregister_region = [](kvcts_agent* raw, Id handle) {
      return on(raw, [&](Engine& engine) { engine.deregister_region(handle); });
    };
    t.export_metadata = [](kvcts_agent* raw, const Id* handles, std::uint64_t count, void* buffer, std::uint64_t* bytes) {
      return on(raw, [&](Engine& engine) -> std::int32_t {
        return fitted(agent(raw).last, engine.export_metadata({handles, static_cast<std::size_t>(count)}), buffer, bytes);
      });
    };
    t.add_peer = [](kvcts_agent* raw, const void* metadata, std::uint64_t bytes, Id* peer) {
      return on(raw, [&](Engine& engine) {
        *peer = engine.add_peer({static_cast<const char*>(metadata), static_cast<std::size_t>(bytes)});
      });
    };
    t.remove_peer = [](kvcts_agent* raw, Id peer) { return on(raw, [&](Engine& engine) { engine.remove_peer(peer); }); };
    t.prepare = [](kvcts_agent* raw, const kvcts_transfer* transfer, Id* request) {
      return on(raw, [&](Engine& engine) { *request = engine.prepare(sized(transfer)); });
    };
    t.post = [](kvcts_agent* raw, Id request) { return on(raw, [&](Engine& engine) { return engine.post(request); }); };
    t.poll = [](kvcts_agent* raw, Id request, kvcts_progress* out) {
      return on(raw, [&](Engine& engine) -> std::int32_t {
        kvcts_progress progress{0, KVCTS_UNKNOWN, KVCTS_UNKNOWN};
        const std::int32_t status = engine.poll(request, progress);
        if (out != nullptr) write_sized(out, progress);
        return status;
      });
    };
    t.release = [](kvcts_agent* raw, Id request) { return on(raw, [&](Engine& engine) { engine.release(request); }); };
    t.last_error = [](kvcts_agent* raw, kvcts_error* out) {
      const Failure& failure = raw == nullptr ? open_failure() : agent(raw).last;
      write_sized(out, kvcts_error{0, failure.status, 0, failure.native, failure.text.c_str()});
    };
    add_optional(t);
    return t;
  }

  static void add_optional(kvcts_transport& t) {
    if constexpr (requires(Engine& e) { e.descriptor_status(Id{}, Id{}); }) {
      t.descriptor_status = [](kvcts_agent* raw, Id request, std::uint64_t index) {
        return on(raw, [&](Engine& engine) { return engine.descriptor_status(request, index); });
      };
    }
    if constexpr (requires(Engine& e) { e.cancel(Id{}); }) {
      t.cancel = [](kvcts_agent* raw, Id request) {
        return on(raw, [&](Engine& engine) { return engine.cancel(request); });
      };
    }
    if constexpr (requires(Engine& e) { e.progress(); }) {
      t.progress = [](kvcts_agent* raw) {
        return on(raw, [](Engine& engine) { return engine.progress() ? KVCTS_IN_PROGRESS : KVCTS_OK; });
      };
    }
    if constexpr (requires(Engine& e) { e.flush(Id{}); }) {
      t.flush = [](kvcts_agent* raw, Id peer) { return on(raw, [&](Engine& engine) { return engine.flush(peer); }); };
    }
    if constexpr (requires(Engine& e) { e.notify(Id{}, std::string_view{}); }) {
      t.notify = [](kvcts_agent* raw, Id peer, const void* data, std::uint64_t bytes) {
        return on(raw, [&](Engine& engine) {
          engine.notify(peer, {static_cast<const char*>(data), static_cast<std::size_t>(bytes)});
        });
      };
    }
    if constexpr (requires(Engine& e) { e.oldest_notification(); }) {
      t.take_notification = [](kvcts_agent* raw, void* buffer, std::uint64_t* bytes) {
        return on(raw, [&](Engine& engine) -> std::int32_t {
          const std::string* oldest = engine.oldest_notification();
          if (oldest == nullptr) {
            agent(raw).last = {KVCTS_E_NOT_FOUND, "no notification is pending"};
            return KVCTS_E_NOT_FOUND;
          }
          const std::int32_t status = fitted(agent(raw).last, *oldest, buffer, bytes);
          if (status == KVCTS_OK) engine.drop_notification();
          return status;
        });
      };
    }
    if constexpr (requires(Engine& e) { e.facts(); }) {
      t.facts = [](kvcts_agent* raw, kvcts_fact_sink sink, void* context) {
        return on(raw, [&](Engine& engine) {
          for (const auto& [key, value] : engine.facts()) sink(context, key.c_str(), value.c_str());
        });
      };
    }
    if constexpr (requires(const OpenArgs& args) { Engine::canary(args); }) {
      t.canary = [](const kvcts_open_args* args) {
        return guarded(open_failure(), [&]() -> std::int32_t {
          Engine::canary(OpenArgs(sized(args)));
          return KVCTS_OK;
        });
      };
    }
  }

  static std::int32_t fitted(Failure& failure, std::string_view data, void* buffer, std::uint64_t* bytes) {
    const std::int32_t status = write_bytes(data, buffer, bytes);
    if (status != KVCTS_OK) failure = {status, "the buffer is too small: " + std::to_string(data.size()) + " bytes needed"};
    return status;
  }
};

template <class Engine>
const kvcts_transport* table(std::uint32_t abi) {
  return abi == KVCTS_TRANSPORT_ABI ? Table<Engine>::make() : nullptr;
}

}  // namespace kvcts::engines
