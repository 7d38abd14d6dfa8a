#include "process/remote/installed.hpp"

#include <sodium.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "process/installation.hpp"

namespace kvcts::process {

namespace {

namespace fs = std::filesystem;

std::string digest_of(const std::vector<fs::path>& roots) {
  std::vector<std::pair<std::string, fs::path>> files;  // by the name under their root
  std::error_code ignored;
  for (const fs::path& root : roots) {
    if (fs::is_regular_file(root, ignored)) files.emplace_back(root.filename().string(), root);
    for (fs::recursive_directory_iterator at(root, fs::directory_options::follow_directory_symlink, ignored), end;
         !ignored && at != end; at.increment(ignored))
      if (at->is_regular_file(ignored) && at->path().string().find("__pycache__") == std::string::npos)
        files.emplace_back(at->path().lexically_relative(root).string(), at->path());
  }
  std::ranges::sort(files);
  crypto_generichash_state state;
  ::crypto_generichash_init(&state, nullptr, 0, 16);
  const auto add = [&](const std::string& bytes) {
    ::crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  };
  std::string block(1 << 20, '\0');
  for (const auto& [name, path] : files) {
    add(name + '\n');
    std::ifstream in(path, std::ios::binary);
    while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0)
      add(block.substr(0, static_cast<std::size_t>(in.gcount())));
  }
  unsigned char digest[16];
  ::crypto_generichash_final(&state, digest, sizeof digest);
  char text[2 * sizeof digest + 1];
  return ::sodium_bin2hex(text, sizeof text, digest, sizeof digest);
}

}  // namespace

nlohmann::json installed_digests() {
  const fs::path bin = program_folder(), lib = prefix() / "lib" / "kvcts", data = data_folder();
  std::vector<fs::path> programs;
  for (const char* name : {"kvcts-checker", "kvcts-host", "kvcts-launcher", "kvcts-worker"}) programs.push_back(bin / name);
  return {{"programs", digest_of(programs)},
          {"engines", digest_of({lib / "engines"})},
          {"connectors", digest_of({lib / "connectors", data / "connectors"})},
          {"cases", digest_of({data / "cases"})}};
}

}  // namespace kvcts::process
