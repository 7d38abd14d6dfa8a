#include "golden/manifest.hpp"
#include "process/json_text.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kvcts::golden {
namespace fs = std::filesystem;

std::string read_file(const fs::path& path, std::int64_t limit) {
  std::error_code fault;
  if (!fs::is_regular_file(path, fault))
    throw Error(path.string() + ": expected a file, found none; restore it from version control");
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path, fault));
  if (fault || bytes > limit) {
    throw Error(path.string() + ": expected at most " + std::to_string(limit) + " bytes, found " + std::to_string(bytes));
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  if (!in.read(text.data(), bytes)) throw Error(path.string() + ": cannot be read to its end");
  return text;
}

std::map<std::string, ManifestFile>::const_iterator file_of(const Manifest& manifest, std::string_view layout) {
  return std::find_if(manifest.files.begin(), manifest.files.end(), [&](const auto& file) {
    return std::find(file.second.layouts.begin(), file.second.layouts.end(), layout) != file.second.layouts.end();
  });
}

Manifest read_manifest(const fs::path& folder) {
  constexpr int known_format = 1;  // kvgold.FORMAT_VERSION
  const fs::path path = folder / "MANIFEST.json";
  const std::string text = read_file(path, std::int64_t{64} << 20);
  Manifest manifest;
  try {
    const auto doc = nlohmann::json::parse(text);
    if (const int format = doc.at("format"); format != known_format) {
      throw Error(path.string() + ": expected format " + std::to_string(known_format) + ", found " + std::to_string(format));
    }
    for (const auto& [name, entry] : doc.at("files").items()) {
      if (name.empty() || name.find('/') != std::string::npos)
        throw Error(path.string() + ": '" + name + "' is not a file name");
      manifest.files[name] = {.layouts = entry.at("layouts"),
                              .template_text = entry.at("template"),
                              .sha256 = entry.at("sha256"),
                              .bytes = entry.at("bytes"),
                              .dtypes = entry.at("dtypes"),
                              .versions = entry.at("versions")};
    }
  } catch (const nlohmann::json::exception& fault) {
    throw Error(path.string() + ": not a manifest (" + to_string(fault) + "); restore it from version control");
  }
  return manifest;
}

}  // namespace kvcts::golden
