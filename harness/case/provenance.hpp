// Who a run of bytes is, in the words of dumps and drawings: elements along one row of channels, poison of a region, one
// value, or nobody known. Made from tags (script/window.hpp, oracle/window.hpp); nothing here decodes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcts {

struct Provenance {
  enum class Kind : std::uint8_t { unknown, constant, poison, element, other };
  Kind kind{Kind::unknown};
  std::string component;  ///< element: "" = data, "scale", "global scale", "number of"
  std::int64_t kv{0}, layer{0}, head{0}, channel{0}, last_channel{0};
  std::int64_t block{-1}, slot{-1};  ///< where it lies in `from`; -1: nowhere that is known
  std::int64_t token{-1};            ///< position in the content; -1: not told
  std::uint32_t generation{0};
  std::string from;  ///< memory, where there are several with one rank; may be empty
  int rank{-1};
  std::string region;  ///< poison: whose
  std::int64_t offset{0}, last_offset{0};
  std::uint8_t value{0};  ///< constant
  std::string text;       ///< other: said as it stands
  bool operator==(const Provenance&) const = default;
};

/// Makes `run` longer by the byte behind it. False: `next` is somebody else.
bool extend(Provenance& run, const Provenance& next);

/// "K layer 3 block 7 slot 2 head 1 channel 0..15, generation 1, from rank 0", "poison of D/kv.L0 + 128..159", "0x00",
/// "unknown".
std::string words(const Provenance& who);

/// A place of a drawing (`$defs/place` of results.schema.json): [rank, layer, kv, block, slot, head, channel, generation],
/// or words.
nlohmann::json place_json(const Provenance& who);

/// Neighbouring bytes of a window that belong together, there and in what they should be.
struct Stretch {
  std::int64_t offset{0}, bytes{0};
  std::string
      place;  ///< what lies there by the declared layout: "K layer 0 block 1 slot 0 head 0", "padding", "guard below"
  Provenance expected, found;
  bool wrong{false};  ///< some byte differs in some pass
};

/// Appends one byte to a list of stretches.
void append(std::vector<Stretch>& stretches, Stretch byte);

}  // namespace kvcts
