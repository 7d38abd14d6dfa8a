// Relayout, scatter and gather compared with memcpy of the same number of bytes, for pairs of layouts that occur in
// practice.
#include <numeric>

#include "kernels/relayout/relayout.hpp"
#include "lab/bench/bench.hpp"
#include "layout/template.hpp"

namespace kvcts::bench {
namespace {

using layout::Dtype;
using layout::Plane;
namespace relay = kernels::relayout;

constexpr std::int64_t block_size = 16, heads = 8;

struct Pair {
  const char* name;
  Dtype dtype;
  std::int64_t head_dim;
  const char *from, *to;  ///< templates of one layer
  double target;          ///< 0.8 if at least 64 bytes are contiguous on both sides, 0.5 below
};

// fused: LMCache's N H K C, K and V of a head adjacent. x-packed: paged_attn's key; its value has slots innermost.
constexpr Pair pairs[]{
    {"bf16 NHD to HND", Dtype::bf16, 128, "K B N H C", "K B H N C", 0.8},
    {"bf16 HND to NHD", Dtype::bf16, 128, "K B H N C", "K B N H C", 0.8},
    {"bf16 NHD to HND, head_dim 64", Dtype::bf16, 64, "K B N H C", "K B H N C", 0.8},
    {"e4m3fn NHD to HND", Dtype::e4m3fn, 128, "K B N H C", "K B H N C", 0.8},
    {"bf16 NHD to fused", Dtype::bf16, 128, "K B N H C", "B N H K C", 0.8},
    {"bf16 fused to NHD", Dtype::bf16, 128, "B N H K C", "K B N H C", 0.8},
    {"bf16 NHD to fused HND", Dtype::bf16, 128, "K B N H C", "B H N K C", 0.8},
    {"bf16 NHD to x-packed", Dtype::bf16, 128, "K B N H C", "K B H C/8 N C%8", 0.5},
    {"bf16 x-packed to NHD", Dtype::bf16, 128, "K B H C/8 N C%8", "K B N H C", 0.5},
    {"e4m3fn NHD to x-packed", Dtype::e4m3fn, 128, "K B N H C", "K B H C/16 N C%16", 0.5},
    {"bf16 NHD to slots innermost", Dtype::bf16, 128, "K B N H C", "K B H C N", 0.5},
    {"bf16 slots innermost to NHD", Dtype::bf16, 128, "K B H C N", "K B N H C", 0.5},
    {"e4m3fn NHD to slots innermost", Dtype::e4m3fn, 128, "K B N H C", "K B H C N", 0.5},
    {"fp32 NHD to slots innermost", Dtype::fp32, 128, "K B N H C", "K B H C N", 0.5},
    {"bf16 HND to slots innermost", Dtype::bf16, 128, "K B H N C", "K B H C N", 0.5},
    {"int4 NHD to HND", Dtype::int4, 128, "K B N H C", "K B H N C", 0.8},
    {"int4 NHD to slots innermost", Dtype::int4, 128, "K B N H C", "K B H C N", 0},  // nibbles change bytes: no target
    {"bf16 same layout", Dtype::bf16, 128, "K B N H C", "K B N H C", 0.8},
};

/// As many blocks as the buffer holds.
Plane plane_of(const char* text, Dtype dtype, std::int64_t head_dim, std::size_t room, std::size_t& bytes) {
  const std::int64_t block = 2 * block_size * heads * head_dim * layout::bits(dtype) / 8;
  const layout::Geometry geometry{
      .blocks = static_cast<std::int64_t>(room) / block, .block_size = block_size, .heads = heads, .head_dim = head_dim};
  const layout::Cache cache = layout::instantiate(text, geometry, {"", dtype, {}, {}});
  bytes = static_cast<std::size_t>(cache.allocations.front().bytes);
  return cache.planes.front();
}

void add_pair(Bench& bench, const Pair& pair) {
  std::size_t bytes = 0;
  const Plane from = plane_of(pair.from, pair.dtype, pair.head_dim, bench.bytes(), bytes);
  const Plane to = plane_of(pair.to, pair.dtype, pair.head_dim, bench.bytes(), bytes);
  Row row{.name = std::string("relayout ") + pair.name,
          .against = "memcpy",
          .target = pair.target,
          .bytes = static_cast<double>(bytes)};
  row.run = [&bench, from, to, bytes] {
    relay::relayout(bench.buffer(0).first(bytes), from, bench.buffer(1).first(bytes), to, bench.threads());
  };
  row.reference = [&bench, bytes] { bench.copy(bytes); };
  bench.add(std::move(row));
}

/// One request over all blocks of the pool in a scattered order, K only: the bytes of half a buffer.
void add_requests(Bench& bench, const char* name, const char* text) {
  std::size_t bytes = 0;
  const Plane pool = plane_of(text, Dtype::bf16, 128, bench.bytes(), bytes);
  const std::int64_t blocks = layout::domain(pool).hi[layout::Axis::block], tokens = blocks * block_size;
  std::vector<std::int64_t> table, mapping;
  std::int64_t step = blocks * 618 / 1000;
  while (std::gcd(step, blocks) != 1) ++step;
  for (std::int64_t b = 0; b < blocks; ++b) {
    table.push_back(b * step % blocks);
    for (std::int64_t s = 0; s < block_size; ++s) mapping.push_back(table.back() * block_size + s);
  }
  const auto half = static_cast<std::size_t>(relay::row_bytes(pool, tokens));
  Row row{.name = std::string("gather from ") + name, .against = "memcpy", .bytes = static_cast<double>(half)};
  row.run = [&bench, pool, bytes, half, table, tokens] {
    relay::gather(bench.buffer(0).first(bytes), pool, {}, table, tokens, bench.buffer(1).first(half), bench.threads());
  };
  row.reference = [&bench, half] { bench.copy(half); };
  bench.add(row);
  row.name = std::string("scatter into ") + name;
  row.run = [&bench, pool, bytes, half, mapping] {
    relay::scatter(bench.buffer(0).first(half), bench.buffer(1).first(bytes), pool, {}, mapping, bench.threads());
  };
  bench.add(std::move(row));
}

void add_rows(Bench& bench) {
  for (const Pair& pair : pairs) add_pair(bench, pair);
  add_requests(bench, "bf16 NHD", "K B N H C");
  add_requests(bench, "bf16 HND", "K B H N C");
  add_requests(bench, "bf16 x-packed", "K B H C/8 N C%8");
}

const Family relayout_family{"relayout", add_rows};

}  // namespace
}  // namespace kvcts::bench
