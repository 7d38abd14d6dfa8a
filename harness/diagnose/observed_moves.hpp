// A step seen from the bytes: for each element of its destination, which element of its source is there. Finds them by
// place, not content: whatever the source held before the step, data or poison, is recognised wherever it went.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "diagnose/attributions.hpp"
#include "scene/machine/locator.hpp"

namespace kvcts::scenario {

/// An element as a view has it. Without a token: its block is not in the request's table.
struct ViewElement {
  layout::Component component{};
  layout::Dtype dtype{};
  std::int64_t kv{0}, layer{0}, head{0}, channel{0};
  std::optional<std::int64_t> token;
  std::int64_t block{-1}, slot{0};  ///< -1: the plane has no blocks
};

/// Place -> element, through one view and one block table.
class AddressToElement {
 public:
  AddressToElement(const View& view, const AddressSpace& space, const std::vector<std::int64_t>& ids,
                   const std::vector<std::int64_t>& positions, std::int64_t first_token);
  /// The element whose code begins at a byte (4 bits: the even one of the pair).
  std::optional<ViewElement> at(BufferAddress address) const;
  bool sees(int buffer) const;
  /// No two elements share a byte: at() is complete.
  bool nested() const;
  std::int64_t slots() const { return slots_; }  ///< per block

 private:
  struct MappedPlane {
    layout::Plane plane;  ///< modes by falling stride
    BufferAddress start;
    bool nested{true};  ///< each mode's step exceeds everything inside it
  };
  std::vector<MappedPlane> planes_;
  std::unordered_map<std::int64_t, std::int64_t> token_of_block_;
  std::int64_t slots_{1};
};

/// Element -> place, through one view and one block table.
class ElementToAddress {
 public:
  ElementToAddress(const ViewLocator& view, const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& positions,
                   std::int64_t first_token)
      : view_(view), ids_(ids), positions_(positions), first_token_(first_token) {}
  std::optional<BufferAddress> at(const ViewElement& element) const;
  /// With the given block instead of the table's.
  std::optional<BufferAddress> at(const ViewElement& element, std::int64_t block) const;
  std::int64_t slots() const { return view_.block_size(); }

 private:
  const ViewLocator& view_;
  std::vector<std::int64_t> ids_, positions_;
  std::int64_t first_token_;
};

struct ObservedMove {
  std::optional<ViewElement> at;        ///< where it is: in the destination; in a step without one, whom the truth has there
  ViewElement asked;                    ///< the element that belongs there if the step runs as written
  bool taken{false};                    ///< `at` is one of the elements that the step moves
  std::optional<ViewElement> from;      ///< the element that arrived
  std::optional<BufferAddress> source;  ///< its origin
  std::optional<BufferAddress> unexpected;  ///< where it lay if that is no memory of the step's source
  const Attribution* attribution{nullptr};
};

/// This byte of the destination holds what that byte of the source held before the step. Such facts show what a step would
/// have done with addresses without playing it.
struct ByteMove {
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
std::vector<std::int64_t> ids_in(const ScenarioRequest& request, const View& view,
                                 const std::optional<std::vector<std::int64_t>>& instead);
std::vector<std::int64_t> positions_in(const ScenarioRequest& request, const View& view);
/// The step, limited to these of its destinations.
void keep_only(Action& action, Picks StepSelection::* axis, const std::set<std::int64_t>& destinations);

}  // namespace kvcts::scenario
