// The bytes of all backings in one pass: dense, or only the written pages (sparse backings).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "scene/arena.hpp"

namespace kvcts::scenario {

class Bytes {
 public:
  static constexpr std::int64_t page = 4096;

  Bytes(const std::vector<Backing>& backings, std::uint64_t seed, int pass);
  /// A copy of `begin`, with the missing ones of `backings` appended.
  Bytes(const Bytes& begin, const std::vector<Backing>& backings, std::uint64_t seed, int pass);
  /// Adds the missing ones of `backings`; the list must outlive this object.
  void grow(const std::vector<Backing>& backings, std::uint64_t seed, int pass);

  /// Whether [offset, offset + size) is mapped: region and guards.
  bool mapped(int backing, std::int64_t offset, std::int64_t size) const;
  void read(int backing, std::int64_t offset, std::int64_t size, std::uint8_t* out) const;
  void write(int backing, std::int64_t offset, std::int64_t size, const std::uint8_t* in);
  std::uint8_t at(int backing, std::int64_t offset) const;
  void set(int backing, std::int64_t offset, std::uint8_t value) { write(backing, offset, 1, &value); }

  /// Dense backings: everything, from -guard_below on. Empty for sparse ones.
  const std::vector<std::uint8_t>& dense(int backing) const { return *stores_[static_cast<std::size_t>(backing)].dense; }
  /// Whether both share the same storage of a dense backing, or the same pages of a sparse one: neither has written there
  /// since one was copied.
  bool shares(const Bytes& other, int backing) const;
  /// Start offsets of the written pages of a sparse backing.
  std::vector<std::int64_t> pages(int backing) const;
  /// What a byte holds before the first write.
  std::uint8_t fresh(int backing, std::int64_t offset) const;
  /// The poison of a byte, whatever it holds initially.
  std::uint8_t poison(int backing, std::int64_t offset) const;

 private:
  /// Copy-on-write: snapshots are cheap.
  struct Store {
    std::shared_ptr<std::vector<std::uint8_t>> dense;
    std::map<std::int64_t, std::shared_ptr<std::vector<std::uint8_t>>> sparse;
  };
  void add(const Backing& backing, std::uint64_t seed, int pass);
  /// fresh() of a stretch.
  void fresh(int backing, std::int64_t offset, std::int64_t size, std::uint8_t* out) const;
  std::vector<std::uint8_t>& page_for(int backing, std::int64_t number);
  const std::vector<Backing>* backings_;
  std::vector<std::uint64_t> poison_;
  std::vector<Store> stores_;
};

}  // namespace kvcts::scenario
