// What a transfer may copy after the last token of a request. CONTRACT: the tail rule.
//
// A *tail code* is an element of a consumer's named block, at a position that no token of the request has and that the
// producer's named blocks reach. It is unowned. Correct code writes there for two reasons: it moves whole blocks, or whole
// bytes where a code has four bits. So a tail code may keep its value, or take the value that a producer rank with that
// element holds there. Such a rank is a *holder*; free slots of replicas differ, and any replica may be the sender.
// 1. Whole bytes. A tail code that shares its byte with a code of a moved token is copied with that code or stays: each for
// itself, from any holder.
// 2. Whole blocks. All other tail codes of one request in one plane of one region stay, or all are copied. Copying only some
// is an overrun, and wrong. One row (layer, K or V, head) comes from one holder; another row may come from another.
// Everything else follows oracle.hpp: padding, free blocks and other requests' slots stay.
//
// Comparison, diagnosis and dump all use this one implementation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "case/case.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::oracle {

/// The tails of one region. A region of the producer has none.
class Tail {
 public:
  using Files =
      std::span<const std::span<const std::uint8_t>>;  ///< the producer's whole files, in the order of regions(producer)

  /// `resolved` must outlive it.
  Tail(const ResolvedCase& resolved, const RegionRef& region);

  /// Writes the producer's codes into every tail code of `file`, as a whole-block connector does that reads from holder
  /// `replica` (modulo the number of holders). Returns whether there is a tail.
  bool bring_along(const Files& producer, std::span<std::uint8_t> file, std::size_t replica = 0) const;

  /// Makes `expected` (the whole file as required) equal to `found` in every tail code that the rule allows.
  void mask_tail(const Files& producer, std::span<const std::uint8_t> found, std::span<std::uint8_t> expected) const;

 private:
  struct Code {
    std::int64_t bit{0};  ///< in the consumer's file
    int width{0};
  };
  struct Source {
    std::size_t file{0};
    std::int64_t bit{0};
  };
  /// Codes of one row that the same ranks hold: a whole row, unless ranks split its channels or tokens.
  struct Row {
    std::vector<int> holders;  ///< ranks of the producer
    std::vector<Code> codes;
    std::vector<Source> sources;  ///< of each code, for each holder
    const Source& source(std::size_t code, std::size_t holder) const { return sources[code * holders.size() + holder]; }
  };
  void each_plane(const std::function<void(const Request&, const layout::Plane&)>& body) const;
  void each_row(const Request& request, const layout::Plane& plane, const std::function<void(const Row&)>& body) const;
  std::vector<Row> rows(const Request& request, const layout::Plane& plane, layout::Coord at) const;
  bool beside_a_token(const Code& code) const;  ///< in its byte; scans every plane

  const ResolvedCase& case_;
  const RegionRef region_;
  const Group& group_;
  const layout::Cache* truth_{nullptr};  ///< of the consumer's rank; null: nothing can be copied along
  std::int64_t base_{0}, consumer_size_{0}, producer_size_{0};
  std::vector<RegionRef> sources_;                         ///< regions(producer)
  std::unordered_map<std::int64_t, std::int64_t> tokens_;  ///< in a block of the consumer
};

}  // namespace kvcts::oracle
