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

bool single(const Symbol& symbol) { return symbol.kind == Kind::nibbles || symbol.kind == Kind::code; }
bool is_pair(const Symbol& symbol) { return symbol.kind == Kind::tag && layout::bits(symbol.dtype) == 4; }

/// Bytes of one step along the channels of a chunk, and channels of that step.
struct Pitch {
  int bytes{1}, channels{1};
};
Pitch pitch_of(const Symbol& symbol) {
  if (symbol.kind == Kind::number) return {4, 1};
  const int width = layout::bits(symbol.dtype);
  return width == 4 ? Pitch{1, 2} : Pitch{width / 8, 1};
}

/// The first Symbol of the chunk, and the index of `symbol` in it.
Symbol first_of(const Symbol& symbol, unsigned& index) {
  Symbol first = symbol;
  switch (symbol.kind) {
    case Kind::hole:
      index = hole;
      return {.kind = Kind::hole};
    case Kind::unknown:
      index = unknown;
      return {.kind = Kind::hole};
    case Kind::constant:
      first.byte = 0;
      index = symbol.byte;
      break;
    case Kind::poison:
      first.offset = floor_to(symbol.offset, run);
      index = static_cast<unsigned>(symbol.offset - first.offset);
      break;
    default: {
      const Pitch pitch = pitch_of(symbol);
      first.channel = floor_to(symbol.channel, run / pitch.bytes * pitch.channels);
      first.byte = 0;
      index = static_cast<unsigned>((symbol.channel - first.channel) / pitch.channels * pitch.bytes) + symbol.byte;
    }
  }
  return first;
}

kernels::RowId row_of(const Symbol& symbol) {
  return {symbol.component, symbol.kv, symbol.layer, symbol.head, symbol.token, symbol.generation};
}

