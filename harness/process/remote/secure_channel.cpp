#include "process/remote/secure_channel.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace kvcts::process {

using nlohmann::json;

namespace {

constexpr std::size_t length_bytes = 4, header_bytes = crypto_secretstream_xchacha20poly1305_HEADERBYTES,
                      overhead = crypto_secretstream_xchacha20poly1305_ABYTES, unproven_limit = 4096;
constexpr const char* context = "kvctshst";  // of the derived keys
static_assert(std::tuple_size_v<RunKey> == crypto_kdf_KEYBYTES);

void need_sodium() {
  if (::sodium_init() < 0) throw std::runtime_error("libsodium does not start");
}

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

RunKey new_run_key() {
  need_sodium();
  RunKey key{};
  ::randombytes_buf(key.data(), key.size());
  return key;
}

std::string to_hex(const RunKey& key) {
  std::string text(2 * key.size() + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), key.data(), key.size());
  text.pop_back();
  return text;
}

RunKey key_from_hex(const std::string& text) {
  RunKey key{};
  std::size_t got = 0;
  if (::sodium_hex2bin(key.data(), key.size(), text.data(), text.size(), nullptr, &got, nullptr) != 0 || got != key.size() ||
      text.size() != 2 * key.size())
    throw std::runtime_error("expected a key of " + std::to_string(2 * key.size()) + " hexadecimal digits, found " +
                             std::to_string(text.size()) + " characters");
  return key;
}

struct SecureChannel::Streams {
  RunKey receive{};
  crypto_secretstream_xchacha20poly1305_state push{}, pull{};
  ~Streams() { ::sodium_memzero(this, sizeof *this); }
};

SecureChannel::SecureChannel(UniqueFd socket, const RunKey& key, End own)
    : socket_(std::move(socket)), streams_(std::make_unique<Streams>()) {
  need_sodium();
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  RunKey send{};
  const auto derive = [&](RunKey& into, End from) {
    ::crypto_kdf_derive_from_key(into.data(), into.size(), static_cast<std::uint64_t>(from) + 1, context, key.data());
  };
  derive(send, own);
  derive(streams_->receive, own == End::near ? End::far : End::near);
  out_.resize(header_bytes);
  ::crypto_secretstream_xchacha20poly1305_init_push(&streams_->push, bytes_of(out_), send.data());
  ::sodium_memzero(send.data(), send.size());
}

SecureChannel::SecureChannel(SecureChannel&&) noexcept = default;
SecureChannel& SecureChannel::operator=(SecureChannel&&) noexcept = default;
SecureChannel::~SecureChannel() = default;

/// Whether `size` bytes are there.
bool SecureChannel::read_to(std::size_t size) {
  while (in_.size() < size) {
    char buffer[64 * 1024];
    const ssize_t got = ::recv(socket_.get(), buffer, std::min(sizeof buffer, size - in_.size()), 0);
    if (got > 0) {
      in_.append(buffer, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got == 0 || errno == ECONNRESET)
      throw FrameError(in_.empty() ? FrameFault::eof : FrameFault::truncated, "the other host closed the channel");
    throw FrameError(FrameFault::io, std::string("the channel to the other host: ") + std::strerror(errno));
  }
  return true;
}

std::optional<json> SecureChannel::pump() {
  if (!begun_) {
    if (!read_to(header_bytes)) return std::nullopt;
    if (::crypto_secretstream_xchacha20poly1305_init_pull(&streams_->pull, bytes_of(in_), streams_->receive.data()) != 0)
      throw FrameError(FrameFault::malformed, "no header of a stream with this run's key");
    in_.clear();
    begun_ = true;
  }
  if (!read_to(length_bytes)) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, in_.data(), length_bytes);
  const std::size_t limit = proven_ ? max_frame + overhead : unproven_limit;
  if (length < overhead || length > limit)
    throw FrameError(FrameFault::oversize, "a frame of " + std::to_string(length) + " bytes, where " +
                                               std::to_string(overhead) + " to " + std::to_string(limit) + " are possible");
  if (!read_to(length_bytes + length)) return std::nullopt;
  std::string plain(length - overhead, '\0');
  unsigned char tag = 0;
  if (::crypto_secretstream_xchacha20poly1305_pull(&streams_->pull, bytes_of(plain), nullptr, &tag,
                                                   bytes_of(in_) + length_bytes, length, nullptr, 0) != 0)
    throw FrameError(FrameFault::malformed, "a frame that was not encrypted with this run's key, or not the next one");
  in_.clear();
  proven_ = true;
  json body = json::from_msgpack(plain, true, false);
  if (!body.is_object()) throw FrameError(FrameFault::malformed, "a frame that is no JSON object");
  return body;
}

void SecureChannel::queue(const json& body) {
  std::string plain;
  json::to_msgpack(body, plain);
  const auto length = static_cast<std::uint32_t>(plain.size() + overhead);
  if (written_ > 0) out_.erase(0, std::exchange(written_, 0));
  const std::size_t at = out_.size();
  out_.resize(at + length_bytes + length);
  std::memcpy(out_.data() + at, &length, length_bytes);
  ::crypto_secretstream_xchacha20poly1305_push(&streams_->push, bytes_of(out_) + at + length_bytes, nullptr, bytes_of(plain),
                                               plain.size(), nullptr, 0, 0);
}

bool SecureChannel::flush() {
  while (written_ < out_.size()) {
    const ssize_t sent = ::send(socket_.get(), out_.data() + written_, out_.size() - written_, MSG_NOSIGNAL);
    if (sent > 0) {
      written_ += static_cast<std::size_t>(sent);
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    throw FrameError(FrameFault::io, std::string("the channel to the other host: ") + std::strerror(errno));
  }
  out_.clear();
  written_ = 0;
  return true;
}

}  // namespace kvcts::process
