// The supervisor's end of a host: to the supervisor it is a launcher; what a launcher does happens on the other host.
//
// near starts far there (ssh, srun), gives it the key and its own addresses on standard input, and accepts the one
// connection that proves to have the key. Then both relay:
//
//   supervisor  -- line: a launcher's socket (launcher.hpp) --  near  == secure channel ==  far  -- socket --  launcher
//               -- channel, pipes, status page of a child --  near  ==                ==  far  -- the same --  child
//
// A line more than a launcher's requests: {op:"line", sandbox:{granted, named, hidden} or null} + a socket: another launcher
// there, in that sandbox, whose line that socket is. The first event is {event:"host", name, address, interface, isolation,
// near_name, near_address, near_interface}. Pids are those of the other host: "spawned" and "exit" have pid -1 and far_pid.
// Descriptors that a child there sends stay there: here they are empty files that stand for them, until {op:"close", key} of
// the same child's case.
// Clocks stay apart, too: a status page's time is that of its arrival here.
// Whatever ends the channel (10 s of silence too) ends near, with the reason on standard error; far then ends all there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "process/unique_fd.hpp"

namespace kvcts::process {

/// `host`: {name, start: [words that start far]}. Serves the supervisor on `socket`; returns an exit status.
int run_near(UniqueFd socket, const nlohmann::json& host);

/// Between words of life, and how long without any until the other host counts as lost.
inline constexpr int alive_ms = 500, silence_ms = 10'000;

/// How long the other host has been silent while this process looked: what itself was stopped meanwhile, or waited for a
/// processor, has not listened.
class Silence {
 public:
  void end() { ms_ = 0; }
  bool too_long(std::int64_t now_ms) {
    ms_ += std::min<std::int64_t>(now_ms - std::exchange(looked_ms_, now_ms), 2 * alive_ms);
    return ms_ > silence_ms;
  }

 private:
  std::int64_t ms_{0}, looked_ms_{0};
};

}  // namespace kvcts::process
