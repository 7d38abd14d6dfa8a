// The truth of a scenario: what every byte must be at each check, from the intended sequence alone.
//
// The reference model, in symbols. It walks memory from address to coordinate (each plane's modes as nested loops), while
// the machine under test goes from coordinate to address. They share the address space (address_space.hpp) and no
// arithmetic.
//
//   image.hpp             symbols of the bytes of a buffer     reference_model.cpp   the sequence, writes, fills, its end
//   walk.hpp              the loops over a view                elements.cpp          move, copy, read, put, get
//   reference_model.hpp   the state while it works             checks.cpp            registrations and checkpoints
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scene/address_space.hpp"
#include "scene/ending.hpp"
#include "scene/image.hpp"
#include "scene/symbols.hpp"
#include "scene/truth/byte_ranges.hpp"

namespace kvcts::scenario {

/// What must hold when the sequence reaches a check (the last one is at the end of the sequence).
struct Checkpoint {
  std::string step;                 ///< "" = the end
  std::vector<SymbolImage> images;  ///< one per buffer of the address space
  std::map<int, ByteRanges> any;    ///< buffer -> bytes that do not matter
  std::string memory;               ///< compare only this one ("P" or "P/kv.L0"); "" = all
};

struct Truth {
  SequenceEnding ending;
  std::vector<Checkpoint> checks;
  /// One per step, with the fields of the machine's events (recorder.cpp): step, op, request, and what the op reports.
  std::vector<nlohmann::json> events;
};

/// Works out the intended sequence. Throws std::runtime_error with the step's name when the scenario requests the
/// impossible: a coordinate that no view holds, a block table that is too short, an address outside its buffer.
Truth truth_of(const Scenario& scenario, const AddressSpace& space, SymbolTable& symbols);

}  // namespace kvcts::scenario
