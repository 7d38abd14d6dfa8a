// Names a byte: what it is, where it belongs, and its value in a given pass.
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
#include "scene/address_space.hpp"

namespace kvcts::scenario {

/// Names a Symbol. Bytes of one row (of one stretch of poison) have consecutive Ids, in runs of 256.
using SymbolId = std::uint32_t;

struct Symbol {
  enum class Kind : std::uint8_t {
    hole,      ///< an untouched byte
    unknown,   ///< matches nothing that was ever meant to be anywhere
    constant,  ///< the same in every pass: zero, a pattern
    poison,    ///< of a buffer, at an offset
    tag,       ///< byte of the code of an element (a pair of elements for 4-bit codes: `channel` is the even one)
    number,    ///< byte of a decoded number (fp32): of an element and its scales; the channel is exact, also for 4-bit codes
    nibbles,   ///< two halves from different bytes: `pieces[0]` low, `pieces[1]` high
    code,      ///< only inside numbers: a code whose bytes are `pieces`, when they do not come from one element
  };
  Kind kind{Kind::unknown};
  std::uint8_t byte{0};  ///< which byte of the code or number; constant: its value
  layout::Component component{};
  layout::Dtype dtype{};  ///< of the code
  bool high_nibble_first{false};
  bool codes{false};      ///< content `codes` instead of a tag
  bool values{false};     ///< content `values`
  std::uint8_t power{0};  ///< number: how many times its scales are applied
  std::uint32_t generation{0};
  std::int64_t kv{0}, layer{0}, token{0}, head{0}, channel{0};
  int buffer{-1};          ///< poison
  std::int64_t offset{0};  ///< poison
  /// number: Ids + 1 (0 = none) of its codes: the first byte of a code, or a Kind::code. `whole`: the data code, where it is
  /// not simply the element that the other fields name.
  std::uint32_t whole{0}, scale{0}, global_scale{0};
  std::array<SymbolId, 4> pieces{};  ///< nibbles, code
  std::uint8_t halves{0};            ///< nibbles, code of 4 bits: bit i set = pieces[i] means that byte's high nibble
  bool operator==(const Symbol&) const = default;
};

inline constexpr SymbolId hole = 0;
inline constexpr SymbolId unknown = 1;

/// Half a byte: the unit in which 4-bit codes move.
struct Nibble {
  SymbolId byte{unknown};
  bool high{false};
  bool operator==(const Nibble&) const = default;
};

/// Every Symbol once.
class SymbolTable {
 public:
  SymbolTable();
  SymbolId intern(const Symbol& symbol);
  Symbol at(SymbolId id) const;
  /// Number of Ids issued; they are not 0, 1, 2, ...: see each().
  std::size_t count() const;
  /// Runs of Ids; each is rendered as a whole.
  std::size_t chunks() const { return chunks_.size(); }
  /// Calls f(Id) for every issued SymbolId, ascending.
  template <class F>
  void each(F&& f) const {
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      for (unsigned i = 0; i < chunk; ++i) {
        if (chunks_[c].used[i / 64] >> (i % 64) & 1u) f(static_cast<SymbolId>(c * chunk + i));
      }
    }
  }

  /// Half of a byte, under its one canonical name.
  Nibble nibble(SymbolId byte, bool high);
  /// A 4-bit code on its own; `who.channel` is its channel.
  Nibble nibble(const Symbol& symbol);
  /// The byte made of two halves: intern's SymbolId where both come from one byte.
  SymbolId join(Nibble low, Nibble high);

  /// The byte in a pass. hole and unknown render as 0. Slow: use Rendering for many bytes.
  std::uint8_t render(SymbolId id, const std::vector<Buffer>& buffers, std::uint64_t seed, int pass) const;

  static constexpr unsigned chunk = 256;  ///< consecutive Ids: bytes of a row, of poison

 private:
  struct Hash {
    std::size_t operator()(const Symbol& symbol) const;
  };
  /// 256 Ids; the first determines the Symbol of each, except `nibbles` and `code`, which are in singles_.
  struct Chunk {
    Symbol first;
    std::size_t single{0};
    std::array<std::uint64_t, 4> used{};
  };
  SymbolId intern_single(const Symbol& symbol);
  SymbolId use(std::size_t chunk_number, unsigned index);

  std::vector<Chunk> chunks_;
  std::unordered_map<Symbol, std::uint32_t, Hash> index_;  ///< a chunk's first Symbol -> its number
  std::vector<Symbol> singles_;
  std::size_t single_chunk_{0};  ///< where the next single goes
  std::unordered_map<Symbol, SymbolId, Hash> single_index_;
  std::size_t last_{0};  ///< chunk of the last intern()
};

/// The bytes of all names in one pass, computed 256 at a time and cached.
class Rendering {
 public:
  Rendering(const SymbolTable& symbols, const std::vector<Buffer>& buffers, std::uint64_t seed, int pass)
      : symbols_(symbols), buffers_(buffers), seed_(seed), pass_(pass) {}
  std::uint8_t byte(SymbolId id);
  /// Poison of a buffer from an offset; 0 below its lower guard.
  void poison(const Buffer& buffer, std::int64_t offset, std::span<std::uint8_t> out) const;

 private:
  using Bytes = std::array<std::uint8_t, SymbolTable::chunk>;
  void fill(SymbolId first, Bytes& out);
  std::uint32_t code_of(SymbolId reference, layout::Dtype& dtype);
  float number(const Symbol& symbol);

  const SymbolTable& symbols_;
  const std::vector<Buffer>& buffers_;
  std::uint64_t seed_;
  int pass_;
  std::vector<std::unique_ptr<Bytes>> done_;
};

/// The code of an element in a pass, right-aligned: a tag, or what `codes` and `values` define. 4-bit codes: who.channel's
/// only.
///   codes   code_in_turn(channel + key of the row): every code in turn along a row; the row's key sets the start
///   values  the bf16 tag of the same coordinate as a number, rounded to the dtype; both in numbers.hpp
std::uint32_t content_code(const Symbol& symbol, std::uint64_t seed, int pass);

/// "K layer 3 token 7 head 1 channel 4, generation 1", "poison of P/kv.L0 + 128", "0x00", "unknown".
std::string to_string(const Symbol& symbol, const std::vector<Buffer>& buffers);
/// The same with the parts of numbers and of mixed bytes spelled out.
std::string to_string(SymbolId id, const SymbolTable& symbols, const std::vector<Buffer>& buffers);

}  // namespace kvcts::scenario
