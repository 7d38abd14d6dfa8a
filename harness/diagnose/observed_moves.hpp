// A step seen from the bytes: for each element of its destination, which element of its source is there. Finds them by
// place, not content: whatever the source held before the step, data or poison, is recognised wherever it went.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "diagnose/clues.hpp"
#include "scene/machine/locator.hpp"

namespace kvcts::scenario {

/// An element as a view has it. Without a token: its block is not in the request's table.
struct Element {
  layout::Component component{};
  layout::Dtype dtype{};
  std::int64_t kv{0}, layer{0}, head{0}, channel{0};
  std::optional<std::int64_t> token;
  std::int64_t block{-1}, slot{0};  ///< -1: the plane has no blocks
};

/// Place -> element, through one view and one block table.
class Lens {
 public:
  Lens(const View& view, const AddressSpace& space, const std::vector<std::int64_t>& ids,
       const std::vector<std::int64_t>& positions, std::int64_t first_token);
  /// The element whose code begins at a byte (4 bits: the even one of the pair).
  std::optional<Element> at(BufferAddress address) const;
  bool sees(int buffer) const;
  /// No two elements share a byte: at() is complete.
  bool nested() const;
  std::int64_t slots() const { return slots_; }  ///< per block

 private:
  struct Face {
    layout::Plane plane;  ///< modes by falling stride
    BufferAddress start;
    bool nested{true};  ///< each mode's step exceeds everything inside it
  };
  std::vector<Face> faces_;
  std::unordered_map<std::int64_t, std::int64_t> token_of_block_;
  std::int64_t slots_{1};
};

/// Element -> place, through one view and one block table.
class Aim {
 public:
  Aim(const ViewLocator& view, const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& positions,
      std::int64_t first_token)
      : view_(view), ids_(ids), positions_(positions), first_token_(first_token) {}
  std::optional<BufferAddress> at(const Element& element) const;
  /// With the given block instead of the table's.
  std::optional<BufferAddress> at(const Element& element, std::int64_t block) const;
  std::int64_t slots() const { return view_.block_size(); }

 private:
  const ViewLocator& view_;
  std::vector<std::int64_t> ids_, positions_;
  std::int64_t first_token_;
};

struct ObservedMove {
  std::optional<Element> at;            ///< where it is: in the destination; in a step without one, whom the truth has there
  Element asked;                        ///< the element that belongs there if the step runs as written
  bool taken{false};                    ///< `at` is one of the elements that the step moves
  std::optional<Element> from;          ///< the element that arrived
  std::optional<BufferAddress> source;  ///< its origin
  std::optional<BufferAddress> stray;   ///< where it lay if that is no memory of the step's source
  const Clue* clue{nullptr};
};

/// This byte of the destination holds what that byte of the source held before the step. Such facts show what a step would
/// have done with addresses without playing it.
struct Fact {
  BufferAddress to, from;
  bool taken{false};  ///< it lies where the step writes: other steps may have moved the rest
  bool sent{false};   ///< it comes from where the step reads
};

/// The source of a destination's pick, and the destination of a source's pick.
std::int64_t picked_source(const Picks& from, const Picks& to, std::int64_t destination);
std::int64_t picked_destination(const Picks& from, const Picks& to, std::int64_t source);
/// Nothing picked: all are.
bool picked(const Picks& picks, std::int64_t value);
/// The block table of a request in a view's memory, or the one given instead; and which positions of a request lie there.
std::vector<std::int64_t> ids_in(const Request& request, const View& view,
                                 const std::optional<std::vector<std::int64_t>>& instead);
std::vector<std::int64_t> positions_in(const Request& request, const View& view);
/// The step, limited to these of its destinations.
void keep_only(Action& action, Picks Selection::* axis, const std::set<std::int64_t>& destinations);

}  // namespace kvcts::scenario
