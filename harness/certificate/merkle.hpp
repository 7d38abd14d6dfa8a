// A Merkle tree over records, per RFC 9162, section 2.1 (SHA-256; a leaf's hash begins with 0x00, a node's with 0x01).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvcts::certificate {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view bytes);
std::string hex(const Digest& digest);
/// Throws Error unless `text` is 64 lower-case hexadecimal digits.
Digest digest_from_hex(std::string_view text);

/// Hash of one record.
Digest leaf_hash(std::string_view record);
/// Root of the tree with these leaf hashes; without leaves: SHA-256 of nothing.
Digest root_of(const std::vector<Digest>& leaves);

}  // namespace kvcts::certificate
