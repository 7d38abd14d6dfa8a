// Where stretches of bytes come from: looked for in everything that they could be copies of.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace kvcts::findings {

using ByteView = std::span<const std::uint8_t>;

/// Bytes of a file, and those of a source that they equal.
struct SearchedRange {
  std::size_t number{0};  ///< the caller's
  ByteView file;          ///< whole: what lies beside a short stretch helps to find it
  std::int64_t at{0}, bytes{0};
  int source{-1};  ///< -1: none
  std::int64_t from{0};
  bool too_short{false};  ///< to be looked for on its own, and not found with its neighbours
};

/// How far what lies at a byte of a source reaches, and how likely it is that of a stretch: more is more.
struct Likely {
  std::int64_t reach{0};
  int rank{0};
};
using Judge = std::function<Likely(int source, std::int64_t at, const SearchedRange& range)>;

/// Cuts the stretches where their origins end. Each is looked up by 16 bytes, its own or with its neighbours, in one pass
/// over the sources for all; one of less than 4 bytes that was moved on its own is not found. Linear, but for 96 such passes
/// where pieces of pieces come from elsewhere.
std::vector<SearchedRange> origins_of(const std::vector<ByteView>& sources, std::vector<SearchedRange> ranges,
                                      const Judge& judge);

}  // namespace kvcts::findings
