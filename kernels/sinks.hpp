// Where expected bytes go: into memory, or into a comparison. Tiles are made in memory order in a small buffer that fits the
// first-level cache, so a whole image never exists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/fetch.hpp"
#include "kernels/generate.hpp"
#include "kernels/intervals.hpp"
#include "kernels/isa.hpp"
#include "kernels/pieces.hpp"

namespace kvcts::kernels {

/// Is this too much to be read again from the caches? Then it is written past them, which avoids reading it first.
inline bool past_caches(std::size_t bytes) { return bytes >= std::size_t{32} << 20; }

/// Writes tiles to memory. `past_caches`: the output exceeds the caches and is not read soon.
class Write {
 public:
  Write(std::span<std::uint8_t> memory, bool past_caches) : memory_(memory.data()), past_caches_(past_caches) {}

  /// Where to make bytes that belong to one place, other than in a tile.
  std::uint8_t* direct(std::int64_t at) { return past_caches_ ? nullptr : memory_ + at; }
  void expect(const Pieces&) {}
  void take(const Pieces& pieces, const std::uint8_t* tile) {
    if (past_caches_ && pieces.bytes >= 64) {
      each_piece(pieces, [&](std::int64_t at) {
        isa_.stream(memory_ + at, tile, pieces.bytes);
        tile += pieces.bytes;
      });
      return;
    }
    switch (pieces.bytes) {  // fixed sizes become single moves
      case 1:
        return copy<1>(pieces, tile);
      case 2:
        return copy<2>(pieces, tile);
      case 4:
        return copy<4>(pieces, tile);
      case 8:
        return copy<8>(pieces, tile);
      case 16:
        return copy<16>(pieces, tile);
      case 32:
        return copy<32>(pieces, tile);
      default:
        each_piece(pieces, [&](std::int64_t at) {
          std::memcpy(memory_ + at, tile, pieces.bytes);
          tile += pieces.bytes;
        });
    }
  }
  /// Call when everything is written.
  void finish() {
    if (past_caches_) isa_.drain();
  }
  std::uint8_t* memory() { return memory_; }

 private:
  template <std::size_t bytes>
  void copy(const Pieces& pieces, const std::uint8_t* tile) {
    each_piece(pieces, [&](std::int64_t at) {
      std::memcpy(memory_ + at, tile, bytes);
      tile += bytes;
    });
  }

  std::uint8_t* memory_;
  bool past_caches_;
  const Isa& isa_{best_isa()};
};

/// Counts differing bytes and keeps the first places, in whatever order tiles come.
class Differences {
 public:
  explicit Differences(std::size_t limit) : limit_(limit) {}

  /// n bytes at offset `at`, of which at least one differs.
  void count(const std::uint8_t* seen, const std::uint8_t* expected, std::size_t n, std::int64_t at) {
    wrong_ += static_cast<std::int64_t>(best_isa().count(seen, expected, n));
    for (std::size_t k = 0; k < n; ++k) {
      const std::int64_t offset = at + static_cast<std::int64_t>(k);
      if (first_.size() == limit_ && (limit_ == 0 || offset > first_.front())) return;
      if (seen[k] != expected[k]) keep(offset);
    }
  }
  void add(const Differences& other) {
    wrong_ += other.wrong_;
    for (const std::int64_t offset : other.first_) keep(offset);
  }
  /// Adds `shift` to the places.
  void add(const Difference& other, std::int64_t shift) {
    wrong_ += other.wrong_bytes;
    for (const std::int64_t offset : other.first) keep(offset + shift);
  }
  Difference result() const {
    Difference out{wrong_, first_};
    std::sort(out.first.begin(), out.first.end());
    return out;
  }

 private:
  /// first_ is a heap, the largest offset in front.
  void keep(std::int64_t offset) {
    if (first_.size() == limit_) {
      if (limit_ == 0 || offset > first_.front()) return;
      std::pop_heap(first_.begin(), first_.end());
      first_.pop_back();
    }
    first_.push_back(offset);
    std::push_heap(first_.begin(), first_.end());
  }

  std::size_t limit_;
  std::int64_t wrong_{0};
  std::vector<std::int64_t> first_;
};

/// Compares tiles with what lies in memory.
class Check {
 public:
  Check(std::span<const std::uint8_t> memory, std::size_t limit) : memory_(memory.data()), differences_(limit) {}

  std::uint8_t* direct(std::int64_t) { return nullptr; }
  /// Fetches memory while the tile is made. A processor's own prefetching does as well in one program, and half as well in
  /// another with the same code elsewhere. Short pieces share lines: one prefetch for each costs more than it saves.
  void expect(const Pieces& pieces) {
    if (pieces.bytes < 64) return;
    each_piece(pieces, [&](std::int64_t at) {
      for (std::size_t k = 0; k < pieces.bytes; k += 64) fetch_line(memory_[at + static_cast<std::int64_t>(k)]);
    });
  }
  void take(const Pieces& pieces, const std::uint8_t* tile) {
    if (isa_.equal(memory_ + pieces.at, tile, pieces)) return;
    each_piece(pieces, [&](std::int64_t at) {
      if (std::memcmp(memory_ + at, tile, pieces.bytes) != 0) differences_.count(memory_ + at, tile, pieces.bytes, at);
      tile += pieces.bytes;
    });
  }
  void finish() {}
  const Differences& differences() const { return differences_; }

 private:
  const std::uint8_t* memory_;
  Differences differences_;
  const Isa& isa_{best_isa()};
};

/// Records where tiles belong, and ignores their bytes.
class Cover {
 public:
  static constexpr bool places_only = true;
  explicit Cover(Intervals& covered) : covered_(covered) {}

  std::uint8_t* direct(std::int64_t) { return nullptr; }
  void expect(const Pieces&) {}
  void take(const Pieces& pieces, const std::uint8_t*) {
    each_piece(pieces, [&](std::int64_t at) { covered_.add(at, at + static_cast<std::int64_t>(pieces.bytes)); });
  }
  void finish() {}

 private:
  Intervals& covered_;
};

}  // namespace kvcts::kernels
