// SHA-256 (libsodium).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvcts::golden {

/// 64 lower-case hex digits of the SHA-256 of all parts, concatenated.
std::string sha256(std::string_view head, std::span<const std::uint8_t> body = {});
std::string sha256(std::span<const std::uint8_t> bytes);

}  // namespace kvcts::golden
