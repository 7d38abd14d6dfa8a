#include "device/driver.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <mutex>

namespace kvcts::device {
namespace {

struct Opened {
  std::unique_ptr<Driver> driver;
  std::string reason;
};

Opened open() {
  const char* named = std::getenv("KVCTS_CUDA_DRIVER");
  const std::string path = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, path + " is not here: no CUDA driver is installed"};
  auto out = std::make_unique<Driver>();
  out->path = path;
  std::string missing;
#define KVCTS_DRIVER_LOAD(member, symbol, required, parameters)                    \
  out->member = reinterpret_cast<decltype(out->member)>(::dlsym(library, symbol)); \
  if (required && out->member == nullptr && missing.empty()) missing = symbol;
  KVCTS_DRIVER_FUNCTIONS(KVCTS_DRIVER_LOAD)
#undef KVCTS_DRIVER_LOAD
  if (!missing.empty()) return {nullptr, path + " has no " + missing + ": a driver for CUDA 11 or newer is needed"};
  out->modelled = ::dlsym(library, "kvcts_modelled_driver") != nullptr;
  if (const Status status = out->init(0); status != status::success) {
    return {nullptr, path + " loads, but cuInit returns " + status_name(*out, status)};
  }
  out->driver_version(&out->version);
  int count = 0;
  if (out->device_count(&count) != status::success || count == 0) return {nullptr, path + " finds no device"};
  return {std::move(out), ""};
}

}  // namespace

const Driver* driver(std::string& reason) {
  static const Opened opened = open();
  reason = opened.reason;
  return opened.driver.get();
}

std::string status_name(const Driver& driver, Status status) {
  const char* name = nullptr;
  if (driver.error_name(status, &name) == status::success && name != nullptr) return name;
  return "CUDA error " + std::to_string(status);
}

void check(const Driver& driver, Status status, std::string_view call) {
  if (status == status::success) return;
  throw Error{status, std::string(call) + ": " + status_name(driver, status)};
}

}  // namespace kvcts::device
