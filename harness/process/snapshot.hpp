// What a worker saw of the destination at the moment completion was reported, before it sent anything. The snapshot
// lies in a memory file of the checker, which compares it with the final content: a byte that differs had not arrived
// when completion was reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvcts::process {

/// Size of the file. Only pages that are written use memory.
inline constexpr std::size_t snapshot_file_bytes = (1u << 20) + (1u << 16);

class SnapshotWriter {
 public:
  /// `file`: the whole mapping of the memory file; empty = no snapshot is wanted.
  explicit SnapshotWriter(std::span<std::uint8_t> file = {}) : file_(file) {}
  explicit operator bool() const { return !file_.empty(); }

  /// Drops the current snapshot.
  void clear();
  /// Records bytes at `offset` of memory file `file` (its number in the reply to open). False: there is no room.
  bool add(std::uint32_t file, std::uint64_t offset, const std::uint8_t* bytes, std::uint32_t count);
  /// Completes the snapshot.
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

/// The file is untrusted: nullopt if it holds no snapshot or is malformed.
std::optional<SnapshotView> read_snapshot(std::span<const std::uint8_t> file);

}  // namespace kvcts::process
