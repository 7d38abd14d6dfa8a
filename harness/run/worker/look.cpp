#include "run/worker/look.hpp"

#include <algorithm>

namespace kvcts::worker {
namespace {

constexpr std::int64_t line = 64;              // bytes of a copy's end
constexpr std::size_t looked_copies = 64;      // each may cost a page fault: half a microsecond
constexpr std::int64_t whole_bytes = 8 << 10;  // of the last copies
constexpr std::int64_t chunk = 4096;
constexpr std::int64_t everything = 1 << 20;  // a program's case takes hundreds of milliseconds

/// Takes the last `most` bytes before `end` of an allocation, in chunks, the end first. False: the snapshot is full.
bool take(process::SnapshotWriter& snapshot, const Destination& from, std::int64_t end, std::int64_t most) {
  for (const std::int64_t begin = std::max<std::int64_t>(0, end - most); end > begin;) {
    const std::int64_t count = std::min(chunk, end - begin);
    end -= count;
    if (!snapshot.add(from.file, static_cast<std::uint64_t>(from.base + end), from.map + from.base + end,
                      static_cast<std::uint32_t>(count)))
      return false;
  }
  return true;
}

bool inside(std::span<const Destination> destination, const Copy& copy) {
  if (copy.dst < 0 || static_cast<std::size_t>(copy.dst) >= destination.size() || copy.bytes <= 0) return false;
  const std::int64_t extent = destination[static_cast<std::size_t>(copy.dst)].bytes;
  return copy.dst_offset >= 0 && copy.bytes <= extent && copy.dst_offset <= extent - copy.bytes;
}

}  // namespace

void look(process::SnapshotWriter& snapshot, std::span<const Destination> destination, const std::vector<Copy>& copies) {
  const std::size_t step = std::max<std::size_t>(1, (copies.size() + looked_copies - 1) / looked_copies);
  for (std::size_t at = copies.size(); at > 0; at -= std::min(step, at)) {
    const Copy& copy = copies[at - 1];
    if (inside(destination, copy))
      take(snapshot, destination[static_cast<std::size_t>(copy.dst)], copy.dst_offset + copy.bytes,
           std::min(line, copy.bytes));
  }
  std::int64_t room = whole_bytes;
  for (std::size_t at = copies.size(); at > 0 && copies.size() - at < looked_copies && room > 0; --at) {
    const Copy& copy = copies[at - 1];
    if (!inside(destination, copy)) continue;
    const std::int64_t count = std::min(room, copy.bytes);
    take(snapshot, destination[static_cast<std::size_t>(copy.dst)], copy.dst_offset + copy.bytes, count);
    room -= count;
  }
}

void look(process::SnapshotWriter& snapshot, std::span<const Destination> destination) {
  std::int64_t total = 0;
  for (const Destination& one : destination) total += one.bytes;
  const bool all = total <= everything;
  const std::int64_t step = all ? chunk : std::max(chunk, (total / (everything / (2 * line)) + line - 1) / line * line);
  for (auto one = destination.rbegin(); one != destination.rend(); ++one)
    for (std::int64_t end = one->bytes; end > 0; end -= step)
      if (!take(snapshot, *one, end, std::min(end, all ? chunk : line))) return;
}

}  // namespace kvcts::worker
