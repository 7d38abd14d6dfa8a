#include "engines/nixl/library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "engines/support/failure.hpp"

namespace kvcts::engines::nixl {
namespace {

namespace fs = std::filesystem;

/// The wheel keeps it in a hidden folder named after the CUDA version: .nixl_cu12.mesonpy.libs.
fs::path find(const fs::path& package) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(package, error)) {
    const auto file = entry.path() / "libnixl_capi.so";
    if (entry.path().filename().string().ends_with(".mesonpy.libs") && fs::is_regular_file(file, error)) return file;
  }
  throw Failure{KVCTS_E_NOT_SUPPORTED, "no .nixl_*.mesonpy.libs/libnixl_capi.so in " + package.string()};
}

/// The C++ object behind a handle of the C interface: its first word.
template <class Handle>
void*& object(Handle handle) {
  return *reinterpret_cast<void**>(handle);
}

constexpr int c_in_progress = 1;

/// All that the C interface reports: success, in progress, or an error.
NixlStatus folded(int code) {
  return code == 0 ? NixlStatus::success : code == c_in_progress ? NixlStatus::in_progress : NixlStatus::folded;
}

/// The call just failed, so repeating it for its exact code changes nothing. If it succeeds now, the code is unknown.
NixlStatus exactly(NixlStatus again) {
  return again == NixlStatus::success || again == NixlStatus::in_progress ? NixlStatus::folded : again;
}

}  // namespace

std::string_view name(NixlStatus status) {
  switch (status) {
    case NixlStatus::in_progress:
      return "NIXL_IN_PROG";
    case NixlStatus::success:
      return "NIXL_SUCCESS";
    case NixlStatus::not_posted:
      return "NIXL_ERR_NOT_POSTED";
    case NixlStatus::invalid:
      return "NIXL_ERR_INVALID_PARAM";
    case NixlStatus::backend:
      return "NIXL_ERR_BACKEND";
    case NixlStatus::not_found:
      return "NIXL_ERR_NOT_FOUND";
    case NixlStatus::mismatch:
      return "NIXL_ERR_MISMATCH";
    case NixlStatus::not_allowed:
      return "NIXL_ERR_NOT_ALLOWED";
    case NixlStatus::repost_active:
      return "NIXL_ERR_REPOST_ACTIVE";
    case NixlStatus::unknown:
      return "NIXL_ERR_UNKNOWN";
    case NixlStatus::not_supported:
      return "NIXL_ERR_NOT_SUPPORTED";
    case NixlStatus::remote_disconnect:
      return "NIXL_ERR_REMOTE_DISCONNECT";
    case NixlStatus::canceled:
      return "NIXL_ERR_CANCELED";
    case NixlStatus::folded:
      return "an error that its C interface does not specify";
  }
  return "a code unknown to this version of the suite";
}

template <class Function>
void NixlLibrary::bind(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(handle_, name));
  if (function == nullptr) throw Failure{KVCTS_E_NOT_SUPPORTED, std::string("this NIXL's C interface has no ") + name};
}

template <class Function>
void NixlLibrary::bind_exact(Function*& function, const char* mangled) {
  function = reinterpret_cast<Function*>(dlsym(handle_, mangled));
}

