// What a worker saw of the destination at the very moment at which completion was reported, before it sent anything. It lies
// in a memory file of the checker, which holds it against what is there later: a byte that differs had not arrived when
// completion was reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvcts::process {

/// Size of the file. Only the pages that are written cost memory.
inline constexpr std::size_t snapshot_file_bytes = (1u << 20) + (1u << 16);

class SnapshotWriter {
 public:
  /// `file`: the whole mapping of the memory file; empty = nobody wants one.
  explicit SnapshotWriter(std::span<std::uint8_t> file = {}) : file_(file) {}
  explicit operator bool() const { return !file_.empty(); }

  /// Drops what was taken before.
  void clear();
  /// Takes bytes that lie at `offset` of memory file `file` (its number in the reply to open). False: there is no room.
  bool add(std::uint32_t file, std::uint64_t offset, const std::uint8_t* bytes, std::uint32_t count);
  /// All is taken.
  void close();

 private:
  std::span<std::uint8_t> file_;
  std::size_t used_{0};
  std::int64_t began_ns_{0};
};

struct SnapshotPiece {
  std::uint32_t file{0};
  std::uint64_t offset{0};
  std::span<const std::uint8_t> bytes;
};

struct SnapshotView {
  std::int64_t began_ns{0};  ///< CLOCK_MONOTONIC, before the first byte was taken
  std::vector<SnapshotPiece> pieces;
};

/// Nothing here is believed: nullopt where none was taken, or where the file is not of this form.
std::optional<SnapshotView> read_snapshot(std::span<const std::uint8_t> file);

}  // namespace kvcts::process
