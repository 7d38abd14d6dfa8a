#include "lab/ranking/uses.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>

#include "kernels/parallel.hpp"
#include "kernels/relayout/relayout.hpp"

namespace kvcts::ranking {
namespace {

using layout::Axis;
using layout::Plane;
namespace relay = kernels::relayout;

constexpr const char* reference_kv = "L x K B N H C";  // vLLM's FlashAttention cache
constexpr const char* reference_latent = "L x B N H C";

/// All blocks once, in an order that jumps through the pool.
std::vector<std::int64_t> jumping(std::int64_t blocks) {
  std::int64_t step = std::max<std::int64_t>(1, blocks * 618 / 1000);
  while (std::gcd(step, blocks) != 1) ++step;
  std::vector<std::int64_t> order;
  for (std::int64_t b = 0; b < blocks; ++b) order.push_back(b * step % blocks);
  return order;
}

/// A data plane, and a layer of K or V that it holds.
struct PlanePart {
  const Plane* plane;
  relay::Part part;
};

/// Where K and V of layer 0 of a cache are. A layout may keep a row's channels in several planes.
std::vector<PlanePart> first_layer(const layout::Cache& cache) {
  std::vector<PlanePart> parts;
  for (const Plane& plane : cache.planes) {
    if (plane.component != layout::Component::data) continue;
    const layout::Box box = layout::domain(plane);
    if (box.lo[Axis::layer] > 0) continue;
    for (std::int64_t kv = box.lo[Axis::kv]; kv < box.hi[Axis::kv]; ++kv) parts.push_back({&plane, {0, kv}});
  }
  return parts;
}

std::int64_t data_bytes(const layout::Cache& cache) {
  std::int64_t bits = 0;
  for (const Plane& plane : cache.planes) {
    if (plane.component == layout::Component::data) bits += layout::element_count(plane) * layout::bits(plane.dtype);
  }
  return bits / 8;
}

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Only the data: engine kernels treat scales differently.
layout::Cache data_only(layout::Cache cache) {
  std::erase_if(cache.planes, [](const Plane& plane) { return plane.component != layout::Component::data; });
  return cache;
}

class Uses {
 public:
  Uses(const Contender& contender, int threads, double seconds)
      : contender_(contender),
        cache_(data_only(contender.cache)),
        pool_(cache_),
        threads_(threads),
        seconds_(seconds),
        order_(jumping(contender.geometry.blocks)) {}

  Measurement prompt() {
    std::vector<std::int64_t> mapping;
    for (const std::int64_t block : order_) {
      for (std::int64_t slot = 0; slot < contender_.geometry.block_size; ++slot)
        mapping.push_back(block * contender_.geometry.block_size + slot);
    }
    return scatter("prompt", mapping);
  }

  Measurement token() {
    if (order_.size() < 16) return {"token", {}, "a contiguous context: one request, no pool of blocks"};
    // One token in each of up to 1024 blocks, at different slots.
    std::vector<std::int64_t> mapping;
    for (std::size_t i = 0; i < order_.size() && i < 1024; ++i) {
      mapping.push_back(order_[i] * contender_.geometry.block_size +
                        static_cast<std::int64_t>(i * 7) % contender_.geometry.block_size);
    }
    return scatter("token", mapping);
  }

  Measurement gather() {
    const std::int64_t tokens = contender_.geometry.blocks * contender_.geometry.block_size;
    return rows("gather", tokens, [&, tokens](const PlanePart& p, std::span<std::uint8_t> bytes) {
      relay::gather(pool_[p.plane->allocation], *p.plane, p.part, order_, tokens, bytes, threads_);
    });
  }

  Measurement heads() {
    if (contender_.geometry.heads < 2) return {"heads", {}, "one head: nothing to cut"};
    const layout::Cache half = data_only(contender_.upper_half());
    if (half.planes.size() != cache_.planes.size()) return {"heads", {}, "a rank with half the heads has other planes"};
    Memory target(half);
    return run("heads", data_bytes(half), [&] {
      for (std::size_t i = 0; i < half.planes.size(); ++i) {
        relay::extract(pool_[cache_.planes[i].allocation], cache_.planes[i], target[half.planes[i].allocation],
                       half.planes[i], threads_);
      }
    });
  }

  Measurement relayout() {
    const layout::Cache to = data_only(
        layout::instantiate(contender_.latent() ? reference_latent : reference_kv, contender_.geometry, contender_.scheme));
    if (data_bytes(to) != data_bytes(cache_))
      return {"relayout", {}, "its rows are of several dtypes: there is no plain layout with the same codes"};
    Memory target(to);
    return run("relayout", data_bytes(to),
               [&] { relay::relayout(cache_, pool_.readable(), to, target.writable(), threads_); });
  }

