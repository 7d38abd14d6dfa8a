// Faults in bytes in transit, and extra writes after all bytes have moved.
#include <algorithm>
#include <array>
#include <cstring>

#include "engines/sabotage/faults.hpp"

namespace kvcts::engines::sabotage {
namespace {

using Bytes = std::span<std::byte>;
using Delivered = std::span<const std::byte>;

/// Applies `change` to every whole element of Word in each piece.
template <class Word, class Change>
void each(const FaultMoves& moves, Bytes bytes, Change&& change) {
  std::size_t begin = 0;
  for (const FaultMove& move : moves) {
    for (std::uint64_t at = 0; at + sizeof(Word) <= move.bytes; at += sizeof(Word)) {
      Word word;
      std::memcpy(&word, bytes.data() + begin + at, sizeof word);
      word = change(word);
      std::memcpy(bytes.data() + begin + at, &word, sizeof word);
    }
    begin += move.bytes;
  }
}

/// The fields of a float format: sign | exponent | mantissa.
struct Format {
  std::string_view dtype;
  int bits, exponent, mantissa;
};
constexpr std::array formats{Format{"fp32", 32, 8, 23}, Format{"fp16", 16, 5, 10}, Format{"bf16", 16, 8, 7},
                             Format{"e4m3fn", 8, 4, 3}, Format{"e5m2", 8, 5, 2}};

template <class Change>
void each_number(const FaultMoves& moves, Bytes bytes, const FaultJob& job, Change&& change) {
  for (const Format& format : formats) {
    if (format.dtype != job.dtype) continue;
    const auto one = [&](auto word) {
      return static_cast<decltype(word)>(change(static_cast<std::uint32_t>(word), format));
    };
    if (format.bits == 32) each<std::uint32_t>(moves, bytes, one);
    if (format.bits == 16) each<std::uint16_t>(moves, bytes, one);
    if (format.bits == 8) each<std::uint8_t>(moves, bytes, one);
  }
}

std::uint32_t exponent_of(std::uint32_t code, const Format& f) { return code >> f.mantissa & ((1u << f.exponent) - 1); }
std::uint32_t mantissa_of(std::uint32_t code, const Format& f) { return code & ((1u << f.mantissa) - 1); }
bool is_nan(std::uint32_t code, const Format& f) {
  const bool top = exponent_of(code, f) == (1u << f.exponent) - 1;
  return top && (f.dtype == "e4m3fn" ? mantissa_of(code, f) == 7 : mantissa_of(code, f) != 0);
}

void one_nan(const FaultMoves& moves, Bytes bytes, const FaultJob& job) {
  each_number(moves, bytes, job, [](std::uint32_t code, const Format& f) {
    if (!is_nan(code, f)) return code;
    const std::uint32_t top = ((1u << f.exponent) - 1) << f.mantissa;
    return f.dtype == "e4m3fn" ? 0x7fu : top | 1u << (f.mantissa - 1);
  });
}
void no_negative_zero(const FaultMoves& moves, Bytes bytes, const FaultJob& job) {
  each_number(moves, bytes, job, [](std::uint32_t code, const Format& f) { return code == 1u << (f.bits - 1) ? 0u : code; });
}
void no_subnormals(const FaultMoves& moves, Bytes bytes, const FaultJob& job) {
  each_number(moves, bytes, job, [](std::uint32_t code, const Format& f) {
    return exponent_of(code, f) == 0 ? code & 1u << (f.bits - 1) : code;
  });
}
/// Reads numbers with an exponent bias n larger than they were written with, as fn and fnuz differ by one.
void other_bias(const FaultMoves& moves, Bytes bytes, const FaultJob& job) {
  each_number(moves, bytes, job, [&](std::uint32_t code, const Format& f) {
    const std::uint32_t e = exponent_of(code, f), n = static_cast<std::uint32_t>(job.n);
    return e > n ? code - (n << f.mantissa) : code & 1u << (f.bits - 1);
  });
}
void swap_bytes(const FaultMoves& moves, Bytes bytes, const FaultJob& job) {
  if (job.n == 2)
    each<std::uint16_t>(moves, bytes, [](std::uint16_t w) { return static_cast<std::uint16_t>(w >> 8 | w << 8); });
  if (job.n == 4) each<std::uint32_t>(moves, bytes, [](std::uint32_t w) { return __builtin_bswap32(w); });
  if (job.n == 8) each<std::uint64_t>(moves, bytes, [](std::uint64_t w) { return __builtin_bswap64(w); });
}
void swap_nibbles(const FaultMoves& moves, Bytes bytes, const FaultJob&) {
  each<std::uint8_t>(moves, bytes, [](std::uint8_t b) { return static_cast<std::uint8_t>(b >> 4 | b << 4); });
}
void zero(const FaultMoves&, Bytes bytes, const FaultJob&) { std::fill(bytes.begin(), bytes.end(), std::byte{0}); }
/// Delivers what the previous request delivered.
void previous(const FaultMoves&, Bytes bytes, const FaultJob& job) {
  std::copy_n(job.previous.begin(), std::min(bytes.size(), job.previous.size()), bytes.begin());
}

/// Writes zeros after the last move, up to a multiple of n bytes of its destination.
ExtraWrites pad(const FaultMoves& moves, Delivered, const FaultJob& job) {
  const FaultMove* last = last_of(moves);
  if (last == nullptr) return {};
  const auto [regions, i] = job.find(last->to);
  if (regions == nullptr) return {};
  const auto end = last->to + last->bytes - (*regions)[i].address, n = static_cast<std::uint64_t>(job.n);
  return {{last->to + last->bytes, std::vector<std::byte>((n - end % n) % n)}};
}
ExtraWrites wipe_source(const FaultMoves& moves, Delivered, const FaultJob&) {
  ExtraWrites out;
  for (const FaultMove& move : moves) out.push_back({move.from, std::vector<std::byte>(move.bytes)});
  return out;
}
/// Moved, not copied: the source gets the neighbour's bytes.
ExtraWrites swap_into_source(const FaultMoves& moves, Delivered bytes, const FaultJob&) {
  ExtraWrites out;
  for (std::size_t i = 0, begin = 0; i + 1 < moves.size(); i += 2) {
    const auto neighbour = bytes.subspan(begin + moves[i].bytes, std::min(moves[i].bytes, moves[i + 1].bytes));
    out.push_back({moves[i].from, {neighbour.begin(), neighbour.end()}});
    begin += moves[i].bytes + moves[i + 1].bytes;
  }
  return out;
}
/// Writes 64 inverted bytes at the end of the list.
ExtraWrites turned_tail(const FaultMoves& moves, Delivered bytes, const FaultJob&) {
  if (moves.empty()) return {};
  const FaultMove& last = moves.back();
  const auto tail = bytes.last(std::min<std::uint64_t>(64, last.bytes));
  ExtraWrite out{last.to + (last.bytes - tail.size()), {tail.begin(), tail.end()}};
  for (std::byte& one : out.bytes) one ^= std::byte{0xff};
  return {out};
}

constexpr std::array bytes_rows{Fault{.name = "one_nan", .change = one_nan},
                                Fault{.name = "no_negative_zero", .change = no_negative_zero},
                                Fault{.name = "no_subnormals", .change = no_subnormals},
                                Fault{.name = "other_bias", .change = other_bias},
                                Fault{.name = "swap_bytes", .change = swap_bytes},
                                Fault{.name = "swap_nibbles", .change = swap_nibbles},
                                Fault{.name = "zero", .change = zero},
                                Fault{.name = "previous", .change = previous},
                                Fault{.name = "pad", .after = pad},
                                Fault{.name = "wipe_source", .after = wipe_source, .both_ways = true},
                                Fault{.name = "swap_into_source", .after = swap_into_source, .both_ways = true}};
constexpr std::array time_rows{Fault{.name = "late_write", .after = turned_tail, .late = true},
                               Fault{.name = "early_success", .early = true},
                               Fault{.name = "in_release", .early = true, .until = Until::release},
                               Fault{.name = "in_remove_peer", .early = true, .until = Until::remove_peer},
                               Fault{.name = "in_deregister", .early = true, .until = Until::deregister}};

}  // namespace

std::span<const Fault> byte_faults() { return bytes_rows; }
std::span<const Fault> time_faults() { return time_rows; }

}  // namespace kvcts::engines::sabotage
