// Reads a status page from outside.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

#include "process/status.hpp"

namespace kvcts::process {

constexpr std::int64_t ns_per_ms = 1'000'000;

/// CLOCK_MONOTONIC in nanoseconds: the clock of status pages and deadlines.
inline std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// A copy of a status page. The page belongs to untrusted code: an unknown phase reads as none, a torn note is flagged.
struct StatusView {
  bool valid{false};  ///< magic found
  std::uint64_t key{0};
  std::optional<Phase> phase;
  std::int64_t since_ns{0};
  std::uint64_t done{0}, total{0};
  std::string note;
  bool torn{false};
};
StatusView view(const StatusPage& page);

/// Starts a case: sets its key and clears the note.
void reset(StatusPage& page, std::uint64_t key);

}  // namespace kvcts::process
