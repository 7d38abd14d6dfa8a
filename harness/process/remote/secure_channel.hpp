// A channel to another host: encrypted frames over TCP, for those who have the run's key.
//
// Frame = u32 length (little endian) + ciphertext of a JSON object in MessagePack (for bytes as they are). The ciphertext is
// libsodium's secretstream (XChaCha20-Poly1305): a frame that was changed, left out, repeated or exchanged ends the channel.
// Each direction has a key of its own, derived from the run's, and begins with the stream's header. Who lacks the key
// cannot write a frame that is accepted, nor read one.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "process/frames.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::process {

using RunKey = std::array<std::uint8_t, 32>;
RunKey new_run_key();
std::string to_hex(const RunKey& key);
/// Throws std::runtime_error.
RunKey key_from_hex(const std::string& text);

enum class End : std::uint8_t { near, far };  ///< near: the supervisor's

/// pump() and flush() never wait. After a FrameError the channel is unusable.
class SecureChannel {
 public:
  /// `socket`: connected, becomes non-blocking. Nothing is sent before flush().
  SecureChannel(UniqueFd socket, const RunKey& key, End own);
  SecureChannel(SecureChannel&&) noexcept;
  SecureChannel& operator=(SecureChannel&&) noexcept;
  ~SecureChannel();

  int fd() const { return socket_.get(); }
  /// The peer has the key: a frame of it was accepted. Until then frames are at most 4 KiB.
  bool proven() const { return proven_; }
  /// Reads what there is, at most one frame. Throws FrameError: eof, truncated, oversize, malformed (also: not encrypted
  /// with the key), io.
  std::optional<nlohmann::json> pump();
  void queue(const nlohmann::json& body);
  /// True: nothing is left.
  bool flush();
  std::size_t output_bytes() const { return out_.size() - written_; }

 private:
  struct Streams;
  bool read_to(std::size_t size);

  UniqueFd socket_;
  std::unique_ptr<Streams> streams_;
  std::string in_, out_;
  std::size_t written_{0};
  bool begun_{false}, proven_{false};
};

}  // namespace kvcts::process
