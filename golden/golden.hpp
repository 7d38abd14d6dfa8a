// Golden tensors: caches written by an independent NumPy generator (golden/generate.py), stored in HDF5, read here as plain
// values.
//
// A file is trusted only when its SHA-256 is in the manifest. Even then libhdf5 runs in a child process
// (kvcts-golden-reader), because it is not robust to damaged files. This library does not link HDF5.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "golden/manifest.hpp"
#include "layout/scheme.hpp"
#include "layout/template.hpp"

namespace kvcts::golden {

/// One golden tensor that exists: layout x dtype.
struct GoldenEntry {
  std::string layout, dtype, template_text, file;
  bool operator==(const GoldenEntry&) const = default;
};

/// Names an element. Planes without blocks have token 0.
struct Record {
  std::int32_t layer, kv, block, slot, token, head, channel;
};

/// One leaf of the layout's text.
struct GoldenPlane {
  std::string text;       ///< "L x K=0 B H C/x N C%x"
  std::string component;  ///< data | scale | gscale
  std::string dtype;      ///< of one code
  int bits{0};            ///< of one code
  bool high_nibble_first{false};
  /// Written elements, row-major [layer, kv, token, head, channel]: right-aligned codes, and their names.
  std::vector<std::int64_t> shape;
  std::vector<std::uint32_t> tags;
  std::vector<Record> records;
  bool blocked{true};                     ///< false: no block or slot axis (a global scale); always written, with token 0
  std::vector<std::int64_t> first, step;  ///< on each axis of pool_shape: coordinate of index 0, and its increment per index
  /// All elements of the pool, written or not, row-major [layer, kv, block, slot, head, channel]: their start bits.
  std::vector<std::int64_t> pool_shape;
  std::vector<std::int16_t> allocation;
  std::vector<std::int64_t> bit;
};

struct GoldenAllocation {
  std::string name;                 ///< "a0", in the order of layout::Cache::allocations
  std::vector<std::uint8_t> bytes;  ///< without guards; unwritten: poison of this side, rank, index, from offset 0
};

/// Everything in one group /dtypes/<dtype>, with the numbers it was made from.
struct GoldenTensor {
  std::string layout, dtype, template_text, geometry_name;
  layout::Geometry geometry;
  layout::Scheme scheme;
  std::uint64_t seed{1};
  std::uint32_t pass{0}, origin{0}, side{0}, rank{0}, generation{1};
  std::int64_t tokens{0};
  std::vector<std::int32_t> block_table;  ///< blocks of the one request, in order
  std::vector<std::int32_t> token_table;  ///< [block, slot] -> token of the request, -1 where unwritten
  std::vector<GoldenAllocation> allocations;
  std::vector<GoldenPlane> planes;
};

struct LoadOptions {
  std::filesystem::path reader;  ///< empty: kvcts-golden-reader beside the running program
  std::chrono::milliseconds deadline{std::chrono::seconds(30)};
  std::int64_t file_bytes{std::int64_t{16} << 20};
  std::int64_t output_bytes{std::int64_t{512} << 20};
};

/// Every layout x dtype of the manifest, sorted. Throws Error when the manifest is missing or wrong.
std::vector<GoldenEntry> list(const std::filesystem::path& folder);

/// One tensor. Checks, in this order: the file's SHA-256 (before libhdf5 sees it), the reader's exit, the shapes, the
/// manifest's content digest. Throws Error with one sentence.
GoldenTensor load(const std::filesystem::path& folder, std::string_view layout, std::string_view dtype,
                  const LoadOptions& options = {});

/// All dtypes of one layout's file, with one child process.
std::vector<GoldenTensor> load_all(const std::filesystem::path& folder, std::string_view layout,
                                   const LoadOptions& options = {});

/// For each allocation one mask byte per byte of memory: the bits that hold tags (0xff, 0x0f, 0xf0, or 0 = poison).
std::vector<std::vector<std::uint8_t>> tag_bits(const GoldenTensor& tensor);

/// What lies at one bit, in words, from the golden file alone: "data layer 1 kv 0 block 3 slot 0 (token 0) head 2 channel
/// 5", or "padding".
std::string what_is_at(const GoldenTensor& tensor, int allocation, std::int64_t bit);

}  // namespace kvcts::golden