std::uint64_t key_of(const Symbol& symbol, std::uint64_t seed, int pass) {
  return kernels::row_key({pass_seed(seed, pass), 0, 0}, row_of(symbol));
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

std::size_t SymbolTable::Hash::operator()(const Symbol& symbol) const {
  std::uint64_t h = static_cast<std::uint64_t>(symbol.kind) | static_cast<std::uint64_t>(symbol.byte) << 8 |
                    static_cast<std::uint64_t>(symbol.component) << 16 | static_cast<std::uint64_t>(symbol.dtype) << 24 |
                    static_cast<std::uint64_t>(symbol.high_nibble_first) << 32 |
                    static_cast<std::uint64_t>(symbol.codes) << 33 | static_cast<std::uint64_t>(symbol.values) << 34 |
                    static_cast<std::uint64_t>(symbol.power) << 36 | static_cast<std::uint64_t>(symbol.halves) << 44;
  const auto add = [&h](std::uint64_t value) {
    h = (h ^ value) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
  };
  add(symbol.generation | static_cast<std::uint64_t>(symbol.buffer + 1) << 32);
  add(static_cast<std::uint64_t>(symbol.kv) | static_cast<std::uint64_t>(symbol.layer) << 8 |
      static_cast<std::uint64_t>(symbol.head) << 32);
  add(static_cast<std::uint64_t>(symbol.token) | static_cast<std::uint64_t>(symbol.channel) << 40);
  add(static_cast<std::uint64_t>(symbol.offset));
  add(symbol.whole | static_cast<std::uint64_t>(symbol.scale) << 32);
  add(symbol.global_scale | static_cast<std::uint64_t>(symbol.pieces[0]) << 32);
  add(symbol.pieces[1] | static_cast<std::uint64_t>(symbol.pieces[2]) << 32);
  add(symbol.pieces[3]);
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

SymbolId SymbolTable::intern(const Symbol& symbol) {
  if (single(symbol)) return intern_single(symbol);
  unsigned index = 0;
  const Symbol first = first_of(symbol, index);
  if (last_ >= chunks_.size() || chunks_[last_].first != first) {
    const auto [at, added] = index_.try_emplace(first, static_cast<std::uint32_t>(chunks_.size()));
    if (added) chunks_.push_back({first, 0, {}});
    last_ = at->second;
  }
  return use(last_, index);
}

SymbolId SymbolTable::intern_single(const Symbol& symbol) {
  const auto [at, added] = single_index_.try_emplace(symbol, 0);
  if (!added) return at->second;
  if (singles_.size() % chunk == 0) {
    single_chunk_ = chunks_.size();
    chunks_.push_back({{.kind = Kind::nibbles}, singles_.size(), {}});
  }
  at->second = use(single_chunk_, static_cast<unsigned>(singles_.size() % chunk));
  singles_.push_back(symbol);
  return at->second;
}

Symbol SymbolTable::at(SymbolId id) const {
  const Chunk& c = chunks_.at(id / chunk);
  const unsigned index = id % chunk;
  Symbol symbol = c.first;
  switch (symbol.kind) {
    case Kind::hole:
    case Kind::unknown:
      return {.kind = index == hole ? Kind::hole : Kind::unknown};
    case Kind::constant:
      symbol.byte = static_cast<std::uint8_t>(index);
      return symbol;
    case Kind::poison:
      symbol.offset += index;
      return symbol;
    case Kind::nibbles:
    case Kind::code:
      return singles_.at(c.single + index);
    case Kind::tag:
    case Kind::number:
      break;
  }
  const Pitch pitch = pitch_of(symbol);
  symbol.channel += static_cast<std::int64_t>(index) / pitch.bytes * pitch.channels;
  symbol.byte = static_cast<std::uint8_t>(index % static_cast<unsigned>(pitch.bytes));
  return symbol;
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
  Symbol symbol = at(byte);
  if (symbol.kind == Kind::nibbles) return {symbol.pieces[high], (symbol.halves >> static_cast<int>(high) & 1) != 0};
  if (symbol.kind == Kind::constant) {
    symbol.byte = static_cast<std::uint8_t>(high ? symbol.byte >> 4 : symbol.byte & 0xf);
    return {intern(symbol), false};
  }
  if (is_pair(symbol) && symbol.high_nibble_first) {
    symbol.high_nibble_first = false;
    return {intern(symbol), !high};
  }
  return {byte, high};
}

Nibble SymbolTable::nibble(const Symbol& symbol) {
  Symbol pair = symbol;
  pair.channel = floor_to(symbol.channel, 2);
  pair.high_nibble_first = false;
  return {intern(pair), pair.channel != symbol.channel};
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

std::uint32_t content_code(const Symbol& symbol, std::uint64_t seed, int pass) {
  return code_in(symbol, key_of(symbol, seed, pass), symbol.channel);
}

std::uint8_t Rendering::byte(SymbolId id) {
  const std::size_t number = id / SymbolTable::chunk;
  if (number < done_.size() && done_[number]) return (*done_[number])[id % SymbolTable::chunk];
  if (const Symbol symbol = symbols_.at(id); single(symbol)) {
    // Singles may be added to a chunk that was already rendered; they are few.
    if (symbol.kind != Kind::nibbles) return 0;
    const auto half = [&](std::size_t i) {
      return (byte(symbol.pieces[i]) >> ((symbol.halves >> i & 1) != 0 ? 4 : 0)) & 0xf;
    };
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
  const Symbol first = symbols_.at(start);
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
        const auto bits = std::bit_cast<std::uint32_t>(number(symbols_.at(start + i)));
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
  const Symbol symbol = symbols_.at(reference);
  dtype = symbol.dtype;
  if (symbol.kind == Kind::tag) return content_code(symbol, seed_, pass_);
  if (layout::bits(dtype) == 4) return (byte(symbol.pieces[0]) >> ((symbol.halves & 1) != 0 ? 4 : 0)) & 0xfu;
  std::uint32_t code = 0;
  for (int b = 0; b < layout::bits(dtype) / 8; ++b)
    code |= static_cast<std::uint32_t>(byte(symbol.pieces[static_cast<std::size_t>(b)])) << (8 * b);
  return code;
}

float Rendering::number(const Symbol& symbol) {
  const auto of = [this](SymbolId reference) {
    layout::Dtype dtype{};
    const std::uint32_t code = code_of(reference, dtype);
    return number_of(dtype, code);
  };
  float value = symbol.whole != 0 ? of(symbol.whole - 1) : number_of(symbol.dtype, content_code(symbol, seed_, pass_));
  for (int i = 0; i < symbol.power; ++i) {
    if (symbol.scale != 0) value *= of(symbol.scale - 1);
    if (symbol.global_scale != 0) value *= of(symbol.global_scale - 1);
  }
  return std::isnan(value) ? std::bit_cast<float>(0x7fffffffu) : value;
}

// ---- words ---------------------------------------------------------------------------------------------------------

namespace {

std::string element_text(const Symbol& symbol, bool exact_channel) {
  const std::string kv = symbol.kv == 0 ? "K" : symbol.kv == 1 ? "V" : fmt::format("kv {}", symbol.kv);
  if (symbol.component == Component::global_scale)
    return fmt::format("global scale {} layer {}, generation {}", kv, symbol.layer, symbol.generation);
  std::string channel = fmt::format("{} {}", symbol.component == Component::scale ? "group" : "channel", symbol.channel);
  if (!exact_channel && layout::bits(symbol.dtype) == 4) {
    channel = symbol.high_nibble_first
                  ? fmt::format("channels {} and {} (high nibble first)", symbol.channel, symbol.channel + 1)
                  : fmt::format("channels {} and {}", symbol.channel, symbol.channel + 1);
  }
  return fmt::format("{}{} layer {} token {} head {} {}, generation {}{}",
                     symbol.component == Component::scale ? "scale " : "", kv, symbol.layer, symbol.token, symbol.head,
                     channel, symbol.generation,
                     symbol.codes    ? ", every code in turn"
                     : symbol.values ? ", a value"
                                     : "");
}

}  // namespace

std::string to_string(const Symbol& symbol, const std::vector<Buffer>& buffers) {
  switch (symbol.kind) {
    case Kind::hole:
      return "untouched";
    case Kind::unknown:
      return "unknown";
    case Kind::constant:
      return fmt::format("0x{:02x}", symbol.byte);
    case Kind::poison: {
      const std::string where = symbol.buffer >= 0 && static_cast<std::size_t>(symbol.buffer) < buffers.size()
                                    ? buffers[static_cast<std::size_t>(symbol.buffer)].name
                                    : fmt::format("backing {}", symbol.buffer);
      return fmt::format("poison of {} {} {}", where, symbol.offset < 0 ? '-' : '+',
                         symbol.offset < 0 ? -symbol.offset : symbol.offset);
    }
    case Kind::tag:
      return element_text(symbol, false);
    case Kind::number: {
      const bool scaled = symbol.power > 0 && (symbol.scale != 0 || symbol.global_scale != 0);
      return "number of " + element_text(symbol, true) +
             (!scaled             ? ""
              : symbol.power == 1 ? ", scaled"
                                  : fmt::format(", scaled {} times", symbol.power));
    }
    case Kind::nibbles:
      return "two halves";
    case Kind::code:
      return fmt::format("bytes read as {}", layout::name(symbol.dtype));
  }
  return "";
}

std::string to_string(SymbolId id, const SymbolTable& symbols, const std::vector<Buffer>& buffers) {
  const Symbol symbol = symbols.at(id);
  if (symbol.kind == Kind::nibbles) {
    const auto half = [&](std::size_t i) {
      Symbol piece = symbols.at(symbol.pieces[i]);
      const bool high = (symbol.halves >> i & 1) != 0;
      if (!is_pair(piece)) return fmt::format("the {} half of {}", high ? "high" : "low", to_string(piece, buffers));
      piece.channel += high != piece.high_nibble_first ? 1 : 0;
      return element_text(piece, true);
    };
    return "below " + half(0) + ", above " + half(1);
  }
  if (symbol.kind == Kind::code) {
    std::string out = to_string(symbol, buffers);
    for (int b = 0; b < std::max(layout::bits(symbol.dtype) / 8, 1); ++b) {
      out += (b == 0 ? ": " : "; ") + to_string(symbol.pieces[static_cast<std::size_t>(b)], symbols, buffers);
    }
    return out;
  }
  if (symbol.kind != Kind::number) return to_string(symbol, buffers);
  std::string out = to_string(symbol, buffers);
  if (symbol.whole != 0) out += "; its code: " + to_string(symbol.whole - 1, symbols, buffers);
  if (symbol.power > 0 && symbol.scale != 0) out += "; scale: " + to_string(symbol.scale - 1, symbols, buffers);
  if (symbol.power > 0 && symbol.global_scale != 0)
    out += "; global scale: " + to_string(symbol.global_scale - 1, symbols, buffers);
  return out;
}

}  // namespace kvcts::scenario
