#include "diagnose/findings/origins.hpp"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <memory>
#include <tuple>
#include <unordered_map>

namespace kvcts::findings {

namespace {

constexpr std::size_t shortest = 4, key_bytes = 16;

std::uint32_t first_of(ByteView run) {
  std::uint32_t out = 0;
  std::memcpy(&out, run.data(), std::min<std::size_t>(sizeof out, run.size()));
  return out;
}

/// A stretch whose origin is looked for, and where its bytes are.
struct Wanted {
  SearchedRange range;
  ByteView key;         ///< what is looked for: of a short stretch also its neighbours, which a copy brings along
  std::size_t lead{0};  ///< bytes of the key in front of the stretch
  std::vector<std::pair<std::size_t, std::size_t>> source_ranges;  ///< source, byte
  int tries{0};                                                    ///< with what follows, with what is in front, on its own

  void take_key() {
    const auto at = static_cast<std::size_t>(range.at), bytes = static_cast<std::size_t>(range.bytes);
    const ByteView file = range.file;
    const std::size_t size = tries == 2 ? std::min(bytes, key_bytes) : std::min(key_bytes, file.size());
    const std::size_t end = tries == 1 ? at + std::min(bytes, key_bytes) : std::min(at + size, file.size());
    const std::size_t begin = end < size ? 0 : tries == 1 ? end - size : at;
    key = file.subspan(begin, end - begin);
    lead = at - begin;
    source_ranges.clear();
  }
};

/// Finds every place in the sources that begins like a wanted key.
void find_sources(const std::vector<ByteView>& sources, std::vector<Wanted>& all) {
  constexpr std::size_t most_sources = 16;
  std::unordered_map<std::uint32_t, std::vector<std::size_t>> by_key;
  const auto filter = std::make_unique<std::bitset<1 << 26>>();  // most bytes begin nothing
  const auto bit = [](std::uint32_t key) { return (key * 0x9e3779b1u) >> 6; };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint32_t key = first_of(all[i].key);
    by_key[key].push_back(i);
    filter->set(bit(key));
  }
  for (std::size_t f = 0; f < sources.size(); ++f) {
    const ByteView source = sources[f];
    for (std::size_t i = 0; i + shortest <= source.size(); ++i) {
      const std::uint32_t key = first_of(source.subspan(i, shortest));
      if (!filter->test(bit(key))) continue;
      const auto at = by_key.find(key);
      if (at == by_key.end()) continue;
      for (const std::size_t w : at->second) {
        const ByteView wanted = all[w].key;
        if (all[w].source_ranges.size() < most_sources && i + wanted.size() <= source.size() &&
            std::memcmp(source.data() + i, wanted.data(), wanted.size()) == 0)
          all[w].source_ranges.emplace_back(f, i + all[w].lead);
      }
    }
  }
}

/// The longest of its homes, then the likeliest; bytes that it explains.
std::int64_t settle(const std::vector<ByteView>& sources, const Judge& judge, Wanted& wanted) {
  SearchedRange& one = wanted.range;
  const ByteView bytes = one.file.subspan(static_cast<std::size_t>(one.at), static_cast<std::size_t>(one.bytes));
  std::pair<std::size_t, int> best{0, INT32_MIN};
  for (const auto& [f, i] : wanted.source_ranges) {
    const Likely source_range = judge(static_cast<int>(f), static_cast<std::int64_t>(i), one);
    const auto reach = static_cast<std::size_t>(std::min<std::int64_t>(source_range.reach, one.bytes));
    std::size_t same = 0;
    while (same < reach && i + same < sources[f].size() && sources[f][i + same] == bytes[same]) ++same;
    if (same == 0 || std::pair(same, source_range.rank) <= best) continue;
    best = {same, source_range.rank};
    one.source = static_cast<int>(f), one.from = static_cast<std::int64_t>(i);
  }
  return static_cast<std::int64_t>(best.first);
}

}  // namespace

std::vector<SearchedRange> origins_of(const std::vector<ByteView>& sources, std::vector<SearchedRange> ranges,
                                      const Judge& judge) {
  // What follows in a stretch may come from elsewhere: its rest is looked for again, as long as that finds something.
  constexpr int most_passes = 96;
  std::vector<SearchedRange> out;
  std::vector<Wanted> wanted;
  for (SearchedRange& one : ranges) wanted.push_back({std::move(one), {}, 0, {}, 0});
  for (int pass = 0; pass < most_passes && !wanted.empty(); ++pass) {
    for (Wanted& w : wanted) w.take_key();
    std::erase_if(wanted, [&](Wanted& w) {
      if (w.key.size() >= shortest) return false;
      w.range.too_short = true;
      out.push_back(std::move(w.range));
      return true;
    });
    find_sources(sources, wanted);
    std::vector<Wanted> rest;
    for (Wanted& w : wanted) {
      SearchedRange& one = w.range;
      const std::int64_t found = settle(sources, judge, w);
      if (found == 0 && ++w.tries < 3) {
        rest.push_back(std::move(w));
        continue;
      }
      if (found > 0 && found < one.bytes) {
        SearchedRange next = one;
        next.source = -1, next.from = 0;
        next.at += found, next.bytes -= found;
        one.bytes = found;
        rest.push_back({std::move(next), {}, 0, {}, 0});
      }
      out.push_back(std::move(one));
    }
    wanted = std::move(rest);
  }
  for (Wanted& w : wanted) out.push_back(std::move(w.range));
  return out;
}

}  // namespace kvcts::findings
