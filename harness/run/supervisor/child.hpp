// Processes of a run as the supervisor sees them, and its link to the launcher that starts and ends them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "process/frames.hpp"
#include "process/launcher.hpp"
#include "process/memory_file.hpp"
#include "process/procfs.hpp"
#include "process/request.hpp"
#include "process/sandbox/sandbox.hpp"
#include "process/status_view.hpp"
#include "run/supervisor/loop.hpp"

namespace kvcts::supervisor {

/// The last bytes of a stream.
class OutputTail {
 public:
  static constexpr std::size_t capacity = 64 * 1024;
  void append(const char* data, std::size_t bytes);
  void clear() { text_.clear(), dropped_ = 0; }
  bool empty() const { return text_.empty(); }
  /// The kept bytes, after a line that counts the missing ones.
  std::string text() const;

 private:
  std::string text_;
  std::uint64_t dropped_{0};
};

class Link;

struct ProcessEnding {
  int status{0};  ///< as wait(2) gives it
  std::int64_t max_rss{0};
  std::int64_t cpu_us{0};
};

/// What a kill found and left alive.
struct Killed {
  std::vector<pid_t> pids;
  nlohmann::json left = nlohmann::json::array();
  std::int64_t ms{0};
};

/// One process: a checker, a worker or a tool. Wakes its executor whenever something happens. Destroying it forgets the
/// process but does not kill it: kill first.
class Child {
 public:
  struct Spec {
    std::vector<std::string> argv;
    nlohmann::json environment = nlohmann::json::object();
    std::string mark;
    std::uint64_t memory_limit{0};
    bool channel{true};       ///< a socket on descriptor 3
    bool status_page{false};  ///< a status page on descriptor 4
    bool accept_fds{false};   ///< may return descriptors (the checker)
    std::uint32_t max_frame_bytes{process::max_frame};
    std::vector<int> more;  ///< further descriptors, after those
    std::string name;       ///< for people: "lane0/worker7"
  };
  Child(Loop& loop, Link& link, Signal& wake, const Spec& spec);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return name_; }
  std::uint64_t id() const { return id_; }
  pid_t pid() const { return pid_; }          ///< on this machine; -1: it runs on another host
  pid_t far_pid() const { return far_pid_; }  ///< there; 0: it runs on this one
  Link& link() const { return link_; }
  const std::string& mark() const { return mark_; }
  process::StatusPage* page() const { return reinterpret_cast<process::StatusPage*>(page_.map.data()); }

  /// Sends a request (adds "seq") without waiting. ended() reports a peer that is gone.
  void request(nlohmann::json body, std::span<const int> fds = {});
  /// The oldest unread reply. Replies must be in order, each with the sequence number of its request.
  std::optional<process::Message> take();
  std::size_t unanswered() const { return sent_ - answered_; }

  bool exited() const { return ending_.has_value(); }
  const std::optional<ProcessEnding>& ending() const { return ending_; }
  /// Exited, closed its channel, or broke the protocol.
  bool ended() const { return ending_.has_value() || fault_.has_value() || failed_.has_value(); }
  const std::optional<process::FrameError>& fault() const { return fault_; }
  /// It died with its launcher: how it ended is unknown.
  bool lost() const { return lost_; }
  /// Then why, if it was lost with its host; "" = it was not.
  const std::string& host_lost() const { return host_lost_; }
  const std::optional<std::string>& start_failure() const { return failed_; }

  void kill();
  const std::optional<Killed>& killed() const { return killed_; }

  /// Stops it, with everything that it started, until resume(). Of those that stopped by themselves only `also` go on.
  void stop();
  void resume(const std::vector<std::uint64_t>& also = {});
  /// What still ran when the launcher gave up stopping it; nothing before the launcher has replied.
  const std::optional<nlohmann::json>& left_moving() const { return left_moving_; }
  /// Commands of processes in its sandbox that belonged to no worker at that moment.
  const std::vector<std::string>& orphans() const { return orphans_; }
  /// A worker counts a completed transfer on its page, then stops itself: an announcement. A stop without that is none.
  void await_announcement();
  bool has_counted() const;  ///< since then
  bool take_announcement();
  /// Of one that was taken: the next one is awaited, of the same transfer. One that has only counted has still to stop.
  void announcement_is_over();
  /// The announcement's StatusPage::freed, as untrusted as the page.
  std::string freed() const;

  /// Reads the rest of the pipes without waiting.
  void drain();
  OutputTail& out() { return out_tail_; }
  OutputTail& err() { return err_tail_; }
  bool streams_closed() const { return !out_ && !err_; }

 private:
  friend class Link;
  void on_event(const nlohmann::json& event);
  void on_channel(std::uint32_t events);
  bool on_stream(process::UniqueFd& fd, Loop::Watch& watch, OutputTail& tail);
  void broken(const process::FrameError& error);

