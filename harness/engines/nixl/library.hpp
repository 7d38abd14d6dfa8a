// libnixl_capi.so of an engine package, opened at run time: the wheel has no headers, and its C++ interface changes
// between versions.
//
// Sources: src/bindings/rust/wrapper.h of NIXL 1.2.0 and 1.4.0 (identical), symbols of the wheels 1.2.0 and 1.5.1.
// The C interface folds most NIXL errors into one code. Where libnixl.so exports the C++ function behind a call with
// exactly the known signature (checked by its mangled name), that function supplies the exact code, provided that the
// probe in exact_codes() agrees first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kvcts::engines::nixl {

// Handles of the C interface. Each points to a structure whose first word is the C++ object.
using Agent = struct AgentHandle*;
using Params = struct ParamsHandle*;
using Backend = struct BackendHandle*;
using Options = struct OptionsHandle*;
using RegistrationList = struct RegistrationListHandle*;
using TransferList = struct TransferListHandle*;
using PreparedList = struct PreparedListHandle*;
using Request = struct RequestHandle*;
using Notifications = struct NotificationsHandle*;

enum class NixlMemory : int { dram = 0, vram = 1, file = 4 };
enum class NixlOp : int { read = 0, write = 1 };

/// nixl_capi_agent_config_t.
struct Config {
  bool progress_thread, listen_thread;
  int listen_port;
  int thread_sync;  ///< 0 none, 1 strict, 2 read-write
  unsigned workers;
  std::uint64_t progress_delay_us, listen_delay_us;
  bool telemetry;
};

/// nixl_capi_xfer_telemetry_s: the engine's own counters of one finished request.
struct Telemetry {
  std::uint64_t start_us, post_us, transfer_us, bytes, descriptors;
};

/// nixl_status_t (nixl_types.h), the same in 1.2.0 and 1.5.1.
enum class NixlStatus : int {
  in_progress = 1,
  success = 0,
  not_posted = -1,
  invalid = -2,
  backend = -3,
  not_found = -4,
  mismatch = -5,
  not_allowed = -6,
  repost_active = -7,
  unknown = -8,
  not_supported = -9,
  remote_disconnect = -10,
  canceled = -11,
  folded = -1000,  ///< ours: an error that this library does not specify
};
std::string_view name(NixlStatus status);  ///< "NIXL_ERR_NOT_FOUND"

/// The calls. Only the constructor throws.
class NixlLibrary {
 public:
  /// Opens the library of `package`. Throws Failure(KVCTS_E_NOT_SUPPORTED).
  explicit NixlLibrary(const std::filesystem::path& package);
  NixlLibrary(const NixlLibrary&) = delete;
  NixlLibrary& operator=(const NixlLibrary&) = delete;

  NixlStatus create_agent(const std::string& name, const Config& config, Agent& agent) const;
  NixlStatus create_backend(Agent agent, const std::string& plugin,
                            const std::vector<std::pair<std::string, std::string>>& params, Backend& backend) const;
  /// Whether exact codes are right; checked once with a live agent.
  bool exact_codes(Agent agent) const;
  NixlStatus register_memory(Agent agent, RegistrationList list, Options options) const;
  NixlStatus load_metadata(Agent agent, std::string_view blob, std::string& name) const;
  NixlStatus local_metadata(Agent agent, std::string& blob) const;
  NixlStatus invalidate(Agent agent, const std::string& name) const;
  NixlStatus prepare_list(Agent agent, const std::string& name, TransferList list, PreparedList& prepared,
                          Options options) const;
  NixlStatus make_request(Agent agent, NixlOp op, PreparedList local, PreparedList remote,
                          const std::vector<int>& local_indices, const std::vector<int>& remote_indices, Request& request,
                          Options options) const;
  NixlStatus create_request(Agent agent, NixlOp op, TransferList local, TransferList remote, const std::string& name,
                            Request& request, Options options) const;
  NixlStatus post(Agent agent, Request request, Options options) const;
  NixlStatus status(Agent agent, Request request) const;

