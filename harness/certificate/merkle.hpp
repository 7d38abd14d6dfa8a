// A Merkle tree over records, per RFC 9162, section 2.1 (SHA-256; a leaf's hash begins with 0x00, a node's with
// 0x01): one record can be shown and proved without the others.
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
/// The siblings on the path from leaf `index` to the root, lowest first (inclusion proof, 2.1.3.1). index <
/// leaves.size().
std::vector<Digest> proof_of(const std::vector<Digest>& leaves, std::size_t index);
/// The root computed from a leaf and its proof (2.1.3.2). Throws Error if the proof's length does not match index and
/// size.
Digest root_from(const Digest& leaf, std::size_t index, std::size_t size, const std::vector<Digest>& proof);

}  // namespace kvcts::certificate
