#include "golden/sha256.hpp"

#include <sodium.h>

#include <array>

namespace kvcts::golden {

std::string sha256(std::string_view head, std::span<const std::uint8_t> body) {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(head.data()), head.size());
  crypto_hash_sha256_update(&state, body.data(), body.size());
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256_final(&state, hash.data());
  std::string hex(2 * hash.size() + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), hash.data(), hash.size());
  hex.pop_back();
  return hex;
}

std::string sha256(std::span<const std::uint8_t> bytes) { return sha256({}, bytes); }

}  // namespace kvcts::golden
