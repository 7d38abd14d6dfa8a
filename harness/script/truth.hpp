// The truth of a script: who every byte must be at each check, from the intended sequence alone.
//
// A painter of names: it walks memory from address to coordinate (each plane's modes as nested loops), while the machine under test
// goes from coordinate to address; they share the arena (arena.hpp) and no arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "script/arena.hpp"
#include "script/ending.hpp"
#include "script/who.hpp"

namespace kvcts::script {

/// Ids of the bytes of one backing, guards included; pages that nobody wrote are not stored.
class Image {
 public:
  static constexpr std::int64_t page = 4096;
  /// `fresh`: what a byte is before anybody writes it (poison at its offset, zero, hole).
  Id at(std::int64_t offset, const std::function<Id(std::int64_t)>& fresh) const;
  void set(std::int64_t offset, Id id, const std::function<Id(std::int64_t)>& fresh);
  const std::map<std::int64_t, std::shared_ptr<std::vector<Id>>>& pages() const { return pages_; }

 private:
  std::map<std::int64_t, std::shared_ptr<std::vector<Id>>> pages_;  ///< copied on write, so that a snapshot is cheap
};

/// What must hold when the sequence reaches a check (the last one is at the end of the sequence).
struct Checkpoint {
  std::string step;                    ///< "" = the end
  std::vector<Image> images;           ///< one a backing
  std::map<int, std::map<std::int64_t, std::int64_t>> any;   ///< backing -> begin -> end: bytes that do not matter
  std::string memory;                  ///< compare only this one; "" = all
};

struct Truth {
  Ending ending;
  std::vector<Checkpoint> checks;
  std::vector<nlohmann::json> events;  ///< completions, failures, misses and hits of keys, as they should be
};

/// Paints the intended sequence. Throws std::runtime_error, with the step's name, when the script asks for what cannot be meant:
/// an element that a view does not hold, a block table that is too short.
Truth paint(const Script& script, const Arena& arena, Names& names);

}  // namespace kvcts::script
