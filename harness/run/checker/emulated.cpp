// Content "emulated": what other harnesses write and check, to measure their blind spots with the same faults in the
// same cases. Only the structure of the fill (period, inputs, initial destination) and the coverage of the check are
// taken from them, not their code. Versions and places: benchdnn of oneDNN 515bfba6
// (tests/benchdnn/reorder/reorder.cpp:54-73), UCX 9466d104 (test/gtest/common/mem_buffer.cc, test_helpers.cc:374),
// nvbandwidth 66746a3 (kernels.cu:339), nccl-tests a0b82b2 (verifiable/).
//
//   benchdnn      one of ten values by the logical index modulo 10; the destination is 0xFF
//   ucx-pattern   pseudo-random 64-bit words with a period of 1953 words, by place in the buffer, one seed for all sources
//   ucx-random    63 words that depend on the buffer, then one constant word
//   nvbandwidth   a pseudo-random block of 2 MiB repeated, one seed for all sources; the destination is cleared only before
//                 the warm-up
//   nccl-tests    hash of place in the buffer and rank; the destination is zero
//
// All of them check the bytes that had to arrive, once, and nothing else: no guards, free memory, source or counts,
// and no second look.
#include <algorithm>
#include <stdexcept>

#include "run/checker/content.hpp"
#include "run/checker/elements.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

using layout::Axis;

