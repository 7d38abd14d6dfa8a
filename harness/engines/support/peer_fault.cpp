#include "engines/support/peer_fault.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace kvcts::engines {
namespace {

using namespace std::chrono_literals;

/// The state letter in /proc/PID/stat; 'X' if there is no such process.
char state(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto end = line.rfind(") ");
  return end == std::string::npos || end + 2 >= line.size() ? 'X' : line[end + 2];
}

}  // namespace

PeerFault::PeerFault(const OpenArgs& args) {
  const std::string kind = args.take("peer_fault", "");
  const std::string when = args.take("peer_fault_at", "post");
  resume_ms_ = args.take_number("peer_resume_ms", 0);
  if (kind != "" && kind != "stop" && kind != "end")
    throw Failure{KVCTS_E_INVALID, "peer_fault is \"" + kind + "\", expected stop or end"};
  if (when != "post" && when != "midway")
    throw Failure{KVCTS_E_INVALID, "peer_fault_at is \"" + when + "\", expected post or midway"};
  kind_ = kind == "stop" ? Kind::stop : kind == "end" ? Kind::end : Kind::none;
  midway_ = when == "midway";
}

void PeerFault::before_post(pid_t peer) {
  struck_ = false;
  if (!midway_) strike(peer);
}

void PeerFault::at(pid_t peer, std::uint64_t done, std::uint64_t all) {
  if (midway_ && !struck_ && done * 2 >= all) strike(peer);
}

void PeerFault::strike(pid_t peer) {
  if (kind_ == Kind::none || struck_) return;
  if (peer == getpid()) throw Failure{KVCTS_E_NOT_SUPPORTED, "peer_fault needs a peer in another process"};
  struck_ = true;
  kill(peer, kind_ == Kind::stop ? SIGSTOP : SIGKILL);
  const auto arrived = [&] {
    const char now = state(peer);
    return now == 'X' || now == 'Z' || (kind_ == Kind::stop && (now == 'T' || now == 't'));
  };
  for (const auto end = std::chrono::steady_clock::now() + 2s; !arrived() && std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(100us);
  }
}

void PeerFault::ended(pid_t peer) {
  if (kind_ != Kind::stop || !struck_ || resume_ms_ == 0) return;
  struck_ = false;
  std::thread([peer, wait = std::chrono::milliseconds(resume_ms_)] {
    std::this_thread::sleep_for(wait);
    kill(peer, SIGCONT);
  }).detach();
}

}  // namespace kvcts::engines
