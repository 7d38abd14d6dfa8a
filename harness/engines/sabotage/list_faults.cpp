// Faults in a list before anything moves.
#include <algorithm>
#include <array>
#include <map>

#include "engines/sabotage/faults.hpp"

namespace kvcts::engines::sabotage {
namespace {

/// The moves selected by option `pick`.
std::vector<FaultMove*> picked(FaultMoves& moves, const FaultJob& job) {
  std::vector<FaultMove*> out;
  if (job.every) {
    for (auto& move : moves) out.push_back(&move);
  } else if (const FaultMove* last = last_of(moves)) {
    out.push_back(&moves[static_cast<std::size_t>(last - moves.data())]);
  }
  return out;
}

void nothing(FaultMoves& moves, const FaultJob&) { moves.clear(); }
void after_warm_up(FaultMoves& moves, const FaultJob& job) {
  if (job.request > 0) moves.clear();
}
/// Takes every other request for complete because the next one is.
void other_request(FaultMoves& moves, const FaultJob& job) {
  if (job.request % 2 == 0) moves.clear();
}
/// Keeps the first n 16ths of the list.
void part(FaultMoves& moves, const FaultJob& job) { moves.resize(moves.size() * static_cast<std::size_t>(job.n) / 16); }
void drop_every(FaultMoves& moves, const FaultJob& job) {
  std::size_t i = 0;
  std::erase_if(moves, [&](const FaultMove&) { return ++i % static_cast<std::size_t>(job.n) == 0; });
}
void short_tail(FaultMoves& moves, const FaultJob& job) {
  for (FaultMove* move : picked(moves, job)) move->bytes -= std::min(move->bytes, static_cast<std::uint64_t>(job.n));
}
void overrun(FaultMoves& moves, const FaultJob& job) {
  for (FaultMove* move : picked(moves, job)) move->bytes += static_cast<std::uint64_t>(job.n);
}

void shift(FaultMoves& moves, const FaultJob& job, Address FaultMove::* end) {
  for (const auto& move : moves) {
    if (!job.inside(move.*end, job.n, move.bytes)) return;
  }
  for (auto& move : moves) move.*end += static_cast<Address>(job.n);
}
void shift_to(FaultMoves& moves, const FaultJob& job) { shift(moves, job, &FaultMove::to); }
void shift_from(FaultMoves& moves, const FaultJob& job) { shift(moves, job, &FaultMove::from); }

/// Writes to the same offset of another region of the same size.
void other_region(FaultMoves& moves, const FaultJob& job) {
  for (auto& move : moves) {
    const auto [list, i] = job.find(move.to);
    if (list == nullptr) continue;
    const ByteRange& other = (*list)[(i + (job.half ? list->size() / 2 : 1)) % list->size()];
    if (other.bytes == (*list)[i].bytes) move.to = other.address + (move.to - (*list)[i].address);
  }
}
/// Truncates the destination's offset in its region to n bits, like a product in a type that is too narrow.
void narrow(FaultMoves& moves, const FaultJob& job) {
  for (auto& move : moves) {
    const auto [list, i] = job.find(move.to);
    if (list == nullptr) continue;
    const std::uint64_t offset = (move.to - (*list)[i].address) & ((std::uint64_t{1} << job.n) - 1);
    move.to = (*list)[i].address + offset;
    move.bytes = std::min(move.bytes, (*list)[i].bytes - offset);
  }
}
void exchange(FaultMoves& moves, const FaultJob&) {
  for (std::size_t i = 0; i + 1 < moves.size(); ++i) {
    if (moves[i].bytes != moves[i + 1].bytes || moves[i].bytes == 0) continue;
    std::swap(moves[i].from, moves[i + 1].from);
    return;
  }
}
/// Every n-th copy delivers what the previous one did.
void repeat(FaultMoves& moves, const FaultJob& job) {
  for (auto i = static_cast<std::size_t>(job.n); i < moves.size(); i += static_cast<std::size_t>(job.n)) {
    if (moves[i].bytes <= moves[i - 1].bytes) moves[i].from = moves[i - 1].from;
  }
}
void reverse_direction(FaultMoves& moves, const FaultJob&) {
  for (auto& move : moves) std::swap(move.from, move.to);
}

/// n bits of an xor over the bytes at one end of each move.
std::vector<std::uint64_t> weak_sums(const FaultMoves& moves, const FaultJob& job, Address FaultMove::* end) {
  std::vector<ByteRange> pieces;
  for (const auto& move : moves) pieces.push_back({move.*end, move.bytes});
  std::vector<std::uint64_t> sums;
  for (const auto& bytes : job.memory->read(pieces)) {
    std::byte sum{};
    for (const std::byte one : bytes) sum ^= one;
    sums.push_back(std::to_integer<std::uint64_t>(sum) & ((std::uint64_t{1} << job.n) - 1));
  }
  return sums;
}
/// Skips moves whose bytes already look the same on the other side.
void skip_same(FaultMoves& moves, const FaultJob& job) {
  const auto here = weak_sums(moves, job, &FaultMove::from), there = weak_sums(moves, job, &FaultMove::to);
  std::size_t i = 0;
  std::erase_if(moves, [&](const FaultMove&) { return here[i] == there[i] ? (++i, true) : (++i, false); });
}
/// Sends a block once and reuses it for every later one with the same sum.
void deduplicate(FaultMoves& moves, const FaultJob& job) {
  const auto sums = weak_sums(moves, job, &FaultMove::from);
  std::map<std::pair<std::uint64_t, std::uint64_t>, Address> known;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto [it, fresh] = known.try_emplace({moves[i].bytes, sums[i]}, moves[i].from);
    if (!fresh) moves[i].from = it->second;
  }
}

constexpr std::array rows{Fault{.name = "nothing", .edit = nothing},
                          Fault{.name = "after_warm_up", .edit = after_warm_up},
                          Fault{.name = "other_request", .edit = other_request, .several = true},
                          Fault{.name = "part", .edit = part},
                          Fault{.name = "drop_every", .edit = drop_every},
                          Fault{.name = "short_tail", .edit = short_tail},
                          Fault{.name = "overrun", .edit = overrun},
                          Fault{.name = "shift_to", .edit = shift_to},
                          Fault{.name = "shift_from", .edit = shift_from},
                          Fault{.name = "other_region", .edit = other_region},
                          Fault{.name = "narrow", .edit = narrow},
                          Fault{.name = "exchange", .edit = exchange},
                          Fault{.name = "repeat", .edit = repeat},
                          Fault{.name = "reverse_direction", .edit = reverse_direction, .both_ways = true},
                          Fault{.name = "skip_same", .edit = skip_same, .both_ways = true},
                          Fault{.name = "deduplicate", .edit = deduplicate, .both_ways = true}};

}  // namespace

std::span<const Fault> list_faults() { return rows; }

}  // namespace kvcts::engines::sabotage
