// Shared by the NIXL plug-ins: the one library per process, statuses in the ABI's terms, and lists that free
// themselves.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "engines/nixl/library.hpp"
#include "engines/support/failure.hpp"
#include "engines/transport/packages.hpp"

namespace kvcts::engines::nixl {

inline std::string chosen_package() {
  const char* chosen = std::getenv(transport::package_variable);
  return chosen != nullptr ? chosen : "";
}

/// The one library of this process. Throws Failure(KVCTS_E_NOT_SUPPORTED).
inline const NixlLibrary& library() {
  static const NixlLibrary loaded = [] {
    const std::string name = chosen_package();
    if (name.empty())
      throw Failure{KVCTS_E_NOT_SUPPORTED, std::string(transport::package_variable) + " names no engine package"};
    const auto folder = transport::package_folder(name);
    if (folder.empty()) throw Failure{KVCTS_E_NOT_SUPPORTED, transport::package_missing(name)};
    return NixlLibrary(folder);
  }();
  return loaded;
}

inline std::int32_t status_of(NixlStatus status) {
  switch (status) {
    case NixlStatus::success:
      return KVCTS_OK;
    case NixlStatus::in_progress:
      return KVCTS_IN_PROGRESS;
    case NixlStatus::not_posted:
      return KVCTS_E_NOT_POSTED;
    case NixlStatus::invalid:
      return KVCTS_E_INVALID;
    case NixlStatus::not_found:
      return KVCTS_E_NOT_FOUND;
    case NixlStatus::mismatch:
      return KVCTS_E_MISMATCH;
    case NixlStatus::not_allowed:
      return KVCTS_E_NOT_PERMITTED;
    case NixlStatus::repost_active:
      return KVCTS_E_BUSY;
    case NixlStatus::not_supported:
      return KVCTS_E_NOT_SUPPORTED;
    case NixlStatus::remote_disconnect:
      return KVCTS_E_PEER_LOST;
    case NixlStatus::canceled:
      return KVCTS_E_CANCELED;
    case NixlStatus::backend:
    case NixlStatus::unknown:
    case NixlStatus::folded:
      return KVCTS_E_BACKEND;
  }
  return KVCTS_E_BACKEND;
}

inline Failure failure(NixlStatus status, const std::string& what) {
  return {status_of(status), what + ": " + std::string(name(status)), static_cast<std::int64_t>(status)};
}
inline void check(NixlStatus status, const char* what) {
  if (status != NixlStatus::success) throw failure(status, what);
}

/// The package's version: NIXL does not report its own.
inline const char* package_version() {
  static const std::string version = transport::package_version(chosen_package());
  return version.c_str();
}

/// A NIXL list, freed by its destructor.
class Transfers {
 public:
  explicit Transfers(NixlMemory memory) { library().create_transfer_list(memory, &list_); }
  ~Transfers() { library().destroy_transfer_list(list_); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  /// `device`: 0 for DRAM; for a file its descriptor, and the address is then an offset.
  void add(std::uint64_t address, std::uint64_t bytes, std::uint64_t device = 0) {
    library().transfer_list_add(list_, address, bytes, device);
  }
  TransferList get() const { return list_; }

 private:
  TransferList list_{nullptr};
};

class Registration {
 public:
  explicit Registration(NixlMemory memory) { library().create_registration_list(memory, &list_); }
  Registration(NixlMemory memory, std::uint64_t address, std::uint64_t bytes) : Registration(memory) { add(address, bytes); }
  ~Registration() { library().destroy_registration_list(list_); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  void add(std::uint64_t address, std::uint64_t bytes, std::uint64_t device = 0) {
    library().registration_list_add(list_, address, bytes, device, nullptr, 0);
  }
  RegistrationList get() const { return list_; }

 private:
  RegistrationList list_{nullptr};
};

class CallOptions {
 public:
  explicit CallOptions(Backend backend) {
    library().create_options(&options_);
    library().options_add_backend(options_, backend);
  }
  ~CallOptions() { library().destroy_options(options_); }
  CallOptions(const CallOptions&) = delete;
  CallOptions& operator=(const CallOptions&) = delete;
  Options get() const { return options_; }

 private:
  Options options_{nullptr};
};

}  // namespace kvcts::engines::nixl
