// Where a private key lives: a file readable by its owner only, and next to it the rotations from older keys.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "certificate/key.hpp"

namespace kvcts::certificate {

/// Creates a key in a file that only its owner can read. Throws Error if the file exists or cannot be written.
void create_key(const std::filesystem::path& file, const PrivateKey& key);
/// Throws Error if it is not our key, or if others can read it.
PrivateKey read_key(const std::filesystem::path& file);
/// The public key from a file with either half of a key. Throws Error, like read_key.
PublicKey read_public_key(const std::filesystem::path& file);

/// Replaces the key in the file by a new one. The old key signs the new one (rotations_of), and stays next to it as
/// FILE.<first 16 digits of its id>. If killed at any moment, the file has the old key or the new one. Returns the
/// old key's path. Throws Error.
std::filesystem::path rotate_key(const std::filesystem::path& file);

/// The signed rotations next to a key, FILE.rotations.json, oldest first; empty if there is no such file. Public.
/// Throws Error.
std::vector<nlohmann::json> rotations_of(const std::filesystem::path& file);
/// Whether `rotations` lead from a trusted key to another one. A rotation that its old key did not sign leads
/// nowhere.
bool leads(const std::vector<nlohmann::json>& rotations, const PublicKey& trusted, const PublicKey& to);

}  // namespace kvcts::certificate
