// What each byte of every region must be, before and after. Works on logical coordinates and the declared truth only: it
// never sees a plan, a connector or the other side's layout.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "case/case.hpp"
#include "kernels/generate.hpp"
#include "kernels/poison.hpp"

namespace kvcts::oracle {

using Bytes = std::vector<std::uint8_t>;

/// Where an allocation lies in its memory file: guard below, the allocation, guard above.
struct FileShape {
  std::int64_t size{0}, base{0}, bytes{0};
};
/// Guard pages on both sides, the base `misalign` bytes off a page boundary.
FileShape file_shape(const ResolvedCase& resolved, std::int64_t allocation_bytes);

/// Poison key of a region's memory file.
std::uint64_t region_key(const ResolvedCase& resolved, const RegionRef& region);

/// Of the tags of one pass.
kernels::TagKey tag_key(const ResolvedCase& resolved, int pass);

/// Blocks and their tokens on one side. `transferred_only`: what a consumer must hold after the transfer.
std::vector<kernels::BlockContent> content(const Group& group, Side side, bool transferred_only);

/// Writes the state before the transfer into a whole memory file: poison everywhere, plus every request's tags on the
/// producer.
void write_initial(const ResolvedCase& resolved, const RegionRef& region, int pass, std::span<std::uint8_t> file);

/// Writes the state that a correct transfer leaves.
void write_expected(const ResolvedCase& resolved, const RegionRef& region, int pass, std::span<std::uint8_t> file);

/// Whether the file holds exactly that. Compares in place, without an image.
bool holds_expected(const ResolvedCase& resolved, const RegionRef& region, int pass, std::span<const std::uint8_t> file);

/// Bytes that a correct transfer moves: `least` counts tokens, `most` whole blocks.
struct Amount {
  std::int64_t least{0}, most{0};
};
Amount transfer_bytes(const ResolvedCase& resolved);
/// Of what consumers must hold, whether a connector moves it or nothing does.
Amount content_bytes(const ResolvedCase& resolved);

/// The rows that the reader must have gathered: K then V rows of each request, [tokens, heads, head_dim] packed.
Bytes expected_output(const ResolvedCase& resolved, int pass);
std::uint64_t output_key(const ResolvedCase& resolved);

/// "K layer 0 block 3 slot 2 head 1 channel 5", "padding", "guard below", "guard above".
std::string where(const ResolvedCase& resolved, const RegionRef& region, std::int64_t allocation_offset);

}  // namespace kvcts::oracle
