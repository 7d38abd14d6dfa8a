// A window of a scripted case's memory in words: what lies there by the declared layout, who should be there, and who is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "case/provenance.hpp"
#include "diagnose/attributions.hpp"
#include "diagnose/observe.hpp"

namespace kvcts::scenario {

/// Where bytes of the address space lie by the declared layouts of their memories.
class LayoutIndex {
 public:
  LayoutIndex(const Scenario& scenario, const AddressSpace& space);
  /// The element there as a place: layer, kv, block, slot, head, channel, and its memory. nullopt: padding, guard, raw
  /// bytes.
  std::optional<ElementRun> at(BufferAddress address) const;
  /// "K layer 0 block 1 slot 2 head 0", "padding", "guard below", "guard above", "raw bytes".
  std::string text_at(BufferAddress address) const;
  /// Of a place outside, in a pool whose blocks are outermost: "block 9, slot 8, of 8 blocks"; else "".
  std::string text_beyond(BufferAddress address) const;

 private:
  struct Memory {
    std::string name;
    int rank{0};
    layout::Cache cache;
    std::vector<BufferAddress> begins;  ///< of the allocations
  };
  const AddressSpace& space_;
  std::vector<Memory> memories_;
};

/// Whos in readable form: the element with its block and slot in the memory it came from (the first other memory that has it
/// in the truth, a producer's before others).
class ProvenanceFormatter {
 public:
  ProvenanceFormatter(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols,
                      const Checkpoint& check);
  Provenance tell(const Symbol& symbol, int buffer) const;
  const LayoutIndex& layout_index() const { return layout_index_; }

 private:
  const AddressSpace& space_;
  const SymbolTable& symbols_;
  LayoutIndex layout_index_;
  ElementIndex element_index_;
};

struct MemoryWindow {
  std::string region;                ///< "P/kv.L0", or a memory, allocation or output with a unique name
  std::int64_t offset{0}, bytes{0};  ///< from the region's first byte; guards are below 0 and beyond the end
  std::string check;                 ///< name of a check; "" = the last one reached
};
struct ShownRegion {
  std::string name, side;
  std::int64_t bytes{0}, guard_below{0}, guard_above{0};
};

/// The regions that can be shown.
std::vector<ShownRegion> regions_of(const Scenario& scenario);
/// Plays the scenario as run_scenario() does, then reads the window. Throws std::runtime_error when the region, check or
/// byte does not exist.
std::vector<ComparedRange> read_window(const Scenario& scenario, std::uint64_t seed, const MemoryWindow& window);

/// The runs around the first wrong byte, for a drawing: `moves`, `moves_from`, `bytes_left_out` of `$defs/picture`. Empty
/// when no byte is wrong.
nlohmann::json moves_of(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols,
                        const Checkpoint& check, const Attributions& attributions);

}  // namespace kvcts::scenario
