// Channels: JSON frames and file descriptors over a socket (the frame format is in protocol.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "process/protocol.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::process {

enum class FrameFault : std::uint8_t {
  eof,        ///< the peer closed the socket between frames
  truncated,  ///< the peer closed the socket within a frame
  oversize,   ///< a length above the limit
  malformed,  ///< no JSON object, nested too deeply, or descriptors where none are allowed
  timeout,    ///< no complete frame in time
  io,         ///< the socket failed
};
std::string_view name(FrameFault fault);

struct FrameError : std::runtime_error {
  FrameError(FrameFault what_kind, const std::string& text) : std::runtime_error(text), fault(what_kind) {}
  FrameFault fault;
};

struct Message {
  nlohmann::json body;
  std::vector<UniqueFd> fds;
};

/// One end of a SOCK_STREAM socketpair, made non-blocking. pump() and flush() never wait; receive() and send() wait
/// at most for their timeout. After a FrameError other than timeout the channel is unusable.
class Channel {
 public:
  struct Options {
    std::uint32_t max_frame_bytes{max_frame};  ///< of frames received
    bool accept_fds{true};                     ///< false: descriptors that a peer sends are dropped by the kernel
  };

  Channel() = default;
  explicit Channel(UniqueFd socket);
  Channel(UniqueFd socket, Options options);

  int fd() const { return socket_.get(); }
  bool open() const { return static_cast<bool>(socket_); }
  void close();

  /// Reads available bytes without waiting, at most one frame. nullopt: no complete frame yet. Throws FrameError.
  std::optional<Message> pump();
  /// Waits for one frame, at most timeout_ms (-1: no limit). Throws FrameError.
  Message receive(int timeout_ms = -1);

  /// Queues a frame. `fds` are duplicated, so the caller keeps its own. Call flush() afterwards.
  void queue(const nlohmann::json& body, std::span<const int> fds = {});
  /// Writes what the socket accepts without waiting. True: nothing is left. Throws FrameError (io; eof if the peer is
  /// gone).
  bool flush();
  bool has_output() const { return !out_.empty(); }
  std::size_t output_bytes() const;
  /// queue(), then flush() until everything is written, at most timeout_ms (-1: no limit).
  void send(const nlohmann::json& body, std::span<const int> fds = {}, int timeout_ms = -1);

 private:
  struct Outgoing {
    std::string bytes;
    std::size_t written{0};
    std::vector<UniqueFd> fds;
  };
  bool read_some(std::size_t wanted);
  std::optional<Message> complete();

  UniqueFd socket_;
  Options options_;
  std::string in_;  ///< header and body of the frame being received
  std::vector<UniqueFd> in_fds_;
  std::optional<Message> pending_;  ///< waiting for its more-fds frames
  std::size_t pending_fds_{0};
  std::deque<Outgoing> out_;
};

/// The two sockets of a connected pair, close-on-exec. Throws std::system_error.
std::pair<UniqueFd, UniqueFd> socket_pair();

/// A pipe for a child's output, close-on-exec: the reading end does not block, the child's is an ordinary stream. Throws
/// std::system_error.
std::pair<UniqueFd, UniqueFd> stream_pipe();

/// JSON text with invalid UTF-8 replaced, so that output of code under test can always be sent and stored.
std::string dump(const nlohmann::json& body);

}  // namespace kvcts::process
