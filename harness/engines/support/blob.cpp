#include "engines/support/blob.hpp"

#define XXH_NO_INLINE_HINTS 1  // its forced inlining fails at -Og
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvcts::engines {
namespace {
constexpr std::uint64_t magic = 0x30617461646d766b;  // "kvmdata0"
}

std::string BlobWriter::finish() {
  const std::uint64_t head[2] = {magic, XXH3_64bits(bytes_.data(), bytes_.size())};
  return std::string(reinterpret_cast<const char*>(head), sizeof head) + bytes_;
}

BlobReader::BlobReader(std::string_view engine, std::string_view blob) {
  std::uint64_t head[2];
  if (blob.size() < sizeof head) {
    throw Failure{KVCTS_E_MISMATCH,
                  "metadata of " + std::to_string(blob.size()) + " bytes is too short; expected at least 16"};
  }
  std::memcpy(head, blob.data(), sizeof head);
  rest_ = blob.substr(sizeof head);
  if (head[0] != magic) throw Failure{KVCTS_E_MISMATCH, "not metadata of one of the suite's engines"};
  if (head[1] != XXH3_64bits(rest_.data(), rest_.size())) {
    throw Failure{KVCTS_E_MISMATCH, "the metadata is damaged or truncated: its checksum does not match"};
  }
  if (const auto other = text(); other != engine) {
    throw Failure{KVCTS_E_MISMATCH, "metadata of engine " + std::string(other) + ", expected " + std::string(engine)};
  }
}

std::string_view BlobReader::take(std::uint64_t bytes) {
  if (bytes > rest_.size()) throw Failure{KVCTS_E_MISMATCH, "the metadata ends too early"};
  const auto part = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return part;
}

void BlobReader::end() const {
  if (!rest_.empty())
    throw Failure{KVCTS_E_MISMATCH, "the metadata is followed by " + std::to_string(rest_.size()) + " extra bytes"};
}

}  // namespace kvcts::engines