  Loop& loop_;
  Link& link_;
  Signal& wake_;
  std::string name_, mark_, host_lost_;
  std::uint64_t id_{0};
  pid_t pid_{0}, far_pid_{0};
  process::Channel channel_;
  process::MemoryFile page_;
  process::UniqueFd out_, err_;
  Loop::Watch channel_watch_{0}, out_watch_{0}, err_watch_{0};
  bool watching_output_{false}, lost_{false};
  OutputTail out_tail_, err_tail_;
  std::deque<process::Message> inbox_;
  std::uint64_t sent_{0}, answered_{0};
  std::optional<ProcessEnding> ending_;
  std::optional<process::FrameError> fault_;
  std::optional<std::string> failed_;
  std::optional<Killed> killed_;
  std::optional<nlohmann::json> left_moving_;
  std::vector<std::string> orphans_;
  bool stopped_{false}, taken_{false};  ///< an announcement
  std::uint64_t counted_{0};
};

/// Another host of the run, and how to reach it.
struct Host {
  std::string name;                ///< as the user gave it
  std::vector<std::string> start;  ///< words that start kvcts-host there; {} = this machine
  std::string address;             ///< of the rail that engines use; "" = the one over which the hosts talk
};

/// The supervisor's end of a launcher's socket: the run's, the one that is the first process of a sandbox, or one on another
/// host.
class Link {
 public:
  Link(Loop& loop, std::string program, std::string run, std::optional<process::Sandbox> sandbox = std::nullopt);
  /// Reaches a host (process/remote/near.hpp); `program`: kvcts-host. It is met when facts() are there.
  Link(Loop& loop, std::string program, std::string run, const Host& host);
  /// Another launcher on that host. `sandbox`: none if the host has no sandboxes.
  Link(Loop& loop, Link& host, std::optional<process::Sandbox> sandbox);
  ~Link();

  bool sandboxed() const { return sandbox_.has_value(); }
  bool far() const { return host_ != nullptr || !far_.is_null(); }
  /// The link to the host that it is on, or itself.
  Link& host() { return host_ != nullptr ? *host_ : *this; }
  /// Of a host that was met: {name, address, interface, near_address, isolation}. Null before.
  const nlohmann::json& facts() const { return facts_; }
  /// Of a lost one on another host, in words.
  std::string why_lost() const;
  std::size_t starts() const { return starts_; }

  /// The launcher is gone (killed): every child counts as lost. restart() ends what it left behind and starts another.
  bool lost() const { return lost_; }
  /// Processes that there were in the sandbox when it was ended for their number; 0 = it was not.
  std::size_t too_many() const { return too_many_; }
  void restart();
  /// Called every 50 ms. A stopped launcher does not answer: after 2 s it is ended, and so lost.
  void watch();
  /// Closes the socket, so that the launcher ends everything; waits for it, at most `patience_ms`.
  void shut_down(int patience_ms = 10'000);

  /// The pid on the machine, even if the launcher has another one in its sandbox; 0 = not known yet.
  pid_t launcher_pid() const { return sandbox_ ? first_ : launcher_.pid; }
  const std::string& run() const { return run_; }
  bool knows(pid_t pid) const { return pids_.count(pid) != 0 || pid == launcher_.pid || (first_ != 0 && pid == first_); }
  std::size_t started() const { return next_ - 1; }

 private:
  friend class Child;
  std::uint64_t add(Child& child, const process::SpawnRequest& request, std::span<const int> fds);
  void forget(std::uint64_t id);
  void send(const nlohmann::json& body, std::span<const int> fds = {});
  void start();
  void on_socket();
  void lose();
  std::string why_no_start() const;
  void take(nlohmann::json event);
  void end_sandbox();
  void end_marked();

  Loop& loop_;
  std::string program_, run_;
  std::optional<process::Sandbox> sandbox_;
  nlohmann::json far_;   ///< a host, for kvcts-host
  Link* host_{nullptr};  ///< of another launcher there
  nlohmann::json facts_;
  std::string failed_;                 ///< that launcher did not start
  process::LauncherProcess launcher_;  ///< for a sandbox: bubblewrap; for a host: kvcts-host
  pid_t first_{0};                     ///< process 1 of the sandbox
  process::UniqueFd errors_;           ///< what bubblewrap says
  process::Channel channel_;
  Loop::Watch watch_{0};
  std::map<std::uint64_t, Child*> children_;
  std::map<pid_t, std::uint64_t> pids_;
  std::uint64_t next_{1};
  bool lost_{false};
  std::size_t too_many_{0}, starts_{0};
  int stopped_{0};  ///< calls of watch() in a row that found it stopped
};

}  // namespace kvcts::supervisor
