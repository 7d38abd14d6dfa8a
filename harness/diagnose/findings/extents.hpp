// The relation between what should be in a memory and what is there, run by run: what findings are made of, whatever the
// kind of case.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kvcts::findings {

/// Coordinates of content, and of its place in a declared layout (block, slot). Component as in layout.hpp.
enum class ContentAxis : std::uint8_t { component, request, layer, kv, token, block, slot, head, channel };
inline constexpr int axis_count = 9;
inline constexpr std::int64_t none = -1;  ///< no such coordinate, or not known

struct Coordinates {
  std::array<std::int64_t, axis_count> at{none, none, none, none, none, none, none, none, none};
  std::int64_t& operator[](ContentAxis axis) { return at[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](ContentAxis axis) const { return at[static_cast<std::size_t>(axis)]; }
  bool operator==(const Coordinates&) const = default;
};

/// Who lies somewhere.
struct ByteSource {
  enum class Kind : std::uint8_t {
    nothing,   ///< what was there before the first step
    element,   ///< content, at these coordinates
    constant,  ///< the same value whatever the content
    poison,    ///< of another place: bytes that no step wrote there
    mixed,     ///< a code or a number made of the parts of several
    follows,   ///< in what a step read: what lies, wrongly, in the memory that it read from (`text`)
    unknown,
  };
  Kind kind{Kind::unknown};
  std::uint8_t value{0};  ///< constant
  std::uint8_t byte{0};   ///< element: which byte of its code comes first
  std::uint8_t times{0};  ///< a decoded number: how often its scale was applied
  Coordinates at;         ///< element; for what should be there also the place (block, slot), if it has one
  std::string text;       ///< poison, mixed, follows: in words
  bool operator==(const ByteSource&) const = default;
};

/// A run of bytes in which both sides advance together along the channels.
struct Extent {
  int memory{0};
  std::int64_t offset{0}, bytes{0};
  std::int64_t channels{1};
  int bits{0},
      is_bits{0};  ///< of a code of what should be there (of its place, where nothing should), of what is; 0: not known
  ByteSource should, is;
  bool wrong{false};
  int region{-1};  ///< of `offset`: index of Labels::regions
  /// A place that holds the same bytes one after another; -1: none does, or not known.
  int from{-1};
  std::int64_t from_offset{0};
  std::int64_t as_before{0};  ///< of a right one: bytes at its end that were right before anything was written
};

/// Sets of values per axis; an axis without an entry: whatever it is.
using Scope = std::map<ContentAxis, std::vector<std::int64_t>>;

/// Places of the declared layout: all between two coordinates, the second one excluded.
struct LayoutBox {
  Coordinates low, high;
  int bits{8};
};

/// What the numbers are called.
struct Labels {
  std::vector<std::string> memories;             ///< by Extent::memory
  std::map<std::int64_t, std::string> requests;  ///< ContentAxis::request -> "A"
  std::vector<std::string> regions;
  /// Memories from this one on are what steps read: they come last, for most of it follows from the others.
  int first_output{INT32_MAX};
  std::set<int> sources;                         ///< memories that a transfer reads; none: what its pieces are is not known
  std::map<int, std::vector<LayoutBox>> planes;  ///< by Extent::memory
};

/// Bit of its row at which it begins.
inline std::int64_t begin_of(const ByteSource& source, int bits) {
  return source.at[ContentAxis::channel] * bits + 8 * source.byte;
}

/// Rows are cut where others of their memory and component begin or end: a set of channels is one of whole facts.
std::vector<Extent> cut_alike(const std::vector<Extent>& extents);

/// Two axes of a block, walked in the other order: place (a, b) of A x B holds what that order puts at a * B + b.
struct Transposition {
  ContentAxis a{}, b{};
  std::vector<std::size_t> extents;  ///< that it predicts, ascending
};
/// The two axes that predict most of `some`; fewer than half: none. `sizes`: extents of the axes, from 0.
std::optional<Transposition> transposition_of(const std::vector<Extent>& extents, const std::vector<std::size_t>& some,
                                              const std::map<ContentAxis, std::int64_t>& sizes);

/// Whether all content in its scope, some of `all`, is as it predicts.
bool fills(const Transposition& turned, const std::vector<Extent>& extents, const std::vector<std::size_t>& all,
           const std::map<ContentAxis, std::int64_t>& sizes);

/// A stretch of memory that holds a stretch of another, byte for byte.
struct FlatCopy {
  int region{0}, from{0};
  std::int64_t offset{0}, from_offset{0}, length{0}, bytes{0};  ///< bytes: that are wrong by it
};
/// Of `some`; none if not all of them come from somewhere.
std::vector<FlatCopy> flats_of(const std::vector<Extent>& extents, std::vector<std::size_t> some);

/// Content that lies where other strides than the declared ones put it; or that was read from there.
struct StrideFit {
  bool read{false};
  int region{0};                                          ///< in which most of it lies, or from which it was read
  bool several{false};                                    ///< regions of one memory
  std::map<ContentAxis, std::int64_t> strides, declared;  ///< bytes
  std::int64_t shift{0};             ///< where the strides are the declared ones: bytes between the bases
  std::vector<std::size_t> extents;  ///< ascending; each is exactly where the strides put it
  std::int64_t bytes{0};
};
/// Of `some` as a whole, or one for each value of an axis: what covers the most. Whole memories, for the declared strides,
/// are `facts`.
std::vector<StrideFit> fits_of(const std::vector<Extent>& extents, const std::vector<std::size_t>& some, bool read);

/// Facts (by index, ascending) that fill a product of sets, but for `others` bytes that do not belong to them.
struct ExtentBox {
  std::vector<std::size_t> extents;
  Scope scope;
  std::int64_t bytes{0}, others{0};
};
/// `chosen`, some of `all` (of one memory, laid out in `planes`), in as few boxes as there are; if more than `most`, in one
/// that is not full.
std::vector<ExtentBox> boxes_of(const std::vector<Extent>& extents, const std::vector<std::size_t>& chosen,
                                const std::vector<std::size_t>& all, const std::vector<LayoutBox>& planes, std::size_t most);
/// Channels that should be in facts, ascending.
std::vector<std::int64_t> channels_of(const std::vector<Extent>& extents, const std::vector<std::size_t>& some);
/// Bytes of the places that lie in a scope.
std::int64_t bytes_in(const std::vector<LayoutBox>& planes, const Scope& scope);

/// What one coordinate became, over a set of pairs (should, is).
struct AxisMap {
  enum class Kind : std::uint8_t { same, shift, always, exchange, multiple, remainder, rounded, reversed, table, tangle };
  Kind kind{Kind::same};
  std::int64_t by{0};  ///< shift: added; always: the value; multiple: factor; remainder, rounded: of what; reversed: the sum
  std::vector<std::pair<std::int64_t, std::int64_t>> table;  ///< exchange, table: should -> is, ascending
};
/// The cheapest that holds for every pair; tangle: it is no function of this coordinate.
AxisMap map_of(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs);

}  // namespace kvcts::findings
