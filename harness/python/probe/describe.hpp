// What a tensor can be, given only its shape and strides; and how two layouts relate before anything moves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "python/probe/subject.hpp"

namespace kvcts::probe {

/// One map that the tensor can have, with every catalogue layout that has this map.
struct Fit {
  std::string axes;           ///< of the tensor's dims, "K B N H C"
  std::string order;          ///< axes of memory, outermost first
  layout::Geometry geometry;  ///< implied by the shape and the facts
  std::string dtype;          ///< scheme
  std::vector<std::string> layouts;
};

struct Description {
  std::vector<Fit> fits;
  std::vector<layout::Reading> open;  ///< readings with an unknown number: the shape cannot decide between them
  bool ambiguous{false};              ///< more than one map fits, or none does and readings are open
  std::string settled_by;             ///< the fact that would leave one fit; "" = none is needed
};
/// Throws layout::Error for a shape of more than 8 dimensions or an unknown dtype.
Description describe(const Tensor& tensor, const layout::Facts& facts, const catalogue::Catalogue& catalogue);
/// Names of the axes whose number a reading leaves open.
std::vector<std::string> missing(const layout::Reading& reading);
/// As lines for people.
std::string to_text(const Tensor& tensor, const Description& description);

/// How the connector moves: by logical coordinates, knowing both layouts; or block by block, bytes unchanged.
enum class Moves { coordinates, blocks };

struct Compatibility {
  int code{0};               ///< expected exit status of `kvcts check`: 0 compatible, 10 with conversion, 11 refused, 12
                             // silently wrong
  FaultClass fault_class{};  ///< for 12
  std::string text;          ///< one sentence
  bool distinguished{true};  ///< shapes and strides differ, so a connector that checks them can distinguish the two
};
Compatibility compare(const Subject& producer, const Subject& consumer, Moves moves);

}  // namespace kvcts::probe
