#include "scene/symbols.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "kernels/poison.hpp"
#include "kernels/tag.hpp"
#include "layout/checked.hpp"
#include "scene/numbers.hpp"

namespace kvcts::scenario {

using layout::checked::floor_to;

namespace {

using Kind = Symbol::Kind;
using layout::Component;

constexpr std::int64_t run = SymbolTable::chunk;

bool single(const Symbol& who) { return who.kind == Kind::nibbles || who.kind == Kind::code; }
bool is_pair(const Symbol& who) { return who.kind == Kind::tag && layout::bits(who.dtype) == 4; }

/// Bytes of one step along the channels of a chunk, and channels of that step.
struct Pitch {
  int bytes{1}, channels{1};
};
Pitch pitch_of(const Symbol& who) {
  if (who.kind == Kind::number) return {4, 1};
  const int width = layout::bits(who.dtype);
  return width == 4 ? Pitch{1, 2} : Pitch{width / 8, 1};
}

/// The first Symbol of the chunk, and the place of `who` in it.
Symbol first_of(const Symbol& who, unsigned& index) {
  Symbol first = who;
  switch (who.kind) {
    case Kind::hole:
      index = hole;
      return {.kind = Kind::hole};
    case Kind::unknown:
      index = unknown;
      return {.kind = Kind::hole};
    case Kind::constant:
      first.byte = 0;
      index = who.byte;
      break;
    case Kind::poison:
      first.offset = floor_to(who.offset, run);
      index = static_cast<unsigned>(who.offset - first.offset);
      break;
    default: {
      const Pitch pitch = pitch_of(who);
      first.channel = floor_to(who.channel, run / pitch.bytes * pitch.channels);
      first.byte = 0;
      index = static_cast<unsigned>((who.channel - first.channel) / pitch.channels * pitch.bytes) + who.byte;
    }
  }
  return first;
}

kernels::RowId row_of(const Symbol& who) { return {who.component, who.kv, who.layer, who.head, who.token, who.generation}; }

std::uint64_t key_of(const Symbol& who, std::uint64_t seed, int pass) {
  return kernels::row_key({pass_seed(seed, pass), 0, 0}, row_of(who));
}

std::uint32_t code_in(const Symbol& row, std::uint64_t key, std::int64_t channel) {
  if (row.codes) return code_in_turn(row.dtype, key + static_cast<std::uint64_t>(channel));
  if (row.values) {
    const std::uint32_t bf16 = kernels::tag_code(key, row_of(row), layout::Dtype::bf16, channel);
    return nearest_code(row.dtype, number_of(layout::Dtype::bf16, bf16));
  }
  return kernels::tag_code(key, row_of(row), row.dtype, channel);
}

}  // namespace

// ---- Names ---------------------------------------------------------------------------------------------------------

std::size_t SymbolTable::Hash::operator()(const Symbol& who) const {
  std::uint64_t h = static_cast<std::uint64_t>(who.kind) | static_cast<std::uint64_t>(who.byte) << 8 |
                    static_cast<std::uint64_t>(who.component) << 16 | static_cast<std::uint64_t>(who.dtype) << 24 |
                    static_cast<std::uint64_t>(who.high_nibble_first) << 32 | static_cast<std::uint64_t>(who.codes) << 33 |
                    static_cast<std::uint64_t>(who.values) << 34 | static_cast<std::uint64_t>(who.power) << 36 |
                    static_cast<std::uint64_t>(who.halves) << 44;
  const auto add = [&h](std::uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
  };
  add(who.generation | static_cast<std::uint64_t>(who.buffer + 1) << 32);
  add(static_cast<std::uint64_t>(who.kv) | static_cast<std::uint64_t>(who.layer) << 8 |
      static_cast<std::uint64_t>(who.head) << 32);
  add(static_cast<std::uint64_t>(who.token) | static_cast<std::uint64_t>(who.channel) << 40);
  add(static_cast<std::uint64_t>(who.offset));
  add(who.whole | static_cast<std::uint64_t>(who.scale) << 32);
  add(who.global_scale | static_cast<std::uint64_t>(who.pieces[0]) << 32);
  add(who.pieces[1] | static_cast<std::uint64_t>(who.pieces[2]) << 32);
  add(who.pieces[3]);
  return h ^ (h >> 32);
}

SymbolTable::SymbolTable() {
  intern({.kind = Kind::hole});
  intern({.kind = Kind::unknown});
}

SymbolId SymbolTable::use(std::size_t number, unsigned index) {
  chunks_[number].used[index / 64] |= std::uint64_t{1} << (index % 64);
  return static_cast<SymbolId>(number * chunk + index);
}

SymbolId SymbolTable::intern(const Symbol& who) {
  if (single(who)) return intern_single(who);
  unsigned index = 0;
  const Symbol first = first_of(who, index);
  if (last_ >= chunks_.size() || chunks_[last_].first != first) {
    const auto [at, added] = index_.try_emplace(first, static_cast<std::uint32_t>(chunks_.size()));
    if (added) chunks_.push_back({first, 0, {}});
    last_ = at->second;
  }
  return use(last_, index);
}

SymbolId SymbolTable::intern_single(const Symbol& who) {
  const auto [at, added] = single_index_.try_emplace(who, 0);
  if (!added) return at->second;
  if (singles_.size() % chunk == 0) {
    single_chunk_ = chunks_.size();
    chunks_.push_back({{.kind = Kind::nibbles}, singles_.size(), {}});
  }
  at->second = use(single_chunk_, static_cast<unsigned>(singles_.size() % chunk));
  singles_.push_back(who);
  return at->second;
}

Symbol SymbolTable::at(SymbolId id) const {
  const Chunk& c = chunks_.at(id / chunk);
  const unsigned index = id % chunk;
  Symbol who = c.first;
  switch (who.kind) {
    case Kind::hole:
    case Kind::unknown:
      return {.kind = index == hole ? Kind::hole : Kind::unknown};
    case Kind::constant:
      who.byte = static_cast<std::uint8_t>(index);
      return who;
    case Kind::poison:
      who.offset += index;
      return who;
    case Kind::nibbles:
    case Kind::code:
      return singles_.at(c.single + index);
    case Kind::tag:
    case Kind::number:
      break;
  }
  const Pitch pitch = pitch_of(who);
  who.channel += static_cast<std::int64_t>(index) / pitch.bytes * pitch.channels;
  who.byte = static_cast<std::uint8_t>(index % static_cast<unsigned>(pitch.bytes));
  return who;
}

std::size_t SymbolTable::count() const {
  std::size_t n = 0;
  for (const Chunk& c : chunks_) {
    for (std::uint64_t word : c.used) n += static_cast<std::size_t>(std::popcount(word));
  }
  return n;
}

// A half is named by its pair's byte with the low nibble first; halves of constants by the constant with a zero high nibble.
Nibble SymbolTable::nibble(SymbolId byte, bool high) {
  Symbol who = at(byte);
  if (who.kind == Kind::nibbles) return {who.pieces[high], (who.halves >> static_cast<int>(high) & 1) != 0};
  if (who.kind == Kind::constant) {
    who.byte = static_cast<std::uint8_t>(high ? who.byte >> 4 : who.byte & 0xf);
    return {intern(who), false};
  }
  if (is_pair(who) && who.high_nibble_first) {
    who.high_nibble_first = false;
    return {intern(who), !high};
  }
  return {byte, high};
}

Nibble SymbolTable::nibble(const Symbol& who) {
  Symbol pair = who;
  pair.channel = floor_to(who.channel, 2);
  pair.high_nibble_first = false;
  return {intern(pair), pair.channel != who.channel};
}

SymbolId SymbolTable::join(Nibble low, Nibble high) {
  const Symbol below = at(low.byte);
  if (low.byte == high.byte && !low.high && high.high) return low.byte;
  if (low.byte == high.byte && low.high && !high.high && is_pair(below)) {
    Symbol pair = below;
    pair.high_nibble_first = true;
    return intern(pair);
  }
  if (below.kind == Kind::constant) {
    if (Symbol above = at(high.byte); above.kind == Kind::constant) {
      above.byte = static_cast<std::uint8_t>(above.byte << 4 | below.byte);
      return intern(above);
    }
  }
  Symbol mixed{.kind = Kind::nibbles};
  mixed.pieces = {low.byte, high.byte, 0, 0};
  mixed.halves = static_cast<std::uint8_t>((low.high ? 1 : 0) | (high.high ? 2 : 0));
  return intern(mixed);
}

std::uint8_t SymbolTable::render(SymbolId id, const std::vector<Buffer>& buffers, std::uint64_t seed, int pass) const {
  return Rendering(*this, buffers, seed, pass).byte(id);
}

// ---- Rendering -----------------------------------------------------------------------------------------------------

std::uint32_t content_code(const Symbol& who, std::uint64_t seed, int pass) {
  return code_in(who, key_of(who, seed, pass), who.channel);
}

std::uint8_t Rendering::byte(SymbolId id) {
  const std::size_t number = id / SymbolTable::chunk;
  if (number < done_.size() && done_[number]) return (*done_[number])[id % SymbolTable::chunk];
  if (const Symbol who = names_.at(id); single(who)) {
    // Singles may be added to a chunk that was already rendered; they are few.
    if (who.kind != Kind::nibbles) return 0;
    const auto half = [&](std::size_t i) { return (byte(who.pieces[i]) >> ((who.halves >> i & 1) != 0 ? 4 : 0)) & 0xf; };
    return static_cast<std::uint8_t>(half(0) | half(1) << 4);
  }
  if (done_.size() <= number) done_.resize(number + 1);
  if (!done_[number]) {
    auto bytes = std::make_unique<Bytes>();
    fill(static_cast<SymbolId>(number * SymbolTable::chunk), *bytes);
    if (done_.size() <= number) done_.resize(number + 1);
    done_[number] = std::move(bytes);
  }
  return (*done_[number])[id % SymbolTable::chunk];
}

void Rendering::fill(SymbolId start, Bytes& out) {
  out.fill(0);
  const Symbol first = names_.at(start);
  switch (first.kind) {
    case Kind::constant:
      for (unsigned i = 0; i < SymbolTable::chunk; ++i) out[i] = static_cast<std::uint8_t>(i);
      return;
    case Kind::poison:
      poison(buffers_.at(static_cast<std::size_t>(first.buffer)), first.offset, out);
      return;
    case Kind::tag: {
      const std::uint64_t key = key_of(first, seed_, pass_);
      const Pitch pitch = pitch_of(first);
      if (!first.codes && !first.values && first.channel >= 0) {
        kernels::tag_row(key, row_of(first), first.dtype, first.channel,
                         static_cast<std::int64_t>(SymbolTable::chunk) / pitch.bytes * pitch.channels, out);
        if (!is_pair(first) || !first.high_nibble_first) return;
        for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(byte << 4 | byte >> 4);
        return;
      }
      for (unsigned i = 0; i < SymbolTable::chunk; i += static_cast<unsigned>(pitch.bytes)) {
        const std::int64_t channel = first.channel + static_cast<std::int64_t>(i) / pitch.bytes * pitch.channels;
        std::uint32_t code = code_in(first, key, channel);
        if (pitch.channels == 2) {
          const std::uint32_t odd = code_in(first, key, channel + 1);
          code = first.high_nibble_first ? odd | code << 4 : code | odd << 4;
        }
        for (int b = 0; b < pitch.bytes; ++b) out[i + static_cast<unsigned>(b)] = static_cast<std::uint8_t>(code >> (8 * b));
      }
      return;
    }
    case Kind::number:
      for (unsigned i = 0; i < SymbolTable::chunk; i += 4) {
        const auto bits = std::bit_cast<std::uint32_t>(number(names_.at(start + i)));
        for (unsigned b = 0; b < 4; ++b) out[i + b] = static_cast<std::uint8_t>(bits >> (8 * b));
      }
      return;
    default:
      return;
  }
}

void Rendering::poison(const Buffer& buffer, std::int64_t offset, std::span<std::uint8_t> out) const {
  // Poison counts from the first byte of the guard below.
  const std::int64_t at = offset + buffer.guard_below;
  const auto skip = static_cast<std::size_t>(std::clamp<std::int64_t>(-at, 0, static_cast<std::int64_t>(out.size())));
  for (std::size_t i = 0; i < skip; ++i) out[i] = 0;
  if (skip < out.size())
    kernels::fill_poison(poison_of(buffer, seed_, pass_), std::max<std::int64_t>(at, 0), out.subspan(skip));
}

std::uint32_t Rendering::code_of(SymbolId reference, layout::Dtype& dtype) {
  const Symbol who = names_.at(reference);
  dtype = who.dtype;
  if (who.kind == Kind::tag) return content_code(who, seed_, pass_);
  if (layout::bits(dtype) == 4) return (byte(who.pieces[0]) >> ((who.halves & 1) != 0 ? 4 : 0)) & 0xfu;
  std::uint32_t code = 0;
  for (int b = 0; b < layout::bits(dtype) / 8; ++b)
    code |= static_cast<std::uint32_t>(byte(who.pieces[static_cast<std::size_t>(b)])) << (8 * b);
  return code;
}

float Rendering::number(const Symbol& who) {
  const auto of = [this](SymbolId reference) {
    layout::Dtype dtype{};
    const std::uint32_t code = code_of(reference, dtype);
    return number_of(dtype, code);
  };
  float value = who.whole != 0 ? of(who.whole - 1) : number_of(who.dtype, content_code(who, seed_, pass_));
  for (int i = 0; i < who.power; ++i) {
    if (who.scale != 0) value *= of(who.scale - 1);
    if (who.global_scale != 0) value *= of(who.global_scale - 1);
  }
  return std::isnan(value) ? std::bit_cast<float>(0x7fffffffu) : value;
}

// ---- words ---------------------------------------------------------------------------------------------------------

namespace {

std::string element_words(const Symbol& who, bool exact_channel) {
  const std::string kv = who.kv == 0 ? "K" : who.kv == 1 ? "V" : fmt::format("kv {}", who.kv);
  if (who.component == Component::global_scale)
    return fmt::format("global scale {} layer {}, generation {}", kv, who.layer, who.generation);
  std::string channel = fmt::format("{} {}", who.component == Component::scale ? "group" : "channel", who.channel);
  if (!exact_channel && layout::bits(who.dtype) == 4) {
    channel = who.high_nibble_first ? fmt::format("channels {} and {} (high nibble first)", who.channel, who.channel + 1)
                                    : fmt::format("channels {} and {}", who.channel, who.channel + 1);
  }
  return fmt::format("{}{} layer {} token {} head {} {}, generation {}{}", who.component == Component::scale ? "scale " : "",
                     kv, who.layer, who.token, who.head, channel, who.generation,
                     who.codes    ? ", every code in turn"
                     : who.values ? ", a value"
                                  : "");
}

}  // namespace

std::string words(const Symbol& who, const std::vector<Buffer>& buffers) {
  switch (who.kind) {
    case Kind::hole:
      return "untouched";
    case Kind::unknown:
      return "unknown";
    case Kind::constant:
      return fmt::format("0x{:02x}", who.byte);
    case Kind::poison: {
      const std::string where = who.buffer >= 0 && static_cast<std::size_t>(who.buffer) < buffers.size()
                                    ? buffers[static_cast<std::size_t>(who.buffer)].name
                                    : fmt::format("backing {}", who.buffer);
      return fmt::format("poison of {} {} {}", where, who.offset < 0 ? '-' : '+', who.offset < 0 ? -who.offset : who.offset);
    }
    case Kind::tag:
      return element_words(who, false);
    case Kind::number: {
      const bool scaled = who.power > 0 && (who.scale != 0 || who.global_scale != 0);
      return "number of " + element_words(who, true) +
             (!scaled          ? ""
              : who.power == 1 ? ", scaled"
                               : fmt::format(", scaled {} times", who.power));
    }
    case Kind::nibbles:
      return "two halves";
    case Kind::code:
      return fmt::format("bytes read as {}", layout::name(who.dtype));
  }
  return "";
}

std::string words(SymbolId id, const SymbolTable& names, const std::vector<Buffer>& buffers) {
  const Symbol who = names.at(id);
  if (who.kind == Kind::nibbles) {
    const auto half = [&](std::size_t i) {
      Symbol piece = names.at(who.pieces[i]);
      const bool high = (who.halves >> i & 1) != 0;
      if (!is_pair(piece)) return fmt::format("the {} half of {}", high ? "high" : "low", words(piece, buffers));
      piece.channel += high != piece.high_nibble_first ? 1 : 0;
      return element_words(piece, true);
    };
    return "below " + half(0) + ", above " + half(1);
  }
  if (who.kind == Kind::code) {
    std::string out = words(who, buffers);
    for (int b = 0; b < std::max(layout::bits(who.dtype) / 8, 1); ++b) {
      out += (b == 0 ? ": " : "; ") + words(who.pieces[static_cast<std::size_t>(b)], names, buffers);
    }
    return out;
  }
  if (who.kind != Kind::number) return words(who, buffers);
  std::string out = words(who, buffers);
  if (who.whole != 0) out += "; its code: " + words(who.whole - 1, names, buffers);
  if (who.power > 0 && who.scale != 0) out += "; scale: " + words(who.scale - 1, names, buffers);
  if (who.power > 0 && who.global_scale != 0) out += "; global scale: " + words(who.global_scale - 1, names, buffers);
  return out;
}

}  // namespace kvcts::scenario