 private:
  Measurement scatter(std::string_view use, const std::vector<std::int64_t>& mapping) {
    return rows(use, static_cast<std::int64_t>(mapping.size()), [&](const PlanePart& p, std::span<std::uint8_t> bytes) {
      relay::scatter(bytes, pool_[p.plane->allocation], *p.plane, p.part, mapping, threads_);
    });
  }

  /// Layer 0, K and V, between the pool and token rows.
  Measurement rows(std::string_view use, std::int64_t tokens,
                   const std::function<void(const PlanePart&, std::span<std::uint8_t>)>& move) {
    const std::vector<PlanePart> parts = first_layer(cache_);
    std::vector<std::vector<std::uint8_t>> memory;
    std::int64_t bytes = 0;
    for (const PlanePart& p : parts) {
      memory.emplace_back(static_cast<std::size_t>(relay::row_bytes(*p.plane, tokens)), std::uint8_t{0x7a});
      bytes += static_cast<std::int64_t>(memory.back().size());
    }
    return run(use, bytes, [&] {
      for (std::size_t i = 0; i < parts.size(); ++i) move(parts[i], memory[i]);
    });
  }

  Measurement run(std::string_view use, std::int64_t bytes, const std::function<void()>& body) {
    const auto size = static_cast<std::size_t>(bytes);
    from_.resize(std::max(from_.size(), size), 1);
    to_.resize(std::max(to_.size(), size), 2);
    const auto copy = [&] {
      kernels::parallel_ranges(threads_, size, 1 << 20, [&](std::size_t begin, std::size_t end) {
        std::memcpy(to_.data() + begin, from_.data() + begin, end - begin);
      });
    };
    try {
      // In turns, best of each: other load on this machine slows both, and never speeds them up.
      double best = 1e9, best_copy = 1e9, spent = 0;
      for (int turn = 0; turn < 5 || spent < seconds_; ++turn) {
        const double copied = seconds_of(copy), moved = seconds_of(body);
        best_copy = std::min(best_copy, copied);
        best = std::min(best, moved);
        spent += copied + moved;
      }
      return {use, Speed{static_cast<double>(bytes) / best, best_copy / best}, {}};
    } catch (const layout::Error& e) {
      return {use, {}, e.what()};
    }
  }

  const Contender& contender_;
  layout::Cache cache_;
  Memory pool_;
  int threads_;
  double seconds_;
  std::vector<std::int64_t> order_;
  std::vector<std::uint8_t> from_, to_;
};

}  // namespace

const std::vector<UseName>& uses() {
  static const std::vector<UseName> all{
      {"prompt", "write a prompt's K and V into the blocks of a pool (scatter by slot mapping, whole blocks)"},
      {"token", "write one new token for each of up to 1024 requests (scatter, single slots)"},
      {"gather", "read a context by its block table, as attention does"},
      {"heads", "cut out the upper half of the heads, for a rank of twice the tensor parallelism"},
      {"relayout", "turn all of it into vLLM's FlashAttention layout (latents: into rows)"}};
  return all;
}

std::vector<Measurement> measure_uses(const Contender& contender, int threads, double seconds) {
  Uses uses(contender, threads, seconds);
  return {uses.prompt(), uses.token(), uses.gather(), uses.heads(), uses.relayout()};
}

Descriptors descriptors(const Contender& contender) {
  Descriptors found;
  const bool cut = contender.geometry.heads > 1;
  std::int64_t half_heads = 0;
  for (const Plane& plane : contender.cache.planes) {
    layout::Box box = layout::domain(plane);
    const std::int64_t block = contender.geometry.blocks / 2;
    if (block < box.lo[Axis::block] || block >= box.hi[Axis::block]) continue;
    box.lo[Axis::block] = block;
    box.hi[Axis::block] = block + 1;
    for (const layout::Run& run : layout::runs(plane, box)) {
      ++found.block;
      found.bytes += run.bits / 8;
    }
    if (!cut) continue;
    box.lo[Axis::head] = std::max(box.lo[Axis::head], contender.geometry.first_head + contender.geometry.heads / 2);
    if (box.lo[Axis::head] < box.hi[Axis::head]) half_heads += static_cast<std::int64_t>(layout::runs(plane, box).size());
  }
  if (cut) found.half_heads = half_heads;
  return found;
}

}  // namespace kvcts::ranking
