// The canonical bytes of a package: a zip archive that any program opens, with no freedom left (names in order, no
// compression, times or comments), so that every changed byte is detected.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace kvcts::certificate {

using Files = std::map<std::string, std::string>;  ///< by name, e.g. "logs/stdout.txt"

/// ZIP (PKWARE APPNOTE 6.3.3: method 0, UTF-8 names, 1980-01-01). Throws Error beyond 1,000 files or 256 MiB (form.hpp), and
/// for names that are not 1 to 255 printable characters of ASCII.
std::string archive(const Files& files);
/// Throws Error if `bytes` are not what archive() makes: names the first byte that differs, and its file. A wrong
/// file checksum does not throw: it is described in `contradiction`, so that a caller that knows the content can
/// first report what changed in it.
Files read_archive(std::string_view bytes, std::string& contradiction);

}  // namespace kvcts::certificate
