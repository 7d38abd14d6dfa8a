// --table: every layout of the catalogue with every dtype that it can hold: generates and checks all planes of all
// allocations.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "kernels/generate.hpp"
#include "kernels/image.hpp"
#include "kernels/plane_shape.hpp"
#include "kernels/poison.hpp"
#include "lab/bench/bench.hpp"
#include "layout/template.hpp"

namespace kvcts::bench {
namespace {

/// A cache that fills most of a buffer: allocations at consecutive page boundaries, every block in use.
struct Filled {
  layout::Cache cache;
  std::vector<std::size_t> at;  ///< per allocation
  std::vector<kernels::BlockContent> content;
  double bytes{0};         ///< of elements: what generate() writes
  std::size_t checked{0};  ///< of allocations: what a check reads
};

std::int64_t total_bytes(const layout::Cache& cache) {
  std::int64_t sum = 0;
  for (const layout::Allocation& allocation : cache.allocations) sum += (allocation.bytes + 4095) / 4096 * 4096;
  return sum;
}

/// Two layers, 8 heads of 128, blocks of 16, unless the layout requires other numbers; as many blocks as fit.
std::shared_ptr<const Filled> fill(const catalogue::LayoutEntry& entry, const layout::Scheme& scheme, std::size_t room) {
  layout::Geometry geometry;
  geometry.layers = 2, geometry.block_size = 16, geometry.heads = 8, geometry.head_dim = 128;
  const std::pair<const char*, std::int64_t layout::Geometry::*> members[] = {
      {"layers", &layout::Geometry::layers},         {"block_size", &layout::Geometry::block_size},
      {"heads", &layout::Geometry::heads},           {"head_dim", &layout::Geometry::head_dim},
      {"v_head_dim", &layout::Geometry::v_head_dim}, {"kv", &layout::Geometry::kv}};
  for (const auto& [key, member] : members) {
    if (const auto fixed = entry.fixed.find(key); fixed != entry.fixed.end()) geometry.*member = fixed->second;
  }
  // A single block holds a whole sequence.
  const auto one_block = entry.fixed.find("blocks");
  if (one_block != entry.fixed.end()) geometry.blocks = one_block->second;
  std::int64_t& grows = one_block != entry.fixed.end() ? geometry.block_size : geometry.blocks;
  const auto with = [&](std::int64_t n) {
    grows = n;
    return layout::instantiate(entry.text, geometry, scheme, entry.tensors);
  };
  // Sizes grow linearly, except for rounding allocations up to pages.
  const std::int64_t few = total_bytes(with(64)), more = total_bytes(with(128));
  if (more <= few) throw layout::Error("no size that grows");
  const auto most = static_cast<std::int64_t>(static_cast<double>(room) * 0.98 / static_cast<double>(more - few) * 64);
  auto out = std::make_shared<Filled>();
  out->cache = with(std::max<std::int64_t>(16, most / 16 * 16));
  if (static_cast<std::size_t>(total_bytes(out->cache)) > room) throw layout::Error("larger than the buffer");
  std::size_t at = 0;
  for (const layout::Allocation& allocation : out->cache.allocations) {
    out->at.push_back(at);
    out->checked += static_cast<std::size_t>(allocation.bytes);
    at += (static_cast<std::size_t>(allocation.bytes) + 4095) / 4096 * 4096;
  }
  for (const layout::Plane& plane : out->cache.planes) {
    out->bytes += static_cast<double>(layout::element_count(plane)) * layout::bits(plane.dtype) / 8;
  }
  for (std::int64_t b = 0; b < geometry.blocks; ++b)
    out->content.push_back({b, 1, b * geometry.block_size, 0, geometry.block_size});
  return out;
}

void each_plane(Bench& bench, const Filled& what, auto body) {
  for (const layout::Plane& plane : what.cache.planes) {
    const auto a = static_cast<std::size_t>(plane.allocation);
    body(bench.buffer(0).subspan(what.at[a], static_cast<std::size_t>(what.cache.allocations[a].bytes)), plane);
  }
}

void generate_all(Bench& bench, const Filled& what, std::uint32_t pass) {
  each_plane(bench, what, [&](std::span<std::uint8_t> memory, const layout::Plane& plane) {
    kernels::generate(memory, plane, what.content, {1, pass, 0}, 0, bench.threads());
  });
}

/// Checks every byte of every allocation, like a case: tags in place, poison elsewhere.
void check_all(Bench& bench, const Filled& what) {
  for (std::size_t a = 0; a < what.cache.allocations.size(); ++a) {
    kernels::Image image{kernels::poison_key(1, 0, 0, 0), 0, what.cache.allocations[a].bytes, {}};
    for (const layout::Plane& plane : what.cache.planes) {
      if (static_cast<std::size_t>(plane.allocation) == a) image.tags.push_back({&plane, what.content, {1, 0, 0}, 0});
    }
    const auto memory = bench.buffer(0).subspan(what.at[a], static_cast<std::size_t>(image.bytes));
    if (kernels::check(image, memory, 16, bench.threads()).wrong_bytes != 0) {
      throw std::logic_error("check() rejects the generated content");
    }
  }
}

/// Explains, from the shape of the planes, time that long rows in memory order would not need. The clauses come from
/// perf on one cache of each kind; entries are not profiled individually.
std::string reason(const Filled& what) {
  std::string out;
  const auto say = [&out](const std::string& clause) {
    if (out.find(clause) == std::string::npos) out += (out.empty() ? "" : "; ") + clause;
  };
  for (const layout::Plane& plane : what.cache.planes) {
    if (plane.allocation != 0 || plane.component == layout::Component::global_scale) continue;
    const int width = layout::bits(plane.dtype);
    const kernels::PlaneShape shape(plane, kernels::AxisTable(plane, layout::Axis::channel), width);
    std::int64_t rows = 1, channels = 1, nearest_other = INT64_MAX;
    for (const layout::Mode& mode : plane.modes) {
      if (mode.axis == layout::Axis::slot || mode.axis == layout::Axis::head) rows *= mode.extent;
      if (mode.axis == layout::Axis::channel) channels *= mode.extent;
      const bool other = mode.axis == layout::Axis::layer || mode.axis == layout::Axis::kv;
      if (other && mode.extent > 1) nearest_other = std::min(nearest_other, mode.stride);
    }
    const std::int64_t bytes = channels * width / 8;
    const std::string which = plane.component == layout::Component::data ? "" : "scales: ";
    if (shape.way == kernels::Way::columns)
      say(which + "channels apart: codes of 16 rows are exchanged in registers, " + std::to_string(rows) + " rows a block");
    if (shape.way == kernels::Way::buffered || shape.way == kernels::Way::bitwise)
      say(which + "runs that are no whole words go through a buffer");
    if (!shape.one_to_one) say("coordinates share bytes: checked through an image");
    if (shape.way == kernels::Way::rows && bytes <= 96) {
      say(which + "rows of " + std::to_string(bytes) +
          " bytes: the key of a row (two 64-bit products) and its ends cost as much as its words");
    }
    if (rows <= 16) say(which + std::to_string(rows) + " rows a block: finding the block costs as much as writing it");
    if (nearest_other < rows * channels * width)
      say(which + "rows of other layers or of V lie between: memory is not read in order");
    if (out.size() > 160) break;
  }
  return out.empty() ? "nothing in the shape of its planes says why: the other work on the machine, or tiles that end with "
                       "short rows"
                     : out;
}

void add_rows(Bench& bench) {
  static const catalogue::Catalogue catalogue(catalogue::find_cases());
  // The cache under measurement. Its rows create it and the next one replaces it: hundreds of block lists would not fit.
  struct Current {
    std::string name;
    std::shared_ptr<const Filled> cache;
  };
  const auto current = std::make_shared<Current>();
  for (const auto& [id, entry] : catalogue.layouts()) {
    for (const auto& [dtype, scheme] : catalogue.dtypes()) {
      if (!entry.dtypes.empty() && std::find(entry.dtypes.begin(), entry.dtypes.end(), dtype) == entry.dtypes.end())
        continue;
      const std::string name = id + " " + dtype;
      const auto make = [&bench, &entry = entry, scheme = catalogue::scheme_of(scheme)] {
        return fill(entry, scheme, bench.bytes());
      };
      const auto take = [current, name, make] {
        if (current->name != name) *current = {name, nullptr}, current->cache = make();
      };
      double bytes = 0;
      std::size_t checked = 0;
      std::string why;
      try {
        const auto sample = make();
        bytes = sample->bytes, checked = sample->checked, why = reason(*sample);
      } catch (const layout::Error&) {
        continue;  // the dtype does not fit this layout (x = 16 / itemsize, rows of half bytes)
      }
      const auto memset_bytes = std::min(bench.bytes(), static_cast<std::size_t>(bytes));
      Row generate{.name = name + " generate",
                   .against = "memset",
                   .target = 0.4,
                   .bytes = bytes,
                   .reference_bytes = static_cast<double>(memset_bytes),
                   .why = why};
      generate.prepare = take;
      generate.run = [&bench, current, pass = 0u]() mutable { generate_all(bench, *current->cache, ++pass); };
      generate.reference = [&bench, memset_bytes] { bench.set(memset_bytes); };
      bench.add(generate);

      Row check{
          .name = name + " check", .against = "memcmp", .target = 0.4, .bytes = static_cast<double>(checked), .why = why};
      check.prepare = [&bench, take, current, checked] {
        take();
        for (std::size_t a = 0; a < current->cache->at.size(); ++a) {
          const auto bytes_of = static_cast<std::size_t>(current->cache->cache.allocations[a].bytes);
          kernels::fill_poison(kernels::poison_key(1, 0, 0, 0), 0, bench.buffer(0).subspan(current->cache->at[a], bytes_of),
                               bench.threads());
        }
        generate_all(bench, *current->cache, 0);
        bench.copy(checked);
      };
      check.run = [&bench, current] { check_all(bench, *current->cache); };
      check.reference = [&bench, checked] { bench.compare(checked); };
      bench.add(check);
    }
  }
}

const Family table{"table", add_rows, true};

}  // namespace
}  // namespace kvcts::bench
