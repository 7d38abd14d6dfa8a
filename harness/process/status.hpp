// The status page: what a worker is doing, readable from outside even when it spins, is stopped or dead.
#pragma once

#include <atomic>
#include <cstdint>

#include "process/phase.hpp"

namespace kvcts::process {

/// Lives in one shared page. The worker writes; `sequence` is odd while the note changes.
struct StatusPage {
  static constexpr std::uint64_t magic_value = 0x6b766374732d7374;  // "kvcts-st"
  std::uint64_t magic{magic_value};
  std::atomic<std::uint64_t> key{0};    ///< case
  std::atomic<std::uint32_t> phase{0};  ///< kvcts::Phase
  std::atomic<std::uint32_t> sequence{0};
  std::atomic<std::int64_t> phase_since_ns{0};  ///< CLOCK_MONOTONIC
  std::atomic<std::uint64_t> done{0};           ///< progress in bytes, descriptors or tokens; the note says which
  std::atomic<std::uint64_t> total{0};          ///< 0 = unknown
  std::atomic<std::uint64_t> completions{0};    ///< transfers that were reported complete: announced by a stop
  /// What a connector program's producer no longer needs, as it says before its transfer is over: [{request, word}] as JSON;
  /// announced by a stop, too. "": the transfer is complete.
  char freed[512]{};
  char note[1024]{};  ///< e.g. "reader flashinfer-decode: thread block 2 of 8, 4294967192 tokens"
};

/// Passed to connectors, engine sessions and readers to report progress. Cheap: plain atomic stores.
class Progress {
 public:
  explicit Progress(StatusPage* page = nullptr) : page_(page) {}
  void enter(Phase phase);
  void set(std::uint64_t done, std::uint64_t total);
  void add(std::uint64_t done);
  void note(const char* text);

 private:
  StatusPage* page_;
};

}  // namespace kvcts::process
