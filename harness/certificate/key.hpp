// Ed25519 keys (libsodium) in the form that other programs read: PEM of PKCS#8 and of SubjectPublicKeyInfo (RFC 8410).
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace kvcts::certificate {

using Signature = std::array<unsigned char, 64>;

class PublicKey {
 public:
  explicit PublicKey(const std::array<unsigned char, 32>& bytes) : bytes_(bytes) {}
  /// Throws Error unless it is one "PUBLIC KEY" of Ed25519.
  static PublicKey from_pem(std::string_view pem);
  std::string pem() const;
  /// SHA-256 of the SubjectPublicKeyInfo in DER, in hexadecimal digits.
  std::string id() const;
  bool verifies(std::string_view message, const Signature& signature) const;
  bool operator==(const PublicKey&) const = default;

 private:
  std::array<unsigned char, 32> bytes_;
};

/// Wiped from memory by its destructor.
class PrivateKey {
 public:
  static PrivateKey generate();
  /// Throws Error unless it is one "PRIVATE KEY" of Ed25519. The error quotes nothing of the text.
  static PrivateKey from_pem(std::string_view pem);
  PrivateKey(PrivateKey&& other) noexcept;
  PrivateKey(const PrivateKey&) = delete;
  PrivateKey& operator=(const PrivateKey&) = delete;
  PrivateKey& operator=(PrivateKey&&) = delete;
  ~PrivateKey();

  PublicKey public_key() const;
  Signature sign(std::string_view message) const;
  /// Write it only to a file that its owner alone can read.
  std::string pem() const;

 private:
  PrivateKey();
  std::array<unsigned char, 64> bytes_{};  ///< seed and public key, as libsodium stores them
};

}  // namespace kvcts::certificate
