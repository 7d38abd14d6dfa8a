// The arguments of every device kernel: plain structures, the same for nvcc, NVRTC and the host. Pointers are device
// addresses. plan.hpp builds all tables.
//
// A launch has `threads` threads per block and any number of blocks: kernels stride over tiles, and every count is 64 bits
// wide. Memory passed in is 16-byte aligned and readable up to the next 16-byte boundary after its end.
#pragma once

#include "kernels/cuda/portable.hpp"

namespace kvcts::cuda {

inline constexpr u32 threads = 256;

// ---- rows of tags ----------------------------------------------------------------------------------------------------

/// One (layer, kv) of a plane.
struct Part {
  u64 prefix{0};  ///< tag_prefix()
  i64 bit{0};     ///< from the start of the memory
  u32 digit{0};   ///< of scale_digit(): layer + 2 kv
  u32 reserved{0};
};

/// One block of the pool and its tokens.
struct Filled {
  i64 bit{0};  ///< from its part's bit
  i64 first_token{0}, first_slot{0}, tokens{0};
  u32 generation{0};
  u32 reserved{0};
};

/// One coordinate of an axis and how far it is from the axis's start.
struct Place {
  i64 coord{0};
  i64 bit{0};
};

/// Adjacent channels of a row.
struct ChannelRun {
  i64 bit{0};     ///< from the row's bit
  i64 stream{0};  ///< where it begins in the row's key stream: bytes for rows, the channel for codes
};

enum class CodeKind : u32 {
  plain,    ///< masks only
  swapped,  ///< 4 bits, high nibble first
  digit16,  ///< scales of 16 bits: bits 2..3 count
  digit32,  ///< scales of 32 bits
};

/// How words of the key stream become codes: the masks of kernels::CodeRule, repeated over a word.
struct Codes {
  u32 width{16};
  u32 and_mask{0}, or_mask{0};
  CodeKind kind{CodeKind::plain};
  u32 scale{0};  ///< 0 or 1
};

/// What a check found in one region. Offsets are bytes from the start of its memory.
struct Findings {
  u64 wrong_bytes{0};
  u64 first{~u64{0}};  ///< smallest wrong offset >= Probe::from
  u64 listed{0};       ///< wrong offsets found in [from, to); those beyond the list's capacity are only counted
};

/// Where findings go, and which wrong offsets are listed, in any order.
struct Probe {
  Findings* findings{nullptr};
  u64* list{nullptr};
  u64 from{0}, to{0};
  u64 capacity{0};
};

/// row = ((part * filled + block) * outer + o) * inner + i; a row is written in `runs` of `run_bytes` bytes each.
struct RowsArgs {
  u8* memory{nullptr};
  const Part* parts{nullptr};
  const Filled* filled{nullptr};
  const Place* slots{nullptr};
  const Place* heads{nullptr};
  const ChannelRun* runs{nullptr};
  u64 rows{0};
  Divider inner, outer, blocks;
  u32 slots_inner{0};   ///< 1: i counts slots and o heads; 0: the reverse
  u32 rows_fastest{0};  ///< 1: neighbouring threads write the same run of neighbouring rows
  u32 run_bytes{0};
  u32 whole{0};              ///< 1: every run is whole vectors and starts at a multiple of 16 bytes
  SmallDivider vectors;      ///< 16-byte accesses per run
  SmallDivider row_vectors;  ///< and per row
  Codes codes;
  Probe probe;
};

// ---- ranges ----------------------------------------------------------------------------------------------------------

/// Bytes [begin, end) of the memory.
struct Range {
  u64 begin{0}, end{0};
};

/// 16-byte accesses that one tile of ranges makes.
inline constexpr u32 range_vectors = 4 * threads;

/// Poison over many ranges. `first[k]`: number of the first tile of range k (of the first 16-byte access if `fine`), with
/// one more entry than ranges.
struct PoisonArgs {
  u8* memory{nullptr};
  const Range* ranges{nullptr};
  const u64* first{nullptr};
  u64 count{0};
  u64 key{0};     ///< kernels::poison_key()
  u64 offset{0};  ///< of `memory` in its memory file, a multiple of 16
  u64 tiles{0};
  u32 fine{0};  ///< 1: the ranges are short; each access looks up its own
  u32 reserved{0};
  Probe probe;
};

/// Two memories of the same length, byte for byte.
struct CompareArgs {
  const u8* observed{nullptr};
  const u8* expected{nullptr};
  u64 bytes{0};
  Probe probe;
};

/// digest/1 of `bytes` bytes: the sum over 8-byte little-endian words w[i] (the last padded with zeros) of mix(w[i] + (i +
/// 1) * 0x9e3779b97f4a7c15), plus mix(bytes). A sum, so threads may add in any order.
struct DigestArgs {
  const u8* memory{nullptr};
  u64 bytes{0};
  u64* sum{nullptr};
};

/// Reads every byte and keeps nothing: the baseline for checks. Writes `never` only if the words' xor is `unlikely`.
struct ReadArgs {
  const u8* memory{nullptr};
  u64 bytes{0};
  u64* never{nullptr};
  u64 unlikely{0};
};

// ---- copies between layouts ------------------------------------------------------------------------------------------

/// One coordinate on both sides, bytes.
struct Pair {
  i64 from{0}, to{0};
};

/// row = (part * outer + o) * inner + i; `runs` pieces per row of `run_bytes` bytes each, moved `access` bytes at a time.
struct RelayoutArgs {
  const u8* from{nullptr};
  u8* to{nullptr};
  const Pair* parts{nullptr};  ///< (layer, kv)
  const Pair* outer_places{nullptr};
  const Pair* inner_places{nullptr};
  const Pair* runs{nullptr};
  u64 rows{0};
  Divider inner, outer;
  u32 rows_fastest{0};
  u32 swap_nibbles{0};  ///< 1: the two sides pack 4-bit codes in opposite order
  u32 access{16};       ///< 1, 2, 4, 8 or 16; divides every place and run_bytes
  u32 reserved{0};
  SmallDivider pieces;  ///< accesses per run
  SmallDivider row_pieces;
};

/// Strides of one paged cache of one layer, in bytes. A channel run is all of head_dim, or x of its channels where the
/// layout splits it.
struct Paged {
  u64 block{0}, slot{0}, head{0}, run{0};
};

/// What reshape_and_cache does: rows [tokens, heads, head_dim] of new keys or values go where the slot mapping says. A
/// negative slot is padding and is skipped.
struct ScatterArgs {
  const u8* rows{nullptr};
  u64 token_stride{0}, head_stride{0};  ///< bytes
  u8* cache{nullptr};
  const i64* slot_mapping{nullptr};
  u64 tokens{0};
  Divider heads, block_size;
  Paged paged;
  u32 access{16};
  u32 run_bytes{0};
  SmallDivider pieces;
  SmallDivider row_pieces;
};

/// What a decode kernel reads: K or V rows of every request, through its block table, packed [tokens, heads, head_dim].
struct GatherArgs {
  const u8* cache{nullptr};
  u8* rows{nullptr};
  const std::int32_t* block_table{nullptr};  ///< [requests, table_stride]
  const u64* first_token{nullptr};           ///< [requests + 1]: prefix sums of the requests' lengths
  u64 requests{0}, table_stride{0}, tokens{0};
  Divider heads, block_size;
  Paged paged;
  u32 access{16};
  u32 run_bytes{0};
  SmallDivider pieces;
  SmallDivider row_pieces;
};

// ---- conversions -------------------------------------------------------------------------------------------------------

/// Elements that stand alone, packed; dtypes are layout::Dtype.
struct ConvertArgs {
  const u8* from{nullptr};
  u8* to{nullptr};
  u64 elements{0};
  u32 from_dtype{0}, from_width{0}, to_dtype{0}, to_width{0};
};

/// The contract in kernels/convert/block.hpp for a block's scale.
enum class ScaleRule : u32 { nvfp4, mx_down, mx_up, row };

/// `blocks` blocks of `block` elements, packed on both sides, each with a scale: one byte, or an fp32 for rows. A block
/// begins at a whole byte of the codes.
struct BlockArgs {
  u8* wide{nullptr};  ///< fp32, fp16 or bf16
  u8* codes{nullptr};
  u8* scales{nullptr};
  u64 blocks{0};
  u32 block{16};
  ScaleRule rule{ScaleRule::nvfp4};
  u32 wide_dtype{0}, wide_width{0}, code_dtype{0}, code_width{0};
  float global{1};  ///< nvfp4: the decoding factor
  u32 reserved{0};
};

// ---- watchdog fixtures -------------------------------------------------------------------------------------------------

/// Spins until `*flag` is not 0 or `nanoseconds` have passed. `flag` may be null. `*passed` counts completed launches.
struct SpinArgs {
  const volatile u32* flag{nullptr};
  u64 nanoseconds{0};
  u64* passed{nullptr};
};

/// For the kernels that never end or fail. kvcts_illegal_address writes to `address`.
struct HangArgs {
  volatile u32* word{nullptr};
  u64 address{0};
};

}  // namespace kvcts::cuda
