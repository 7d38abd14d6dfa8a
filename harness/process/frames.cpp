#include "process/frames.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "process/status_view.hpp"

namespace kvcts::process {

namespace {

constexpr std::size_t header_bytes = 4;
constexpr std::size_t fds_a_frame = 253;  // SCM_MAX_FD
constexpr std::size_t read_step = 256 * 1024;
constexpr int max_depth = 100;  // dump() and destructors recurse; a peer's nesting must not exhaust our stack
constexpr const char* more_fds_key = "more_fds";

std::uint32_t frame_length(const std::string& in) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < header_bytes; ++i)
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  return length;
}

bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_depth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

[[noreturn]] void fail_io(const std::string& what, int error) {
  const FrameFault fault = error == EPIPE || error == ECONNRESET ? FrameFault::eof : FrameFault::io;
  throw FrameError(fault, what + ": " + std::strerror(error));
}

/// Milliseconds left until `deadline_ns`; -1 = no deadline.
int remaining_ms(std::int64_t deadline_ns) {
  if (deadline_ns < 0) return -1;
  return static_cast<int>(std::clamp<std::int64_t>((deadline_ns - now_ns() + 999'999) / 1'000'000, 0, 1 << 30));
}

std::int64_t deadline_after(int timeout_ms) {
  return timeout_ms < 0 ? -1 : now_ns() + static_cast<std::int64_t>(timeout_ms) * 1'000'000;
}

void wait_for(int fd, short events, std::int64_t deadline_ns) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, remaining_ms(deadline_ns));
    if (ready > 0) return;
    if (ready == 0) throw FrameError(FrameFault::timeout, "no complete frame in time");
    if (errno != EINTR) fail_io("poll", errno);
  }
}

}  // namespace

std::string_view name(FrameFault fault) {
  static constexpr std::array<std::string_view, 6> names{"eof", "truncated", "oversize", "malformed", "timeout", "io"};
  return names[static_cast<std::size_t>(fault)];
}

std::string dump(const nlohmann::json& body) { return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

std::pair<UniqueFd, UniqueFd> stream_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Channel::Channel(UniqueFd socket) : Channel(std::move(socket), Options{}) {}

Channel::Channel(UniqueFd socket, Options options) : socket_(std::move(socket)), options_(options) {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) != 0) fail_io("channel", errno);
}

void Channel::close() {
  socket_.reset();
  out_.clear();
  in_.clear();
  in_fds_.clear();
  pending_.reset();
}

/// Reads up to `wanted` bytes of the current frame, never beyond it: descriptors arrive with the first byte of their
/// own frame. Returns false if no bytes are available.
bool Channel::read_some(std::size_t wanted) {
  const std::size_t had = in_.size();
  wanted = std::min(wanted, read_step);
  in_.resize(had + wanted);
  iovec part{in_.data() + had, wanted};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * fds_a_frame)];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (options_.accept_fds) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const int error = errno;
  in_.resize(had + (got > 0 ? static_cast<std::size_t>(got) : 0));
  if (got < 0) {
    if (error == EAGAIN || error == EWOULDBLOCK) return false;
    fail_io("receive", error);
  }
  if (options_.accept_fds) {
    for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr; entry = CMSG_NXTHDR(&header, entry)) {
      if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      std::array<int, fds_a_frame> received{};
      std::memcpy(received.data(), CMSG_DATA(entry), std::min(count, fds_a_frame) * sizeof(int));
      for (std::size_t i = 0; i < std::min(count, fds_a_frame); ++i) in_fds_.emplace_back(received[i]);
    }
  }
  if (got == 0) {
    if (had == 0 && !pending_) throw FrameError(FrameFault::eof, "the peer closed the channel");
    throw FrameError(FrameFault::truncated,
                     "the peer closed the channel after " + std::to_string(had) + " bytes of a frame");
  }
  return true;
}

std::optional<Message> Channel::complete() {
  const std::string_view text(in_.data() + header_bytes, in_.size() - header_bytes);
  if (too_deep(text))
    throw FrameError(FrameFault::malformed, "a frame nests deeper than " + std::to_string(max_depth) + " levels");
  Message message;
  message.body = nlohmann::json::parse(text, nullptr, false);
  if (message.body.is_discarded() || !message.body.is_object())
    throw FrameError(FrameFault::malformed, "expected a JSON object of " + std::to_string(text.size()) + " bytes, found '" +
                                                std::string(text.substr(0, 80)) + "'");
  message.fds = std::move(in_fds_);
  in_fds_.clear();
  if (in_.capacity() > read_step) in_ = std::string();
  in_.clear();

  if (pending_) {
    if (message.body.value("op", "") != "more-fds" || message.fds.empty() || message.fds.size() > pending_fds_)
      throw FrameError(FrameFault::malformed, "expected a frame with " + std::to_string(pending_fds_) + " more descriptors");
    pending_fds_ -= message.fds.size();
    for (UniqueFd& fd : message.fds) pending_->fds.push_back(std::move(fd));
    if (pending_fds_ != 0) return std::nullopt;
    return std::exchange(pending_, std::nullopt);
  }
  if (const auto more = message.body.find(more_fds_key); more != message.body.end()) {
    if (!options_.accept_fds || !more->is_number_unsigned() || more->get<std::uint64_t>() > 1u << 20)
      throw FrameError(FrameFault::malformed, "a frame announces more descriptors than allowed");
    pending_fds_ = more->get<std::size_t>();
    message.body.erase(more_fds_key);
    if (pending_fds_ != 0) {
      pending_ = std::move(message);
      return std::nullopt;
    }
  }
  return message;
}