// One list: the functions of the C interface, then the C++ methods behind some of them, which return exact codes.
NixlLibrary::NixlLibrary(const fs::path& package) {
  const fs::path file = find(package);
  handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) throw Failure{KVCTS_E_NOT_SUPPORTED, std::string("cannot load libnixl_capi.so: ") + dlerror()};
  bool (*is_stub)() = nullptr;
  bind(is_stub, "nixl_capi_is_stub");
  if (is_stub()) throw Failure{KVCTS_E_NOT_SUPPORTED, file.string() + " is a stub: it cannot move anything"};

  bind(create_configured_agent_, "nixl_capi_create_configured_agent");
  bind(destroy_agent, "nixl_capi_destroy_agent");
  bind(create_params_, "nixl_capi_create_params");
  bind(params_add_, "nixl_capi_params_add");
  bind(destroy_params_, "nixl_capi_destroy_params");
  bind(create_backend_, "nixl_capi_create_backend");
  bind(create_options, "nixl_capi_create_opt_args");
  bind(destroy_options, "nixl_capi_destroy_opt_args");
  bind(options_add_backend, "nixl_capi_opt_args_add_backend");
  bind(options_set_notification, "nixl_capi_opt_args_set_notif_msg");
  bind(options_set_has_notification, "nixl_capi_opt_args_set_has_notif");
  bind(options_set_skip_merge, "nixl_capi_opt_args_set_skip_desc_merge");
  bind(create_registration_list, "nixl_capi_create_reg_dlist");
  bind(registration_list_add, "nixl_capi_reg_dlist_add_desc");
  bind(destroy_registration_list, "nixl_capi_destroy_reg_dlist");
  bind(register_memory_, "nixl_capi_register_mem");
  bind(deregister_memory, "nixl_capi_deregister_mem");
  bind(get_local_metadata_, "nixl_capi_get_local_md");
  bind(load_remote_metadata_, "nixl_capi_load_remote_md");
  bind(invalidate_remote_metadata_, "nixl_capi_invalidate_remote_md");
  bind(create_transfer_list, "nixl_capi_create_xfer_dlist");
  bind(transfer_list_add, "nixl_capi_xfer_dlist_add_desc");
  bind(destroy_transfer_list, "nixl_capi_destroy_xfer_dlist");
  bind(prepare_list_, "nixl_capi_prep_xfer_dlist");
  bind(release_prepared_list, "nixl_capi_release_xfer_dlist_handle");
  bind(make_request_, "nixl_capi_make_xfer_req");
  bind(create_request_, "nixl_capi_create_xfer_req");
  bind(post_request_, "nixl_capi_post_xfer_req");
  bind(request_status_, "nixl_capi_get_xfer_status");
  bind(release_request, "nixl_capi_release_xfer_req");
  bind(destroy_request, "nixl_capi_destroy_xfer_req");
  bind(telemetry, "nixl_capi_get_xfer_telemetry");
  bind(create_notifications, "nixl_capi_create_notif_map");
  bind(destroy_notifications, "nixl_capi_destroy_notif_map");
  bind(get_notifications, "nixl_capi_get_notifs");
  bind(notifications_size, "nixl_capi_notif_map_size");
  bind(notifications_agent, "nixl_capi_notif_map_get_agent_at");
  bind(notifications_count, "nixl_capi_notif_map_get_notifs_size");
  bind(notifications_get, "nixl_capi_notif_map_get_notif");
  bind(notifications_clear, "nixl_capi_notif_map_clear");
  bind(send_notification, "nixl_capi_gen_notif");

  bind_exact(exact_create_backend_,
             "_ZN9nixlAgent13createBackendERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt13unordered_mapIS5_S5_"
             "St4hashIS5_"
             "ESt8equal_toIS5_ESaISt4pairIS6_S5_EEERP12nixlBackendH");
  bind_exact(exact_register_, "_ZN9nixlAgent11registerMemERK12nixlDescListI12nixlBlobDescEPK21nixlAgentOptionalArgs");
  bind_exact(exact_load_, "_ZN9nixlAgent12loadRemoteMDERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERS5_");
  bind_exact(exact_invalidate_, "_ZN9nixlAgent18invalidateRemoteMDERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  bind_exact(exact_prepare_list_,
             "_ZNK9nixlAgent13prepXferDlistERKNSt7__cxx1112basic_stringIcSt11char_"
             "traitsIcESaIcEEERK12nixlDescListI13nixlBasicDescERP"
             "10nixlDlistHPK21nixlAgentOptionalArgs");
  bind_exact(exact_make_,
             "_ZNK9nixlAgent11makeXferReqERK14nixl_xfer_op_tPK10nixlDlistHRKSt6vectorIiSaIiEES5_SA_"
             "RP12nixlXferReqHPK21nixlAgentOptional"
             "Args");
  bind_exact(exact_create_,
             "_ZNK9nixlAgent13createXferReqERK14nixl_xfer_op_tRK12nixlDescListI13nixlBasicDescES7_RKNSt7__cxx1112basic_"
             "stringIcSt11char_"
             "traitsIcESaIcEEERP12nixlXferReqHPK21nixlAgentOptionalArgs");
  bind_exact(exact_post_, "_ZNK9nixlAgent11postXferReqEP12nixlXferReqHPK21nixlAgentOptionalArgs");
  bind_exact(exact_status_, "_ZNK9nixlAgent13getXferStatusEP12nixlXferReqH");
}

bool NixlLibrary::exact_codes(Agent agent) const {
  return exact_status_ != nullptr && exact_invalidate_ != nullptr &&
         exact_invalidate_(object(agent), "an agent that was never loaded") == NixlStatus::not_found;
}

