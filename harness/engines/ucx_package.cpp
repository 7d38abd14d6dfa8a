// Engine ucx with the UCX of an engine package (KVCTS_ENGINE_PACKAGE, e.g. "ucx-1.22.0") instead of the system's: the
// same plug-in, but the package's libraries are loaded first. The loader reuses a loaded library with the same
// soname, and both versions have the soname libucp.so.0.
#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "engines/support/ucx_path.hpp"
#include "engines/transport/kvcts_transport.h"
#include "engines/transport/packages.hpp"

namespace {

namespace fs = std::filesystem;

void* open_library(const fs::path& file) {
  if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  throw std::runtime_error(dlerror());
}

const kvcts_transport* load(std::uint32_t host_abi) {
  const char* chosen = std::getenv(kvcts::transport::package_variable);
  const std::string package = chosen != nullptr ? chosen : "";
  const fs::path folder = kvcts::transport::package_folder(package);
  if (folder.empty()) throw std::runtime_error(kvcts::transport::package_missing(package));
  static const kvcts::engines::UcxLog log;          // before UCX reads its environment
  open_library(folder / "libucx/lib/libucp.so.0");  // also loads the others from the same folder
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&load), &self) == 0) throw std::runtime_error("cannot find this plug-in's own folder");
  void* plugin = open_library(fs::path(self.dli_fname).parent_path() / "kvcts_engine_ucx.so");
  const auto entry = reinterpret_cast<kvcts_transport_entry_fn>(dlsym(plugin, "kvcts_transport_entry"));
  if (entry == nullptr) throw std::runtime_error("kvcts_engine_ucx.so has no kvcts_transport_entry");
  return entry(host_abi);
}

}  // namespace

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  try {
    return load(host_abi);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvcts_engine_ucx_package: %s\n", error.what());
    return nullptr;
  }
}
