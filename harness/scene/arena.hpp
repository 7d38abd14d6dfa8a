// Where the memories of a script lie: backings, and where the allocations of a view begin in them. Shared by the machine
// (what happened) and the truth (what should have); neither looks at the other's bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "case/script.hpp"
#include "layout/layout.hpp"

namespace kvcts::script {

/// A stretch of memory of its own. Offsets run from -guard_below to bytes + guard_above; what lies beyond is not mapped.
struct Backing {
  std::string name;  ///< "P/kv.L0", "P" (a pool, raw bytes), "out1"
  std::string memory;
  std::string side;
  int ordinal{0};  ///< in the list: decides its poison
  std::int64_t bytes{0}, guard_below{0}, guard_above{0};
  std::int64_t base{0};  ///< address of offset 0
  bool sparse{false};    ///< kept page by page: only those that somebody touches exist
  bool zeroed{false};    ///< holds zeros rather than poison before the first step
  std::vector<std::int64_t> boundaries;
};

/// A byte of a backing.
struct Place {
  int backing{-1};
  std::int64_t offset{0};
  bool operator==(const Place&) const = default;
};

class Arena {
 public:
  /// Memory of up to this many bytes in all is kept whole; more of it page by page, and pages that nobody touches do not
  /// exist. What is compared is the same: a tape is all that writes, so an untouched page is as it was.
  static constexpr std::int64_t kept_whole = 4 << 20;

  /// Lays out every memory with bytes of its own, then the outputs of `read` steps (dense, by the intended and the actual
  /// sequence, whichever is longer). Throws std::runtime_error with the memory's name.
  explicit Arena(const Script& script);

  const std::vector<Backing>& backings() const { return backings_; }
  /// Backing of an output. -1: there is none of that name.
  int output(const std::string& name) const;
  /// Where a raw offset of "P", "P/kv.L0" or an output begins. Throws when there is no such place.
  Place place(const std::string& name) const;
  /// Where each allocation of a view's cache begins (view.offset is not in it). `cache`: cache_of(view). As many allocations
  /// as the memory has: one for one. A view of "P/kv.L0", or of a memory with one backing: one behind the other from there.
  std::vector<Place> places(const View& view, const layout::Cache& cache) const;
  /// Name of the memory that `view.of` is in.
  static std::string memory_of(const View& view);
  /// "P/kv.L0" for a place in a pool, with the offset from there; the backing's name elsewhere.
  std::string name_of(Place place, std::int64_t& offset) const;
  /// The first offset behind a place at which another name may begin; the end of its backing at the latest.
  std::int64_t name_end(Place place) const;

 private:
  struct Spot {
    std::string name;  ///< "P/kv.L0"
    Place place;
    std::int64_t bytes{0};
  };
  void add(const std::string& name, const Memory& memory, const Script& script);
  std::vector<Backing> backings_;
  std::vector<Spot> spots_;  ///< allocations, and memories as a whole
  const Script& script_;
};

/// The planes that a view acts through, from its resolved text.
layout::Cache cache_of(const View& view);

/// The elements of one component in the output of a `read`: for kv, for layer, for token, for head, for channel.
struct OutputSection {
  layout::Component component{};
  std::vector<std::int64_t> kv, layers, tokens, heads, channels;
  int width{0};           ///< bits of an element: the plane's, or 32 when decoded
  std::int64_t begin{0};  ///< byte in the output
  std::int64_t row_bits() const { return (static_cast<std::int64_t>(channels.size()) * width + 7) / 8 * 8; }
  std::int64_t bytes() const;
};
/// An output: data, then scales, then global scales, as far as the step reads them and its views have them.
struct OutputShape {
  std::vector<OutputSection> sections;
  std::int64_t bytes() const { return sections.empty() ? 0 : sections.back().begin + sections.back().bytes(); }
};
OutputShape output_shape(const Script& script, const Action& read);
/// Where a section of what is read lies: its place in the output of the read that was meant, where this is a part of it;
/// else its own.
OutputSection place_in_output(const Script& script, const std::string& step, const Action& read,
                              const OutputSection& section);

/// Seed of a pass: poison and tags of different passes have nothing in common.
std::uint64_t pass_seed(std::uint64_t seed, int pass);
/// Poison key of a backing in a pass.
std::uint64_t poison_of(const Backing& backing, std::uint64_t seed, int pass);

}  // namespace kvcts::script
