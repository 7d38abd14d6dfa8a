// Who a byte is: the answer to "what is this byte, and where does it belong?", and the byte that it must be in a given pass.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "layout/dtype.hpp"
#include "layout/layout.hpp"
#include "scene/arena.hpp"

namespace kvcts::script {

/// Names a Who. Bytes of one row (of one stretch of poison) have consecutive Ids, in runs of 256.
using Id = std::uint32_t;

struct Who {
  enum class Kind : std::uint8_t {
    hole,      ///< a byte that nobody has touched
    unknown,   ///< matches nothing that was ever meant to be anywhere
    constant,  ///< the same in every pass: zero, a pattern
    poison,    ///< of a backing, at an offset
    tag,       ///< byte of the code of an element (a pair of elements for 4-bit codes: `channel` is the even one)
    number,    ///< byte of a decoded number (fp32): of an element and its scales; the channel is exact, also for 4-bit codes
    nibbles,   ///< two halves that belong to different bytes: `pieces[0]` below, `pieces[1]` above
    code,      ///< only inside numbers: a code whose bytes are `pieces`, where they are not those of one element
  };
  Kind kind{Kind::unknown};
  std::uint8_t byte{0};  ///< which byte of the code or number; constant: its value
  layout::Component component{};
  layout::Dtype dtype{};  ///< of the code
  bool high_nibble_first{false};
  bool codes{false};      ///< content `codes` instead of a tag
  bool values{false};     ///< content `values`
  std::uint8_t power{0};  ///< number: how often its scales are in it
  std::uint32_t generation{0};
  std::int64_t kv{0}, layer{0}, token{0}, head{0}, channel{0};
  int backing{-1};         ///< poison
  std::int64_t offset{0};  ///< poison
  /// number: Ids + 1 (0 = none) of the codes in it: of a code's first byte, or of a Kind::code. `whole`: the data code,
  /// where it is not simply the element that the other fields name.
  std::uint32_t whole{0}, scale{0}, global_scale{0};
  std::array<Id, 4> pieces{};  ///< nibbles, code
  std::uint8_t halves{0};      ///< nibbles, code of 4 bits: bit i set = pieces[i] means that byte's high nibble
  bool operator==(const Who&) const = default;
};

inline constexpr Id hole = 0;
inline constexpr Id unknown = 1;

/// Half of a byte: what 4-bit codes are moved as.
struct Nibble {
  Id byte{unknown};
  bool high{false};
  bool operator==(const Nibble&) const = default;
};

/// Every Who once.
class Names {
 public:
  Names();
  Id intern(const Who& who);
  Who at(Id id) const;
  /// Ids given out so far; they are not 0, 1, 2, ...: see each().
  std::size_t count() const;
  /// Runs of Ids; each is rendered as a whole.
  std::size_t chunks() const { return chunks_.size(); }
  /// Calls f(Id) for every Id given out, ascending.
  template <class F>
  void each(F&& f) const {
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      for (unsigned i = 0; i < chunk; ++i) {
        if (chunks_[c].used[i / 64] >> (i % 64) & 1u) f(static_cast<Id>(c * chunk + i));
      }
    }
  }

  /// One half of a byte, in the one way in which each half is named.
  Nibble nibble(Id byte, bool high);
  /// A 4-bit code on its own; `who.channel` is its channel.
  Nibble nibble(const Who& who);
  /// The byte of two halves: intern's Id where they are those of one byte.
  Id join(Nibble low, Nibble high);

  /// The byte in a pass. hole and unknown render as 0. Slow: many bytes go through Rendering.
  std::uint8_t render(Id id, const std::vector<Backing>& backings, std::uint64_t seed, int pass) const;

  static constexpr unsigned chunk = 256;  ///< Ids that lie side by side: bytes of a row, of poison

 private:
  struct Hash {
    std::size_t operator()(const Who& who) const;
  };
  /// 256 Ids; which Who each is follows from the first, but for `nibbles` and `code`, which stand in singles_.
  struct Chunk {
    Who first;
    std::size_t single{0};
    std::array<std::uint64_t, 4> used{};
  };
  Id intern_single(const Who& who);
  Id use(std::size_t chunk_number, unsigned index);

  std::vector<Chunk> chunks_;
  std::unordered_map<Who, std::uint32_t, Hash> index_;  ///< a chunk's first Who -> its number
  std::vector<Who> singles_;
  std::size_t single_chunk_{0};  ///< where the next of them goes
  std::unordered_map<Who, Id, Hash> single_index_;
  std::size_t last_{0};  ///< chunk of the last intern()
};

/// The bytes of all names in one pass, worked out 256 at a time and kept.
class Rendering {
 public:
  Rendering(const Names& names, const std::vector<Backing>& backings, std::uint64_t seed, int pass)
      : names_(names), backings_(backings), seed_(seed), pass_(pass) {}
  std::uint8_t byte(Id id);
  /// Poison of a backing from an offset on; what lies below its lower guard is 0.
  void poison(const Backing& backing, std::int64_t offset, std::span<std::uint8_t> out) const;

 private:
  using Bytes = std::array<std::uint8_t, Names::chunk>;
  void fill(Id first, Bytes& out);
  std::uint32_t code_of(Id reference, layout::Dtype& dtype);
  float number(const Who& who);

  const Names& names_;
  const std::vector<Backing>& backings_;
  std::uint64_t seed_;
  int pass_;
  std::vector<std::unique_ptr<Bytes>> done_;
};

/// The code of an element in a pass, right-aligned: a tag, or what `codes` and `values` say. 4-bit codes: of who.channel
/// alone.
///   codes   code_in_turn(channel + key of the row): along a row every code in turn, from where the row's key says
///   values  the bf16 tag of the same coordinate as a number, rounded to the dtype; both in numbers.hpp
std::uint32_t content_code(const Who& who, std::uint64_t seed, int pass);

/// "K layer 3 token 7 head 1 channel 4, generation 1", "poison of P/kv.L0 + 128", "0x00", "unknown".
std::string words(const Who& who, const std::vector<Backing>& backings);
/// The same with the parts of numbers and of mixed bytes spelled out.
std::string words(Id id, const Names& names, const std::vector<Backing>& backings);

}  // namespace kvcts::script