namespace {

std::uint64_t mix(std::uint64_t z) {  // splitmix64
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// The 64-bit word number i of a source buffer. `buffer` counts the buffers of all ranks.
using Fill = std::uint64_t (*)(std::uint64_t i, std::uint64_t buffer, std::uint64_t rank);

struct Harness {
  std::string_view name;
  Fill fill;                 ///< nullptr: by logical index (benchdnn)
  std::uint8_t before;       ///< initial value of every destination byte
  bool cleared_once{false};  ///< not again before the checked transfer
};

const Harness harnesses[] = {
    {"benchdnn", nullptr, 0xff},
    {"ucx-pattern", [](std::uint64_t i, std::uint64_t, std::uint64_t) { return mix(i % 1953); }, 0x00},
    {"ucx-random",
     [](std::uint64_t i, std::uint64_t buffer, std::uint64_t) {
       return i < 63 ? mix(i + 64 * buffer) : std::uint64_t{0x8e38e38e38e38e37};
     },
     0x00},
    {"nvbandwidth", [](std::uint64_t i, std::uint64_t, std::uint64_t) { return mix(i % (std::uint64_t{2} << 17)); }, 0x00,
     true},
    {"nccl-tests", [](std::uint64_t i, std::uint64_t, std::uint64_t rank) { return mix(mix(i) + rank); }, 0x00},
};

class Emulated final : public Content {
 public:
  explicit Emulated(const ResolvedCase& resolved) : case_(resolved) {
    for (const auto& h : harnesses) {
      if (h.name == resolved.content.producer) harness_ = &h;
    }
    if (harness_ == nullptr)
      throw std::runtime_error("content: unknown emulated harness '" + resolved.content.producer + "'");
    const auto sources = regions(case_, Side::producer);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      sources_.emplace_back(static_cast<std::size_t>(oracle::file_shape(case_, sources[i].bytes).size));
      fill(sources[i], i, sources_.back());
    }
  }

  void write_initial(const RegionRef& region, int pass, std::span<std::uint8_t> file) const override {
    if (region.side == Side::producer) {
      copy_source(region, file);
    } else if (pass == 0 || !harness_->cleared_once) {
      std::fill(file.begin(), file.end(), harness_->before);
    }
  }
  void write_expected(const RegionRef& region, int, std::span<std::uint8_t> file) const override {
    if (region.side == Side::producer) {
      copy_source(region, file);
      return;
    }
    std::fill(file.begin(), file.end(), harness_->before);
    each_element(case_, region, true, [&](const Element& e) {
      if (const auto code = code_of(region, e)) write_code(file, e.bit, e.width, *code);
    });
  }
  void forgive(const RegionRef& region, std::span<const std::uint8_t> found,
               std::span<std::uint8_t> expected) const override {
    std::vector<std::uint8_t> looked_at(found.size());
    if (region.side == Side::consumer) {
      each_element(case_, region, true, [&](const Element& e) { write_code(looked_at, e.bit, e.width, ~0u); });
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      expected[i] = static_cast<std::uint8_t>((expected[i] & looked_at[i]) | (found[i] & ~looked_at[i]));
    }
  }
  bool looks_at_everything() const override { return false; }
  bool tail_is_free() const override { return false; }

 private:
  void fill(const RegionRef& region, std::size_t buffer, std::span<std::uint8_t> file) const {
    const auto shape = oracle::file_shape(case_, region.bytes);
    if (harness_->fill) {
      for (std::int64_t o = 0; o < shape.bytes; ++o) {
        const std::uint64_t word =
            harness_->fill(static_cast<std::uint64_t>(o / 8), buffer, static_cast<std::uint64_t>(region.rank));
        file[static_cast<std::size_t>(shape.base + o)] = static_cast<std::uint8_t>(word >> (8 * (o % 8)));
      }
      return;
    }
    // By logical index of each tensor, [block][head][slot][channel], whatever the order in memory.
    const auto& rank =
        case_.groups.at(static_cast<std::size_t>(region.group)).producer.ranks.at(static_cast<std::size_t>(region.rank));
    for (const auto& plane : rank.truth.planes) {
      if (plane.allocation != region.allocation) continue;
      const auto box = layout::domain(plane);
      const auto extent = [&](Axis a) { return box.hi[a] - box.lo[a]; };
      layout::Coord c = box.lo;
      for (c[Axis::layer] = box.lo[Axis::layer]; c[Axis::layer] < box.hi[Axis::layer]; ++c[Axis::layer])
        for (c[Axis::kv] = box.lo[Axis::kv]; c[Axis::kv] < box.hi[Axis::kv]; ++c[Axis::kv])
          for (c[Axis::block] = box.lo[Axis::block]; c[Axis::block] < box.hi[Axis::block]; ++c[Axis::block])
            for (c[Axis::head] = box.lo[Axis::head]; c[Axis::head] < box.hi[Axis::head]; ++c[Axis::head])
              for (c[Axis::slot] = box.lo[Axis::slot]; c[Axis::slot] < box.hi[Axis::slot]; ++c[Axis::slot])
                for (c[Axis::channel] = box.lo[Axis::channel]; c[Axis::channel] < box.hi[Axis::channel];
                     ++c[Axis::channel]) {
                  const auto where = layout::locate(plane, c);
                  if (!where) continue;
                  const std::int64_t index =
                      ((c[Axis::block] * extent(Axis::head) + c[Axis::head] - box.lo[Axis::head]) * extent(Axis::slot) +
                       c[Axis::slot]) *
                          extent(Axis::channel) +
                      c[Axis::channel];
                  write_code(file, shape.base * 8 + where->bit, layout::bits(plane.dtype),
                             static_cast<std::uint32_t>(mix(static_cast<std::uint64_t>(index % 10))));
                }
    }
  }

  void copy_source(const RegionRef& region, std::span<std::uint8_t> file) const {
    const auto all = regions(case_, Side::producer);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].name == region.name) std::copy(sources_[i].begin(), sources_[i].end(), file.begin());
    }
  }

  /// The source's value for a consumer's element: from the first producer rank that has it.
  std::optional<std::uint32_t> code_of(const RegionRef& region, const Element& e) const {
    const auto& group = case_.groups.at(static_cast<std::size_t>(region.group));
    const std::int64_t size = group.producer.ranks.at(0).geometry.block_size;
    layout::Coord at = e.at;
    if (!e.request->producer_blocks.empty()) {
      at[Axis::block] = e.request->producer_blocks.at(static_cast<std::size_t>(e.token / size));
      at[Axis::slot] = e.token % size;
    }
    std::size_t first = 0;
    for (std::size_t g = 0; g < static_cast<std::size_t>(region.group); ++g) {
      for (const auto& rank : case_.groups[g].producer.ranks) first += rank.truth.allocations.size();
    }
    for (const auto& rank : group.producer.ranks) {
      if (const auto where = layout::locate(rank.truth, e.plane->component, at)) {
        const auto file = first + static_cast<std::size_t>(where->allocation);
        const auto base =
            oracle::file_shape(case_, rank.truth.allocations[static_cast<std::size_t>(where->allocation)].bytes).base * 8;
        return read_code(sources_[file], base + where->bit, e.width);
      }
      first += rank.truth.allocations.size();
    }
    return std::nullopt;
  }

  const ResolvedCase& case_;
  const Harness* harness_{nullptr};
  std::vector<std::vector<std::uint8_t>> sources_;
};

}  // namespace

std::unique_ptr<Content> make_emulated(const ResolvedCase& resolved) { return std::make_unique<Emulated>(resolved); }

}  // namespace kvcts::checker
