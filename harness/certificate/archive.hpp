// The one form of a package's bytes: a zip archive that any program opens, and that has no freedom left (names in order,
// nothing compressed, no times, no comments), so that a changed byte is found wherever it is.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace kvcts::certificate {

using Files = std::map<std::string, std::string>;  ///< by name, e.g. "logs/stdout.txt"

/// ZIP (PKWARE APPNOTE 6.3.3: method 0, UTF-8 names, 1980-01-01). Throws Error beyond 65,535 files, 4 GiB or names of 65,535
/// bytes.
std::string archive(const Files& files);
/// Throws Error where `bytes` are not what archive() makes: the first byte that differs, and in which file. Of a checksum
/// that is not that of its file it does not: `contradiction` says so, and whoever knows more of the content says first what
/// changed in it.
Files read_archive(std::string_view bytes, std::string& contradiction);

}  // namespace kvcts::certificate
