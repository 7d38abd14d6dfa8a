// Where a private key lives: a file of its owner's, and beside it what leads from older keys to it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "certificate/key.hpp"

namespace kvcts::certificate {

/// A new key in a file that only its owner may read. Throws Error: there is something already, or it cannot be written.
void create_key(const std::filesystem::path& file, const PrivateKey& key);
/// Throws Error: no key of ours, or others may read it.
PrivateKey read_key(const std::filesystem::path& file);
/// The public half of a file with either half of a key. Throws Error, as read_key does.
PublicKey read_public_key(const std::filesystem::path& file);

/// A new key takes the place of the one in the file. The old one signs it (rotations_of), and is kept beside it as
/// FILE.<first 16 digits of its id>. Killed at any moment, the file has the old key or the new one. Returns where the old
/// one is. Throws Error.
std::filesystem::path rotate_key(const std::filesystem::path& file);

/// The signed successions beside a key, FILE.rotations.json, oldest first; none where there is no such file. Public. Throws
/// Error.
std::vector<nlohmann::json> rotations_of(const std::filesystem::path& file);
/// Whether `rotations` lead from a key that is trusted to another one. A rotation that its old key did not sign leads
/// nowhere.
bool leads(const std::vector<nlohmann::json>& rotations, const PublicKey& trusted, const PublicKey& to);

}  // namespace kvcts::certificate
