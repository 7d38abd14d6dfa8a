// MANIFEST.json: which golden files exist and what they must contain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kvcts::golden {

/// The one error type of this library: a sentence with what was expected, what was found and what to do.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ManifestFile {
  std::vector<std::string> layouts;  ///< those with this content
  std::string template_text;
  std::string sha256;                           ///< of the file
  std::int64_t bytes{0};                        ///< of the file
  std::map<std::string, std::string> dtypes;    ///< dtype -> digest of its content (golden/kvgold/h5file.py, dtype_digests)
  std::map<std::string, std::string> versions;  ///< generator and libraries that made it
};

struct Manifest {
  std::map<std::string, ManifestFile> files;  ///< by file name
};

/// The file that holds a layout, or files.end().
std::map<std::string, ManifestFile>::const_iterator file_of(const Manifest& manifest, std::string_view layout);

/// Reads and checks <folder>/MANIFEST.json. Throws Error.
Manifest read_manifest(const std::filesystem::path& folder);

/// A whole file, at most `limit` bytes. Throws Error.
std::string read_file(const std::filesystem::path& path, std::int64_t limit);

}  // namespace kvcts::golden
