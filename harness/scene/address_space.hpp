// Where a scenario's memories lie: buffers, and where the allocations of a view begin in them. The machine (what happened)
// and the truth (what should have) share it; neither sees the other's bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "case/scenario.hpp"
#include "case/scenario_walk.hpp"
#include "layout/layout.hpp"

namespace kvcts::scenario {

/// A separate stretch of memory. Offsets run from -guard_below to bytes + guard_above; nothing beyond is mapped.
struct Buffer {
  std::string name;  ///< "P/kv.L0", "P" (a pool, raw bytes), "out1"
  std::string memory;
  std::string side;
  int ordinal{0};                                  ///< in the list
  std::uint32_t poison_rank{0}, poison_number{0};  ///< decide its poison, with its side
  std::int64_t bytes{0}, guard_below{0}, guard_above{0};
  std::int64_t base{0};  ///< address of offset 0
  bool sparse{false};    ///< stored page by page: only touched pages exist
  bool zeroed{false};    ///< holds zeros rather than poison before the first step
  std::vector<std::int64_t> boundaries;
};

/// A byte of a buffer.
struct BufferAddress {
  int buffer{-1};
  std::int64_t offset{0};
  bool operator==(const BufferAddress&) const = default;
};

class AddressSpace {
 public:
  /// Memory of up to this many bytes in total is stored whole, larger memory page by page; untouched pages do not exist. The
  /// comparison is the same: only a program writes, so an untouched page never changed.
  static constexpr std::int64_t kept_whole = 4 << 20;

  /// Lays out every memory that owns its bytes, then the outputs of `read` steps (dense, by the longer of the intended and
  /// the actual sequence). Throws std::runtime_error with the memory's name.
  explicit AddressSpace(const Scenario& scenario);

  const std::vector<Buffer>& buffers() const { return buffers_; }
  /// Backing of an output, -1 when no output has that name.
  int output(const std::string& name) const;
  /// Where a raw offset of "P", "P/kv.L0" or an output begins. Throws when there is no such place.
  BufferAddress address(const std::string& name) const;
  /// How many bytes have that name.
  std::int64_t bytes_of(const std::string& name) const;
  /// Where each allocation of a view's cache begins (without view.offset). `cache`: cache_of(view). With as many allocations
  /// as the memory, they map one to one. A view of "P/kv.L0", or of a memory with one buffer, places them consecutively
  /// from there.
  std::vector<BufferAddress> addresses(const View& view, const layout::Cache& cache) const;
  /// "P/kv.L0" for a place in a pool, with the offset from there; the buffer's name elsewhere.
  std::string symbol_of(BufferAddress address, std::int64_t& offset) const;
  /// The first offset after a place where another name may begin; at the latest, the end of its buffer.
  std::int64_t name_end(BufferAddress address) const;

 private:
  struct NamedRange {
    std::string name;  ///< "P/kv.L0"
    BufferAddress address;
    std::int64_t bytes{0};
  };
  const NamedRange& named_range(const std::string& name) const;
  void add(const std::string& name, const Memory& memory, const Scenario& scenario);
  std::vector<Buffer> buffers_;
  std::vector<NamedRange> named_ranges_;  ///< allocations, and whole memories
  const Scenario& scenario_;
};

/// The planes that a view uses, from its resolved text.
layout::Cache cache_of(const View& view);

/// Tokens of a request.
struct TokenRange {
  std::int64_t first{0}, count{0};
};

/// The elements of one component in the output of a `read`: for kv, for layer, for token, for head, for channel.
struct OutputSection {
  layout::Component component{};
  std::vector<std::int64_t> kv, layers, tokens, heads, channels;
  int width{0};           ///< bits of an element: the plane's, or 32 when decoded
  std::int64_t begin{0};  ///< byte in the output
  std::int64_t row_bits() const { return (static_cast<std::int64_t>(channels.size()) * width + 7) / 8 * 8; }
  std::int64_t bytes() const;
};
/// An output: data, then scales, then global scales, as far as the step reads them and its views have them.
struct OutputShape {
  std::vector<OutputSection> sections;
  std::int64_t bytes() const { return sections.empty() ? 0 : sections.back().begin + sections.back().bytes(); }
};
/// `tokens`: those that its request has at that time.
OutputShape output_shape(const Action& read, TokenRange tokens);
/// Where a section that is read lies: its place in the output of the intended read if it is part of it, otherwise its own
/// place.
OutputSection place_in_output(const Scenario& scenario, const std::string& step, const Action& read,
                              const OutputSection& section);

/// Seed of a pass: different passes share no poison and no tags.
std::uint64_t pass_seed(std::uint64_t seed, int pass);
/// The seed whose pass 0 has this one: that of a case with two sides, whose bytes are then those of pass 0.
std::uint64_t seed_before(std::uint64_t of_pass_0);
/// Poison key of a buffer in a pass.
std::uint64_t poison_of(const Buffer& buffer, std::uint64_t seed, int pass);

}  // namespace kvcts::scenario
