// A peer that stops or dies at a known moment, for cases about how an engine reacts. The initiator's agent signals
// the target's process, whose pid is in the metadata; the engine itself is unchanged. Options of an engine that
// supports it:
//
//   peer_fault      stop (SIGSTOP) or end (SIGKILL); without it nothing happens
//   peer_fault_at   post (just before the request goes out, the default) or midway (when half of its descriptors are done)
//   peer_resume_ms  a stopped peer resumes this long after the request ended, in any way; 0 (default): never
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "engines/support/table.hpp"

namespace kvcts::engines {

class PeerFault {
 public:
  /// Takes its options. Throws Failure(KVCTS_E_INVALID).
  explicit PeerFault(const OpenArgs& args);

  void before_post(pid_t peer);
  void at(pid_t peer, std::uint64_t done, std::uint64_t all);  ///< whenever the engine looks at its request
  void ended(pid_t peer);                                      ///< the request completed or failed

 private:
  enum class Kind { none, stop, end } kind_{Kind::none};
  void strike(pid_t peer);
  bool midway_{false}, struck_{false};
  std::uint64_t resume_ms_{0};
};

}  // namespace kvcts::engines
