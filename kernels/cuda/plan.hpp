// From planes and lists of blocks to the arguments of device kernels. The host does all the planning once; kernels only
// multiply out. A plan holds no pointers: its tables are uploaded as one block, and bind() makes the arguments.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "kernels/generate.hpp"
#include "layout/layout.hpp"

namespace kvcts::cuda {

/// Exact for values up to `limit`.
Divider divider(u64 divisor, u64 limit);
/// Throws layout::Error for 2^31 and above.
SmallDivider small_divider(u64 divisor, const char* what);

/// Tables of a launch, consecutive, each at a multiple of 16 bytes.
class Tables {
 public:
  /// Where the table lies.
  template <class T>
  std::size_t add(const std::vector<T>& table) {
    return add(table.data(), table.size() * sizeof(T));
  }
  const std::vector<u8>& bytes() const { return bytes_; }

 private:
  std::size_t add(const void* data, std::size_t bytes);
  std::vector<u8> bytes_;
};

/// Tags of one plane.
struct RowsPlan {
  RowsArgs args;
  Tables tables;
  std::size_t parts{0}, filled{0}, slots{0}, heads{0}, runs{0};
  bool by_code{false};  ///< kvcts_generate_codes: 4-bit codes of several rows share bytes; cannot be checked in place
  u64 blocks() const { return (args.rows + threads - 1) / threads; }
};
/// `base`: bytes from the start of the memory (16-byte aligned) to the plane's allocation. Same requirements and errors as
/// kernels::generate(); also, codes of 8 bits or more must lie on whole bytes (as validate() requires).
RowsPlan plan_rows(std::span<const kernels::BlockContent> content, const layout::Plane& plane, const kernels::TagKey& key,
                   u32 unblocked_generation, u64 base, u64 memory_bytes);
RowsArgs bind(const RowsPlan& plan, void* memory, const void* tables, const Probe& probe = {});

/// Byte ranges of the memory that none of the planes' filled rows touches, ascending: where poison must be. Planes must be
/// plan_rows() plans that are not by_code.
std::vector<Range> unwritten(u64 memory_bytes, u64 base, std::span<const layout::Plane> planes,
                             std::span<const kernels::BlockContent> content);

struct PoisonPlan {
  PoisonArgs args;
  Tables tables;
  std::size_t ranges{0}, first{0};
  u64 blocks() const { return args.tiles; }
};
/// Throws layout::Error when a range leaves the memory or ranges do not ascend.
PoisonPlan plan_poison(std::span<const Range> ranges, u64 key, u64 memory_bytes);
PoisonArgs bind(const PoisonPlan& plan, void* memory, const void* tables, const Probe& probe = {});

/// One token of a relayout: where it is, and where it goes.
struct TokenMove {
  i64 from_block{0}, from_slot{0}, to_block{0}, to_slot{0};
};
struct RelayoutPlan {
  RelayoutArgs args;
  Tables tables;
  std::size_t parts{0}, outer{0}, inner{0}, runs{0};
  u64 bytes{0};  ///< bytes moved
  u64 blocks() const { return (args.rows + threads - 1) / threads; }
};
/// Moves these tokens between two planes of one dtype that hold the same layers, K/V, heads and channels; `from_base` and
/// `to_base` are bytes from the start of each memory to the plane's allocation. Throws layout::Error when the planes do not
/// match, a token is not in its plane, or codes do not lie together on whole bytes on both sides.
RelayoutPlan plan_relayout(const layout::Plane& from, u64 from_base, const layout::Plane& to, u64 to_base,
                           std::span<const TokenMove> tokens);
RelayoutArgs bind(const RelayoutPlan& plan, const void* from, void* to, const void* tables);

/// Access width, and accesses per run and per row, of a copy between paged caches and packed rows: `run_bytes` bytes of
/// channels are adjacent and `runs` of them make a head. `places`: every stride and base address involved.
template <class Args>
void shape_copy(Args& args, u64 run_bytes, u64 runs, std::span<const u64> places);

}  // namespace kvcts::cuda
