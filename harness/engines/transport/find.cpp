// Finds plug-ins relative to the running program, so that an installed tree can be moved.
#include <algorithm>
#include <set>

#include "engines/transport/session.hpp"
#include "process/installation.hpp"

namespace kvcts::transport {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "kvcts_engine_";

/// Folders from the environment first, then this installation's.
std::vector<fs::path> folders(std::size_t* foreign = nullptr) {
  std::vector<fs::path> result = process::folders_of("KVCTS_ENGINE_PATH");
  if (foreign != nullptr) *foreign = result.size();
  result.push_back(process::prefix() / "lib/kvcts/engines");
  if (const fs::path installed = process::prefix() / KVCTS_ENGINE_FOLDER; installed != result.back())
    result.push_back(installed);
  return result;
}

}  // namespace

fs::path find_plugin(std::string_view stem) {
  if (stem.find('/') != std::string_view::npos) {
    if (std::error_code error; fs::is_regular_file(stem, error)) return stem;
    throw TransportError(Code::absent, "there is no plug-in file " + std::string(stem));
  }
  std::string searched;
  for (const auto& folder : folders()) {
    const fs::path file = folder / (std::string(stem) + ".so");
    if (std::error_code error; fs::is_regular_file(file, error)) return file;
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  throw TransportError(Code::absent, "there is no plug-in " + std::string(stem) + ".so in " + searched +
                                         "; build it, or name its folder in KVCTS_ENGINE_PATH");
}

bool is_own_plugin(std::string_view stem) {
  std::size_t foreign = 0;
  const auto all = folders(&foreign);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::error_code error; fs::is_regular_file(all[i] / (std::string(stem) + ".so"), error))
      return i >= foreign && stem.find('/') == std::string_view::npos;
  }
  return false;
}

std::vector<std::string> list_plugins() {
  std::set<std::string> stems;
  for (const auto& folder : folders()) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const auto& file = entry.path();
      if (file.extension() == ".so" && file.stem().string().starts_with(prefix)) stems.insert(file.stem().string());
    }
  }
  return {stems.begin(), stems.end()};
}

}  // namespace kvcts::transport
