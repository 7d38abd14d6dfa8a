#include <algorithm>
#include <set>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

namespace {

void advance(Who& who, int bits, std::int64_t bytes) {
  if (who.at[Axis::channel] == none || bits == 0) return;
  const std::int64_t to = begin_of(who, bits) + 8 * bytes;
  who.at[Axis::channel] = to / bits, who.byte = static_cast<std::uint8_t>(to % bits / 8);
}

bool is_row(const Fact& fact) { return fact.bits > 0 && fact.should.at[Axis::channel] != none; }

/// Rows that are cut alike.
std::tuple<int, bool, std::int64_t> kind_of(const Fact& fact) {
  return {fact.memory, fact.should.kind == Who::Kind::element, fact.should.at[Axis::component]};
}

}  // namespace

std::vector<Fact> cut_alike(const std::vector<Fact>& facts) {
  constexpr std::size_t most = 1 << 18;  // a cut in every row at every byte is no help
  std::map<std::tuple<int, bool, std::int64_t>, std::set<std::int64_t>> cuts;
  for (const Fact& fact : facts) {
    if (!is_row(fact)) continue;
    const std::int64_t begin = begin_of(fact.should, fact.bits);
    auto& of = cuts[kind_of(fact)];
    of.insert(begin), of.insert(begin + 8 * fact.bytes);
    // Other bytes of each code, or codes of another width: also where either side's next code begins.
    if (!fact.wrong || fact.is.kind != Who::Kind::element) continue;
    if (fact.is.byte == fact.should.byte && fact.is_bits == fact.bits) continue;
    for (std::int64_t done = 0; done < fact.bytes; ++done)
      if ((begin + 8 * done) % fact.bits == 0 ||
          (begin_of(fact.is, fact.is_bits) + 8 * done) % std::max(8, fact.is_bits) == 0)
        of.insert(begin + 8 * done);
  }
  std::vector<Fact> out;
  for (Fact fact : facts) {
    if (is_row(fact)) {
      const std::int64_t begin = begin_of(fact.should, fact.bits), end = begin + 8 * fact.bytes;
      const auto& of = cuts[kind_of(fact)];
      std::int64_t done = begin;
      for (auto cut = of.upper_bound(begin); cut != of.end() && *cut < end; ++cut) {
        Fact piece = fact;
        piece.bytes = (*cut - done) / 8;
        piece.channels = (*cut - 1) / fact.bits - done / fact.bits + 1;
        piece.as_before = std::clamp<std::int64_t>(fact.as_before - (end - *cut) / 8, 0, piece.bytes);
        fact.as_before = std::min(fact.as_before, (end - *cut) / 8);
        fact.offset += piece.bytes, fact.bytes -= piece.bytes, fact.from_offset += piece.bytes;
        advance(fact.should, fact.bits, piece.bytes);
        if (fact.is.kind == Who::Kind::element) advance(fact.is, fact.is_bits, piece.bytes);
        done = *cut;
        out.push_back(std::move(piece));
      }
      fact.channels = (end - 1) / fact.bits - done / fact.bits + 1;
    }
    out.push_back(std::move(fact));
    if (out.size() > most) return facts;
  }
  return out;
}

}  // namespace kvcts::findings
