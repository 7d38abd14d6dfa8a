// Coordinate -> address, as code under test computes it: through a view that may be wrong, in arithmetic that may be too
// narrow.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "layout/layout.hpp"
#include "scene/address_space.hpp"

namespace kvcts::scenario {

/// Where a code lies: bits from the start of a buffer; the nibble order of 4-bit codes is applied.
struct BitRange {
  int buffer{-1};
  std::int64_t bit{0};
  int width{0};
};

/// One plane of a view, ready to query. Each axis contributes a sum of digit * stride to the address.
class PlaneLocator {
 public:
  PlaneLocator(const layout::Plane& plane, BufferAddress start, const View& view);

  const layout::Plane& plane() const { return plane_; }
  const layout::Box& domain() const { return domain_; }
  bool has(layout::Axis axis) const { return !modes_[static_cast<std::size_t>(axis)].empty(); }
  /// No blocks and no slots: the same in every block.
  bool unblocked() const { return !has(layout::Axis::block) && !has(layout::Axis::slot); }
  /// One axis's contribution in bits; nullopt: the plane has no such coordinate.
  std::optional<std::int64_t> part(layout::Axis axis, std::int64_t coordinate) const;
  /// The address for a sum of parts.
  BitRange at(std::int64_t sum) const;
  /// Codes of consecutive channels are adjacent and in order: a row is one stretch of bits.
  bool contiguous() const { return contiguous_; }

 private:
  std::int64_t narrow(std::int64_t bits) const;  ///< a value in bits, cut to the view's arithmetic
  layout::Plane plane_;
  layout::Box domain_;
  BufferAddress start_;
  Arithmetic arithmetic_;
  std::array<std::vector<layout::Mode>, layout::axis_count> modes_;  ///< largest step first
  std::optional<std::int64_t> reckon(layout::Axis axis, std::int64_t coordinate) const;
  /// Contributions of the domain's coordinates, computed once; absent where there are too many (pools of millions of
  /// blocks).
  std::array<std::vector<std::optional<std::int64_t>>, layout::axis_count> known_;
  bool contiguous_{false};
};

/// A whole view.
class ViewLocator {
 public:
  ViewLocator(const View& view, const AddressSpace& space);
  const std::vector<PlaneLocator>& planes() const { return planes_; }
  std::int64_t align() const { return align_; }  ///< bytes; code that forms runs rounds their start down
  const std::string& memory() const { return memory_; }
  std::int64_t block_size() const { return block_size_; }  ///< slots of a block
  std::int64_t blocks() const { return blocks_; }
  double elements() const { return elements_; }  ///< of a block; those of its planes that have none

 private:
  std::vector<PlaneLocator> planes_;
  std::string memory_;
  std::int64_t align_{1}, block_size_{1}, blocks_{1};
  double elements_{0};
};

/// Cache of views by content, for one address space.
class Locators {
 public:
  explicit Locators(const AddressSpace& space) : space_(space) {}
  const ViewLocator& of(const View& view);

 private:
  const AddressSpace& space_;
  std::unordered_map<std::string, std::unique_ptr<ViewLocator>> known_;
};

}  // namespace kvcts::scenario
