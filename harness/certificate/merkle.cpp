#include "certificate/merkle.hpp"

#include <sodium.h>

#include <algorithm>
#include <bit>
#include <span>

#include "certificate/error.hpp"

namespace kvcts::certificate {

namespace {

Digest node(const Digest& left, const Digest& right) {
  std::array<std::uint8_t, 1 + 2 * sizeof(Digest)> bytes;
  bytes[0] = 1;
  std::copy(left.begin(), left.end(), bytes.begin() + 1);
  std::copy(right.begin(), right.end(), bytes.begin() + 1 + sizeof(Digest));
  Digest out;
  crypto_hash_sha256(out.data(), bytes.data(), bytes.size());
  return out;
}

Digest root(std::span<const Digest> leaves);

/// The RFC's split: the largest power of two below n; n > 1.
std::size_t split(std::size_t n) { return std::bit_floor(n - 1); }

Digest root(std::span<const Digest> leaves) {
  if (leaves.size() == 1) return leaves[0];
  const std::size_t k = split(leaves.size());
  return node(root(leaves.first(k)), root(leaves.subspan(k)));
}

}  // namespace

Digest sha256(std::string_view bytes) {
  Digest out;
  crypto_hash_sha256(out.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return out;
}

std::string hex(const Digest& digest) {
  std::string out(2 * digest.size() + 1, '\0');
  sodium_bin2hex(out.data(), out.size(), digest.data(), digest.size());
  out.pop_back();
  return out;
}

Digest digest_from_hex(std::string_view text) {
  Digest out;
  std::size_t bytes = 0;
  if (text.size() != 2 * out.size() ||
      sodium_hex2bin(out.data(), out.size(), text.data(), text.size(), nullptr, &bytes, nullptr) != 0 ||
      bytes != out.size() || hex(out) != text)
    throw Error("expected a SHA-256 of 64 lower-case hexadecimal digits, found '" + std::string(text.substr(0, 80)) + "'");
  return out;
}

Digest leaf_hash(std::string_view record) {
  crypto_hash_sha256_state state;
  constexpr unsigned char leaf = 0;
  Digest out;
  crypto_hash_sha256_init(&state);
  crypto_hash_sha256_update(&state, &leaf, 1);
  crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(record.data()), record.size());
  crypto_hash_sha256_final(&state, out.data());
  return out;
}

Digest root_of(const std::vector<Digest>& leaves) { return leaves.empty() ? sha256("") : root(leaves); }

}  // namespace kvcts::certificate
