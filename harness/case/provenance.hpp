// Who a run of bytes is, in the words of dumps and drawings: elements along one row of channels, poison of a region, one
// value, or unknown.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts {

struct Provenance {
  enum class Kind : std::uint8_t {
    unknown,
    constant,
    poison,
    element,
    nothing,  ///< no content belongs here
    before,   ///< what was there before the first write
    follows,  ///< in what was read: what lies, wrongly, in the memory that was read
    other,
  };
  Kind kind{Kind::unknown};
  std::string component;  ///< element: "" = data, "scale", "global scale", "number of"
  std::int64_t kv{0}, layer{0}, head{0}, channel{0}, last_channel{0};
  std::int64_t block{-1}, slot{-1};  ///< its place in `from`; -1: unknown
  std::int64_t token{-1};            ///< position in the content; -1: unknown
  std::uint32_t generation{0};
  std::string from;  ///< memory, if several share a rank; may be empty
  int rank{-1};
  std::string region;  ///< poison: of which region
  std::int64_t offset{0}, last_offset{0};
  std::uint8_t value{0};  ///< constant
  std::string text;       ///< nothing, before, follows, other: printed verbatim
  bool operator==(const Provenance&) const = default;
};

/// An element of a declared layout.
struct ElementRun {
  Provenance element;
  std::int64_t run{1};  ///< bytes from here in which only the channel advances
  std::int64_t bits{8};
};
/// At a byte of an allocation; nothing: padding, or outside.
std::optional<ElementRun> element_run_at(const layout::Cache& cache, int allocation, std::int64_t offset);

/// Extends `run` by the following byte. False: `next` does not continue it.
bool extend(Provenance& run, const Provenance& next);

/// "K layer 3 block 7 slot 2 head 1 channel 0..15, generation 1, from rank 0", "poison of D/kv.L0 + 128..159", "0x00",
/// "unknown".
std::string to_string(const Provenance& provenance);

/// A place of a drawing (`$defs/place` of results.schema.json): [rank, layer, kv, block, slot, head, channel, generation],
/// or words.
nlohmann::json place_json(const Provenance& provenance);

/// Neighbouring bytes of a window that belong together, both as found and as expected.
struct ComparedRange {
  std::int64_t offset{0}, bytes{0};
  std::string
      place;  ///< what lies there by the declared layout: "K layer 0 block 1 slot 0 head 0", "padding", "guard below"
  Provenance expected, found;
  bool wrong{false};  ///< some byte differs in some pass
};

/// Appends one byte to a list of stretches.
void append(std::vector<ComparedRange>& extents, ComparedRange byte);

}  // namespace kvcts