  // The others directly: 0 is success, anything else an unspecified error.
  int (*destroy_agent)(Agent);
  int (*create_options)(Options*);
  int (*destroy_options)(Options);
  int (*options_add_backend)(Options, Backend);
  int (*options_set_notification)(Options, const void*, std::size_t);
  int (*options_set_has_notification)(Options, bool);
  int (*options_set_skip_merge)(Options, bool);
  int (*create_registration_list)(NixlMemory, RegistrationList*);
  int (*registration_list_add)(RegistrationList, std::uintptr_t, std::size_t, std::uint64_t, const void*, std::size_t);
  int (*destroy_registration_list)(RegistrationList);
  int (*deregister_memory)(Agent, RegistrationList, Options);
  int (*create_transfer_list)(NixlMemory, TransferList*);
  int (*transfer_list_add)(TransferList, std::uintptr_t, std::size_t, std::uint64_t);
  int (*destroy_transfer_list)(TransferList);
  int (*release_prepared_list)(Agent, PreparedList);
  int (*release_request)(Agent, Request);
  int (*destroy_request)(Request);
  int (*telemetry)(Agent, Request, Telemetry*);
  int (*create_notifications)(Notifications*);
  int (*destroy_notifications)(Notifications);
  int (*get_notifications)(Agent, Notifications, Options);
  int (*notifications_size)(Notifications, std::size_t*);
  int (*notifications_agent)(Notifications, std::size_t, const char**);
  int (*notifications_count)(Notifications, const char*, std::size_t*);
  int (*notifications_get)(Notifications, const char*, std::size_t, const void**, std::size_t*);
  int (*notifications_clear)(Notifications);
  int (*send_notification)(Agent, const char*, const void*, std::size_t, Options);

 private:
  template <class Function>
  void bind(Function*& function, const char* name);
  template <class Function>
  void bind_exact(Function*& function, const char* mangled);

  void* handle_{nullptr};
  int (*create_configured_agent_)(const char*, const Config*, Agent*);
  int (*create_params_)(Params*);
  int (*params_add_)(Params, const char*, const char*);
  int (*destroy_params_)(Params);
  int (*create_backend_)(Agent, const char*, Params, Backend*);
  int (*register_memory_)(Agent, RegistrationList, Options);
  int (*get_local_metadata_)(Agent, void**, std::size_t*);
  int (*load_remote_metadata_)(Agent, const void*, std::size_t, char**);
  int (*invalidate_remote_metadata_)(Agent, const char*);
  int (*prepare_list_)(Agent, const char*, TransferList, PreparedList*, Options);
  int (*make_request_)(Agent, NixlOp, PreparedList, const int*, std::size_t, PreparedList, const int*, std::size_t, Request*,
                       Options);
  int (*create_request_)(Agent, NixlOp, TransferList, TransferList, const char*, Request*, Options);
  int (*post_request_)(Agent, Request, Options);
  int (*request_status_)(Agent, Request);

  // Member functions of nixlAgent, called per the Itanium ABI: object first. nullptr: not exported, so the code stays
  // folded.
  using Object = void*;
  NixlStatus (*exact_create_backend_)(Object agent, const std::string& plugin, Object params, Object& backend);
  NixlStatus (*exact_register_)(Object agent, Object list, Options);
  NixlStatus (*exact_load_)(Object agent, const std::string& blob, std::string& name);
  NixlStatus (*exact_invalidate_)(Object agent, const std::string& name);
  NixlStatus (*exact_prepare_list_)(Object agent, const std::string& name, Object list, Object& prepared, Options);
  NixlStatus (*exact_make_)(Object agent, const NixlOp&, Object local, const std::vector<int>&, Object remote,
                            const std::vector<int>&, Object& request, Options);
  NixlStatus (*exact_create_)(Object agent, const NixlOp&, Object local, Object remote, const std::string& name,
                              Object& request, Options);
  NixlStatus (*exact_post_)(Object agent, Object request, Options);
  NixlStatus (*exact_status_)(Object agent, Object request);
};

}  // namespace kvcts::engines::nixl
