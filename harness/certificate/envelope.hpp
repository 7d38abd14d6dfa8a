// Signed statements: in-toto Statements (version 1) in DSSE envelopes with one Ed25519 signature.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "certificate/key.hpp"

namespace kvcts::certificate {

/// The bytes to sign for a payload (DSSE 1.0, "PAE").
std::string pre_authentication(std::string_view payload_type, std::string_view payload);

/// A signed, enveloped Statement that `predicate` holds for the thing with this name and SHA-256.
nlohmann::json seal(const std::string& subject, const std::string& sha256, const std::string& predicate_type,
                    const nlohmann::json& predicate, const PrivateKey& key);

struct SealedStatement {
  std::string subject, sha256;
  nlohmann::json predicate;
};
/// The statement in an envelope signed by this key. Throws Error: what was expected, what was found.
SealedStatement open(const nlohmann::json& envelope, const std::string& predicate_type, const PublicKey& key);

}  // namespace kvcts::certificate
