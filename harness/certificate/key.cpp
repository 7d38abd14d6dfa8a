#include "certificate/key.hpp"

#include <sodium.h>

#include <algorithm>

#include "certificate/error.hpp"
#include "certificate/merkle.hpp"

namespace kvcts::certificate {

namespace {

// DER prefix of the 32 key bytes (RFC 8410, sections 4 and 7).
constexpr std::array<unsigned char, 12> public_head{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
constexpr std::array<unsigned char, 16> private_head{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                                     0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
constexpr std::size_t key_bytes = 32;

void start() {
  static const int ready = sodium_init();
  if (ready < 0) throw Error("cannot initialise libsodium: this machine provides no random numbers");
}

template <std::size_t N>
std::string pem_of(const char* label, const std::array<unsigned char, N>& head, const unsigned char* key) {
  std::array<unsigned char, N + key_bytes> der;
  std::copy(head.begin(), head.end(), der.begin());
  std::copy(key, key + key_bytes, der.begin() + N);
  std::array<char, 128> text;
  sodium_bin2base64(text.data(), text.size(), der.data(), der.size(), sodium_base64_VARIANT_ORIGINAL);
  std::string out = std::string("-----BEGIN ") + label + "-----\n" + text.data() + "\n-----END " + label + "-----\n";
  sodium_memzero(der.data(), der.size());
  sodium_memzero(text.data(), text.size());
  return out;
}

/// The 32 bytes of a key, at `key`. Throws Error.
template <std::size_t N>
void read_pem(std::string_view pem, const char* label, const std::array<unsigned char, N>& head, unsigned char* key) {
  const std::string begin = std::string("-----BEGIN ") + label + "-----", end = std::string("-----END ") + label + "-----";
  std::array<unsigned char, N + key_bytes> der;
  std::size_t bytes = 0;
  const auto from = pem.find(begin), to = pem.find(end);
  const bool framed = from != std::string_view::npos && to != std::string_view::npos && from + begin.size() <= to;
  const std::string_view inner = framed ? pem.substr(from + begin.size(), to - from - begin.size()) : std::string_view();
  const bool fits = framed &&
                    sodium_base642bin(der.data(), der.size(), inner.data(), inner.size(), " \t\r\n", &bytes, nullptr,
                                      sodium_base64_VARIANT_ORIGINAL) == 0 &&
                    bytes == der.size() && std::equal(head.begin(), head.end(), der.begin());
  if (fits) std::copy(der.begin() + N, der.end(), key);
  sodium_memzero(der.data(), der.size());
  if (!fits)
    throw Error(std::string("expected an Ed25519 key in PEM, \"-----BEGIN ") + label + "-----\"" +
                (framed ? ", found another kind of key" : ", found something else"));
}

}  // namespace

PublicKey PublicKey::from_pem(std::string_view pem) {
  start();
  std::array<unsigned char, key_bytes> bytes;
  read_pem(pem, "PUBLIC KEY", public_head, bytes.data());
  // Anyone can sign for a point of small order, and libraries differ over the others that are not of the main group.
  if (crypto_core_ed25519_is_valid_point(bytes.data()) == 0)
    throw Error("expected an Ed25519 key, found one that is no safe point");
  return PublicKey(bytes);
}

std::string PublicKey::pem() const { return pem_of("PUBLIC KEY", public_head, bytes_.data()); }

std::string PublicKey::id() const {
  std::string der(public_head.begin(), public_head.end());
  der.append(bytes_.begin(), bytes_.end());
  return hex(sha256(der));
}

bool PublicKey::verifies(std::string_view message, const Signature& signature) const {
  start();
  // Its first half, a point, as well: versions of libsodium differ from each other and from OpenSSL over one that is not.
  return crypto_core_ed25519_is_valid_point(signature.data()) != 0 &&
         crypto_sign_verify_detached(signature.data(), reinterpret_cast<const unsigned char*>(message.data()),
                                     message.size(), bytes_.data()) == 0;
}

PrivateKey::PrivateKey() {
  start();
  sodium_mlock(bytes_.data(), bytes_.size());  // keep it out of swap, if the machine allows
}

PrivateKey::PrivateKey(PrivateKey&& other) noexcept : PrivateKey() {
  bytes_ = other.bytes_;
  sodium_memzero(other.bytes_.data(), other.bytes_.size());
}

PrivateKey::~PrivateKey() { sodium_munlock(bytes_.data(), bytes_.size()); }

PrivateKey PrivateKey::generate() {
  PrivateKey key;
  std::array<unsigned char, key_bytes> ignored;
  crypto_sign_keypair(ignored.data(), key.bytes_.data());
  return key;
}

PrivateKey PrivateKey::from_pem(std::string_view pem) {
  PrivateKey key;
  std::array<unsigned char, key_bytes> seed, ignored;
  read_pem(pem, "PRIVATE KEY", private_head, seed.data());
  crypto_sign_seed_keypair(ignored.data(), key.bytes_.data(), seed.data());
  sodium_memzero(seed.data(), seed.size());
  return key;
}

PublicKey PrivateKey::public_key() const {
  std::array<unsigned char, key_bytes> bytes;
  crypto_sign_ed25519_sk_to_pk(bytes.data(), bytes_.data());
  return PublicKey(bytes);
}

Signature PrivateKey::sign(std::string_view message) const {
  Signature out;
  crypto_sign_detached(out.data(), nullptr, reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                       bytes_.data());
  return out;
}

std::string PrivateKey::pem() const { return pem_of("PRIVATE KEY", private_head, bytes_.data()); }

}  // namespace kvcts::certificate
