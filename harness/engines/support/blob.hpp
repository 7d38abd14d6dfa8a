// Metadata blobs of the suite's own engines: a magic, the engine's name, the payload, and a checksum that detects all
// damage.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "engines/support/failure.hpp"

namespace kvcts::engines {

/// Appends plain values and strings; finish() seals.
class BlobWriter {
 public:
  explicit BlobWriter(std::string_view engine) { text(engine); }
  template <class T>
  void value(const T& plain) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&plain), sizeof plain);
  }
  void text(std::string_view words) {
    value<std::uint64_t>(words.size());
    bytes_.append(words);
  }
  std::string finish();  ///< magic, checksum, bytes so far

 private:
  std::string bytes_;
};

/// Reads in the same order. Throws Failure(KVCTS_E_MISMATCH) on damage, truncation, another engine or left-over bytes
/// (end()).
class BlobReader {
 public:
  BlobReader(std::string_view engine, std::string_view blob);
  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T plain;
    std::memcpy(&plain, take(sizeof plain).data(), sizeof plain);
    return plain;
  }
  std::string_view text() { return take(value<std::uint64_t>()); }
  void end() const;

 private:
  std::string_view take(std::uint64_t bytes);
  std::string_view rest_;
};

}  // namespace kvcts::engines