NixlStatus NixlLibrary::create_agent(const std::string& name, const Config& config, Agent& agent) const {
  return folded(create_configured_agent_(name.c_str(), &config, &agent));
}

NixlStatus NixlLibrary::create_backend(Agent agent, const std::string& plugin,
                                       const std::vector<std::pair<std::string, std::string>>& params,
                                       Backend& backend) const {
  Params list = nullptr;
  if (create_params_(&list) != 0) return NixlStatus::folded;
  for (const auto& [key, value] : params) params_add_(list, key.c_str(), value.c_str());
  NixlStatus status = folded(create_backend_(agent, plugin.c_str(), list, &backend));
  if (status == NixlStatus::folded && exact_create_backend_ != nullptr) {
    Object made = nullptr;
    status = exactly(exact_create_backend_(object(agent), plugin, list, made));
  }
  destroy_params_(list);
  return status;
}

NixlStatus NixlLibrary::register_memory(Agent agent, RegistrationList list, Options options) const {
  if (exact_register_ != nullptr) return exact_register_(object(agent), object(list), options);
  return folded(register_memory_(agent, list, options));
}

NixlStatus NixlLibrary::load_metadata(Agent agent, std::string_view blob, std::string& name) const {
  if (exact_load_ != nullptr) return exact_load_(object(agent), std::string(blob), name);
  char* text = nullptr;
  const NixlStatus status = folded(load_remote_metadata_(agent, blob.data(), blob.size(), &text));
  if (text != nullptr) name = text;
  std::free(text);
  return status;
}

NixlStatus NixlLibrary::local_metadata(Agent agent, std::string& blob) const {
  void* bytes = nullptr;
  std::size_t size = 0;
  const NixlStatus status = folded(get_local_metadata_(agent, &bytes, &size));
  if (status == NixlStatus::success) blob.assign(static_cast<const char*>(bytes), size);
  std::free(bytes);
  return status;
}

NixlStatus NixlLibrary::invalidate(Agent agent, const std::string& name) const {
  if (exact_invalidate_ != nullptr) return exact_invalidate_(object(agent), name);
  return folded(invalidate_remote_metadata_(agent, name.c_str()));
}

NixlStatus NixlLibrary::prepare_list(Agent agent, const std::string& name, TransferList list, PreparedList& prepared,
                                     Options options) const {
  const NixlStatus status = folded(prepare_list_(agent, name.c_str(), list, &prepared, options));
  if (status == NixlStatus::success) return status;
  prepared = nullptr;  // the C call leaves behind a handle without an object
  if (exact_prepare_list_ == nullptr) return status;
  Object made = nullptr;
  return exactly(exact_prepare_list_(object(agent), name, object(list), made, options));
}

NixlStatus NixlLibrary::make_request(Agent agent, NixlOp op, PreparedList local, PreparedList remote,
                                     const std::vector<int>& local_indices, const std::vector<int>& remote_indices,
                                     Request& request, Options options) const {
  const NixlStatus status = folded(make_request_(agent, op, local, local_indices.data(), local_indices.size(), remote,
                                                 remote_indices.data(), remote_indices.size(), &request, options));
  if (status != NixlStatus::folded || exact_make_ == nullptr) return status;
  Object made = nullptr;
  return exactly(
      exact_make_(object(agent), op, object(local), local_indices, object(remote), remote_indices, made, options));
}

NixlStatus NixlLibrary::create_request(Agent agent, NixlOp op, TransferList local, TransferList remote,
                                       const std::string& name, Request& request, Options options) const {
  const NixlStatus status = folded(create_request_(agent, op, local, remote, name.c_str(), &request, options));
  if (status != NixlStatus::folded || exact_create_ == nullptr) return status;
  Object made = nullptr;
  return exactly(exact_create_(object(agent), op, object(local), object(remote), name, made, options));
}

NixlStatus NixlLibrary::post(Agent agent, Request request, Options options) const {
  if (exact_post_ != nullptr) return exact_post_(object(agent), object(request), options);
  return folded(post_request_(agent, request, options));
}

NixlStatus NixlLibrary::status(Agent agent, Request request) const {
  if (exact_status_ != nullptr) return exact_status_(object(agent), object(request));
  return folded(request_status_(agent, request));
}

}  // namespace kvcts::engines::nixl
