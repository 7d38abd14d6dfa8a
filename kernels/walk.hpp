// The walk over a plane that generate() and check() share: layers, K and V, and blocks, in batches of rows.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "kernels/axis_table.hpp"
#include "kernels/generate.hpp"
#include "kernels/intervals.hpp"
#include "kernels/plane_shape.hpp"
#include "kernels/row_batch.hpp"
#include "kernels/row_writer.hpp"
#include "kernels/tiler.hpp"

namespace kvcts::kernels {

/// A layer and one of K and V: the part of a tag before the block.
struct LayerKv {
  std::int64_t layer{0}, kv{0};
  std::int64_t bit{0};  ///< from the plane's offset
};

/// Shared by all threads: a plane, its tables, and how its rows lie. Keeps references.
struct Map {
  /// Throws layout::Error as generate() does.
  Map(std::size_t allocation_bytes, const layout::Plane& plane, std::span<const BlockContent> content, const TagKey& key);

  std::uint64_t prefix(const LayerKv& at) const {
    return tag_prefix(key.seed, key.pass, key.origin, static_cast<std::uint64_t>(plane.component),
                      static_cast<std::uint64_t>(at.kv), static_cast<std::uint64_t>(at.layer));
  }

  const layout::Plane& plane;
  const TagKey& key;
  RowWriter writer;
  BlockPlaces blocks;
  AxisTable slots, heads;
  PlaneShape shape;
  std::vector<LayerKv> layer_kvs;  ///< outer axis first
  std::size_t inside_block{1};     ///< number of consecutive ones further in than the block axis
  bool blocked{true};              ///< has a block or slot axis
  std::int64_t block_bytes{0};     ///< of codes in one full block, over all layer_kvs
  Interval block_span;             ///< bytes between a block's first and last code, from its place
};

/// One thread's walk over a part of a plane.
template <typename Sink>
class Walk {
 public:
  Walk(const Map& map, Sink& sink) : map_(map), tiler_(map.shape, map.writer, sink), sink_(sink) {}

  /// Returns false where the sink could not take some rows (Tiler::rows).
  bool blocks(std::span<const LayerKv> layer_kvs, std::span<const BlockContent> content) {
    // Walk memory from its outer to its inner axes.
    for (std::size_t k = 0; k < layer_kvs.size(); k += map_.inside_block) {
      const auto inner = layer_kvs.subspan(k, std::min(map_.inside_block, layer_kvs.size() - k));
      prefixes_.clear();
      for (const LayerKv& at : inner) prefixes_.push_back(map_.prefix(at));
      for (const BlockContent& block : content) {
        for (std::size_t n = 0; n < inner.size(); ++n) one(inner[n], prefixes_[n], block);
      }
    }
    return finish();
  }

  /// A plane without blocks and slots.
  bool unblocked(std::uint32_t generation) {
    const AxisEntry slot{0, 0};
    const RowPattern rows(map_.heads, {&slot, 1}, map_.writer);
    for (const LayerKv& at : map_.layer_kvs)
      add(rows, at, tag_base(map_.prefix(at), generation), 0, map_.plane.offset + at.bit);
    return finish();
  }

 private:
  /// Rows whose keys are made together, and tokens of a block whose pattern is kept.
  static constexpr std::size_t batch = 512;
  static constexpr std::int64_t most_tokens = 4096;

  void one(const LayerKv& at, std::uint64_t prefix, const BlockContent& block) {
    const std::uint64_t base = tag_base(prefix, block.generation);
    for (std::int64_t from = 0; from < block.tokens; from += most_tokens) {
      const std::int64_t slot = block.first_slot + from;
      const RowPattern& rows = pattern(slot, std::min(most_tokens, block.tokens - from));
      if (rows.rows() == 0) continue;
      // Where slots are evenly spaced, the rows of other slots are the same ones, shifted.
      const std::int64_t moved = slot - rows.first_slot;
      const auto shift = static_cast<std::uint64_t>(block.first_token - block.first_slot + moved);
      const std::int64_t place = map_.plane.offset + at.bit + moved * map_.slots.stride();
      map_.blocks.each(block.block, [&](std::int64_t bit) { add(rows, at, base, shift, place + bit); });
    }
  }

  /// `shift`: added to a slot to get its token.
  void add(const RowPattern& rows, const LayerKv& at, std::uint64_t base, std::uint64_t shift, std::int64_t bit) {
    const std::uint32_t digit =
        scale_digit(static_cast<std::uint64_t>(at.kv), static_cast<std::uint64_t>(at.layer), 0, shift);
    rows_.add(rows, base, shift, digit, bit);
    if (rows_.rows() >= batch) flush();
  }

  /// Most blocks are full and equal the previous one; for others, keeps the last few kinds.
  const RowPattern& pattern(std::int64_t first_slot, std::int64_t tokens) {
    const bool even = map_.slots.even(first_slot, first_slot + tokens);
    const auto is_it = [&](const RowPattern& known) {
      return known.tokens == tokens &&
             (known.first_slot == first_slot || (even && map_.slots.even(known.first_slot, known.first_slot + tokens)));
    };
    if (latest_ != nullptr && is_it(*latest_)) return *latest_;
    for (auto& known : patterns_) {
      if (known && is_it(*known)) return *(latest_ = &*known);
    }
    auto& place = patterns_[next_];
    next_ = next_ + 1 == std::size(patterns_) ? 1 : next_ + 1;  // the first one stays: usually the full block
    place.emplace(map_.heads, map_.slots.within(first_slot, first_slot + tokens), map_.writer);
    place->first_slot = first_slot;
    place->tokens = tokens;
    return *(latest_ = &*place);
  }

  void flush() {
    all_ = tiler_.rows(rows_) && all_;
    rows_.clear();
  }
  bool finish() {
    flush();
    sink_.finish();
    return all_;
  }

  const Map& map_;
  Tiler<Sink> tiler_;
  Sink& sink_;
  RowBatch rows_;
  std::vector<std::uint64_t> prefixes_;
  std::optional<RowPattern> patterns_[4];
  std::size_t next_{0};
  const RowPattern* latest_{nullptr};
  bool all_{true};
};

/// Blocks' content, split among threads. Parts of one-to-one planes share no byte, unless they are bitwise.
class Cuts {
 public:
  Cuts(std::span<const Map* const> maps, std::span<const BlockContent> content, int threads);
  const std::vector<std::span<const BlockContent>>& all() const { return cuts_; }

 private:
  std::vector<BlockContent> content_;
  std::vector<std::span<const BlockContent>> cuts_;
};

/// One thread's work at a time.
struct Part {
  std::span<const LayerKv> layer_kvs;
  std::span<const BlockContent> content;
};

/// A plane's work: the cuts, split by layer too if there are few.
std::vector<Part> parts(const Map& map, const Cuts& cuts);

/// Do two entries name the same slot of a block?
bool any_twice(std::span<const BlockContent> content);

}  // namespace kvcts::kernels
