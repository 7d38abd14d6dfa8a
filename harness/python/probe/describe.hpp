// What a tensor can be, from its shape and strides alone; and what two layouts are to each other before anything moves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "python/probe/subject.hpp"

namespace kvcts::probe {

/// One map that the tensor can have, with every layout of the catalogue that is this map.
struct Fit {
  std::string axes;           ///< of the tensor's dims, "K B N H C"
  std::string order;          ///< axes of memory, outermost first
  layout::Geometry geometry;  ///< that the shape and the facts give
  std::string dtype;          ///< scheme
  std::vector<std::string> layouts;
};

struct Description {
  std::vector<Fit> fits;
  std::vector<layout::Reading> open;  ///< readings that leave a number open: which of them fits, the shape does not say
  bool ambiguous{false};              ///< more than one map fits, or none does and readings are open
  std::string settled_by;             ///< the fact that would leave one; "" = none is needed
};
/// Throws layout::Error for a shape of more than 8 dimensions or an unknown dtype.
Description describe(const Tensor& tensor, const layout::Facts& facts, const catalogue::Catalogue& catalogue);
/// Names of the axes that a reading leaves without a number.
std::vector<std::string> missing(const layout::Reading& reading);
/// In lines, for people.
std::string to_text(const Tensor& tensor, const Description& description);

/// How the connector moves: by logical coordinates, knowing both layouts; or block by block, bytes as they lie.
enum class Moves { coordinates, blocks };

struct Compatibility {
  int code{0};              ///< as `kvcts check` is to end: 0 compatible, 10 with conversion, 11 refused, 12 silently wrong
  std::string fault_class;  ///< of 12
  std::string text;         ///< one sentence
  bool told_apart{true};    ///< shapes and strides differ, so that a connector that looks at them can tell the two
};
Compatibility compare(const Subject& producer, const Subject& consumer, Moves moves);

}  // namespace kvcts::probe
