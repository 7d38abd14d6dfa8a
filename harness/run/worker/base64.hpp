// Bytes in JSON text (RFC 4648, with padding).
#pragma once

#include <string>
#include <string_view>

namespace kvcts::worker {

std::string to_base64(std::string_view bytes);
/// Throws std::runtime_error on anything that to_base64 does not write.
std::string from_base64(std::string_view text);

}  // namespace kvcts::worker
