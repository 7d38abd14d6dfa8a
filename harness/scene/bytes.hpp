// The bytes of all buffers in one pass: dense, or only the written pages (sparse buffers).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "scene/address_space.hpp"

namespace kvcts::scenario {

class Bytes {
 public:
  static constexpr std::int64_t page = 4096;

  Bytes(const std::vector<Buffer>& buffers, std::uint64_t seed, int pass);
  /// A copy of `begin`, with the missing ones of `buffers` appended.
  Bytes(const Bytes& begin, const std::vector<Buffer>& buffers, std::uint64_t seed, int pass);
  /// Adds the missing ones of `buffers`; the list must outlive this object.
  void grow(const std::vector<Buffer>& buffers, std::uint64_t seed, int pass);

  /// Whether [offset, offset + size) is mapped: region and guards.
  bool mapped(int buffer, std::int64_t offset, std::int64_t size) const;
  void read(int buffer, std::int64_t offset, std::int64_t size, std::uint8_t* out) const;
  void write(int buffer, std::int64_t offset, std::int64_t size, const std::uint8_t* in);
  std::uint8_t at(int buffer, std::int64_t offset) const;
  void set(int buffer, std::int64_t offset, std::uint8_t value) { write(buffer, offset, 1, &value); }

  /// Dense buffers: everything, from -guard_below on. Empty for sparse ones.
  const std::vector<std::uint8_t>& dense(int buffer) const { return *stores_[static_cast<std::size_t>(buffer)].dense; }
  /// Whether both share the same storage of a dense buffer, or the same pages of a sparse one: neither has written there
  /// since one was copied.
  bool shares(const Bytes& other, int buffer) const;
  /// Start offsets of the written pages of a sparse buffer.
  std::vector<std::int64_t> pages(int buffer) const;
  /// What a byte holds before the first write.
  std::uint8_t fresh(int buffer, std::int64_t offset) const;
  /// The poison of a byte, whatever it holds initially.
  std::uint8_t poison(int buffer, std::int64_t offset) const;

 private:
  /// Copy-on-write: snapshots are cheap.
  struct Store {
    std::shared_ptr<std::vector<std::uint8_t>> dense;
    std::map<std::int64_t, std::shared_ptr<std::vector<std::uint8_t>>> sparse;
  };
  void add(const Buffer& buffer, std::uint64_t seed, int pass);
  /// fresh() of a stretch.
  void fresh(int buffer, std::int64_t offset, std::int64_t size, std::uint8_t* out) const;
  std::vector<std::uint8_t>& page_for(int buffer, std::int64_t number);
  const std::vector<Buffer>* buffers_;
  std::vector<std::uint64_t> poison_;
  std::vector<Store> stores_;
};

}  // namespace kvcts::scenario