std::optional<Message> Channel::pump() {
  for (;;) {
    if (in_.size() < header_bytes) {
      if (!read_some(header_bytes - in_.size())) return std::nullopt;
      if (in_.size() < header_bytes) continue;
    }
    const std::uint32_t length = frame_length(in_);
    if (length > options_.max_frame_bytes)
      throw FrameError(FrameFault::oversize, "expected a frame of at most " + std::to_string(options_.max_frame_bytes) +
                                                 " bytes, found a length of " + std::to_string(length));
    const std::size_t whole = header_bytes + length;
    if (in_.size() < whole) {
      if (!read_some(whole - in_.size())) return std::nullopt;
      continue;
    }
    if (auto message = complete()) return message;
  }
}

Message Channel::receive(int timeout_ms) {
  const std::int64_t deadline = deadline_after(timeout_ms);
  for (;;) {
    if (auto message = pump()) return std::move(*message);
    wait_for(socket_.get(), POLLIN, deadline);
  }
}

void Channel::queue(const nlohmann::json& body, std::span<const int> fds) {
  const auto add = [&](std::string text, std::span<const int> own) {
    if (text.size() > max_frame)
      throw FrameError(FrameFault::oversize, "a frame of " + std::to_string(text.size()) + " bytes exceeds the limit of " +
                                                 std::to_string(max_frame));
    Outgoing frame;
    const auto length = static_cast<std::uint32_t>(text.size());
    frame.bytes.reserve(header_bytes + text.size());
    for (std::size_t i = 0; i < header_bytes; ++i) frame.bytes.push_back(static_cast<char>(length >> (8 * i) & 0xff));
    frame.bytes += text;
    for (const int fd : own) {
      frame.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
      if (!frame.fds.back()) fail_io("descriptor " + std::to_string(fd) + " of a frame", errno);
    }
    out_.push_back(std::move(frame));
  };
  if (fds.size() <= fds_a_frame) {
    add(dump(body), fds);
    return;
  }
  nlohmann::json first = body;
  first[more_fds_key] = fds.size() - fds_a_frame;
  add(dump(first), fds.subspan(0, fds_a_frame));
  for (std::size_t i = fds_a_frame; i < fds.size(); i += fds_a_frame)
    add(R"({"op":"more-fds"})", fds.subspan(i, std::min(fds_a_frame, fds.size() - i)));
}

bool Channel::flush() {
  while (!out_.empty()) {
    Outgoing& frame = out_.front();
    iovec part{frame.bytes.data() + frame.written, frame.bytes.size() - frame.written};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * fds_a_frame)];
    if (frame.written == 0 && !frame.fds.empty()) {
      std::array<int, fds_a_frame> raw{};
      for (std::size_t i = 0; i < frame.fds.size(); ++i) raw[i] = frame.fds[i].get();
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(sizeof(int) * frame.fds.size());
      std::memset(control, 0, header.msg_controllen);
      cmsghdr* entry = CMSG_FIRSTHDR(&header);
      entry->cmsg_level = SOL_SOCKET;
      entry->cmsg_type = SCM_RIGHTS;
      entry->cmsg_len = CMSG_LEN(sizeof(int) * frame.fds.size());
      std::memcpy(CMSG_DATA(entry), raw.data(), sizeof(int) * frame.fds.size());
    }
    const ssize_t sent = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      // ETOOMANYREFS: too many descriptors in flight; clears once the peer has received some.
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS) return false;
      fail_io("send", errno);
    }
    frame.written += static_cast<std::size_t>(sent);
    frame.fds.clear();
    if (frame.written == frame.bytes.size()) out_.pop_front();
  }
  return true;
}

std::size_t Channel::output_bytes() const {
  std::size_t total = 0;
  for (const Outgoing& frame : out_) total += frame.bytes.size() - frame.written;
  return total;
}

void Channel::send(const nlohmann::json& body, std::span<const int> fds, int timeout_ms) {
  const std::int64_t deadline = deadline_after(timeout_ms);
  queue(body, fds);
  while (!flush()) wait_for(socket_.get(), POLLOUT, deadline);
}

}  // namespace kvcts::process
