#include "kernels/relayout/relayout.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/relayout/coordinates.hpp"
#include "kernels/relayout/nest.hpp"

namespace kvcts::kernels::relayout {
namespace {

using layout::Axis;
using layout::Cache;
using layout::Error;
using layout::Plane;

/// A cache of one plane, for queries to the layout library.
Cache alone(const Plane& plane, std::size_t bytes) {
  Cache cache;
  cache.allocations.push_back({"the memory", static_cast<std::int64_t>(bytes)});
  cache.planes.push_back(plane);
  cache.planes.front().allocation = 0;
  return cache;
}

void check_source(const Plane& plane, std::size_t bytes) { layout::validate(alone(plane, bytes)); }

void check_target(const Plane& plane, std::size_t bytes) {
  const Cache cache = alone(plane, bytes);
  layout::validate(cache);
  if (const auto shared = layout::overlaps(cache, 0); !shared.empty()) {
    throw Error("the target has two coordinates at bit " + std::to_string(shared.front().bit) +
                ": expected one place for each; relayout cannot choose which one wins");
  }
}

void check_kind(const Plane& from, const Plane& to) {
  if (from.dtype != to.dtype) {
    throw Error("relayout moves codes as they are: the source has " + std::string(layout::name(from.dtype)) +
                ", the target " + std::string(layout::name(to.dtype)) + "; convert first");
  }
  if (from.component != to.component) {
    throw Error("the source holds " + std::string(layout::name(from.component)) + ", the target " +
                std::string(layout::name(to.component)) + "; pass planes of one component");
  }
}

std::string words(const Plane& plane) {
  const layout::Box box = layout::domain(plane);
  std::string out;
  for (const Axis axis : layout::all_axes) {
    out += out.empty() ? "" : " ";
    out += std::string(1, layout::letter(axis)) + "=" + std::to_string(box.lo[axis]) + ".." + std::to_string(box.hi[axis]);
  }
  return out;
}

Nest nest_between(const Plane& from, const Plane& to, const std::array<Pairs, layout::axis_count>& pairs) {
  Nest nest(layout::bits(from.dtype), from.high_nibble_first, to.high_nibble_first);
  nest.base(from.offset, to.offset);
  for (const Pairs& axis : pairs) nest.add(axis);
  return nest;
}

enum class Demand : std::uint8_t { same, within };

/// The nest of a whole plane, checked.
Nest checked_nest(const Plane& from, const Plane& to, Demand demand) {
  check_kind(from, to);
  const Coordinates source(from), target(to);
  const auto pairs = common(source, target);
  const std::int64_t both = count(pairs);
  if (both != target.count() || (demand == Demand::same && both != source.count())) {
    throw Error("the source has coordinates " + words(from) + " (" + std::to_string(source.count()) + "), the target " +
                words(to) + " (" + std::to_string(target.count()) + "), of which " + std::to_string(both) +
                " are in both: expected " +
                (demand == Demand::same ? "the same; extract() takes a part" : "all of the target's in the source"));
  }
  return nest_between(from, to, pairs);
}

void copy_plane(std::span<const std::uint8_t> from_bytes, const Plane& from, std::span<std::uint8_t> to_bytes,
                const Plane& to, int threads, Demand demand) {
  check_source(from, from_bytes.size());
  check_target(to, to_bytes.size());
  checked_nest(from, to, demand).run(from_bytes, to_bytes, threads);
}

template <typename Bytes>
void check_spans(const Cache& cache, std::span<const Bytes> bytes, const char* side) {
  bool agree = bytes.size() == cache.allocations.size();
  for (std::size_t i = 0; agree && i < bytes.size(); ++i)
    agree = std::cmp_equal(bytes[i].size(), cache.allocations[i].bytes);
  if (!agree) {
    throw Error(std::string("the ") + side + " has " + std::to_string(cache.allocations.size()) +
                " allocations: expected a span for each, of its size, found " + std::to_string(bytes.size()) + " spans" +
                (bytes.size() == cache.allocations.size() ? " of other sizes" : ""));
  }
  layout::validate(cache);
}

/// A copy between two planes of two caches.
struct Copy {
  Nest nest;
  int from{0}, to{0};  ///< allocations
};

std::vector<Coordinates> coordinates_of(const Cache& cache) {
  std::vector<Coordinates> all;
  for (const Plane& plane : cache.planes) all.emplace_back(plane);
  return all;
}

bool apart(const layout::Box& a, const layout::Box& b) {
  return std::any_of(layout::all_axes.begin(), layout::all_axes.end(),
                     [&](Axis axis) { return a.hi[axis] <= b.lo[axis] || b.hi[axis] <= a.lo[axis]; });
}

void check_once(const Cache& cache, const std::vector<Coordinates>& coordinates, const char* side) {
  for (std::size_t a = 0; a < cache.planes.size(); ++a) {
    for (std::size_t b = a + 1; b < cache.planes.size(); ++b) {
      const Plane &first = cache.planes[a], &second = cache.planes[b];
      if (first.component != second.component || apart(layout::domain(first), layout::domain(second))) continue;
      if (count(common(coordinates[a], coordinates[b])) == 0) continue;
      throw Error(std::string("the ") + side + " has coordinates that are in two of its planes, " + layout::to_text(first) +
                  " and " + layout::to_text(second) + ": expected each in one");
    }
  }
}

/// A plane whose coordinates of one layer and of K or V are read or written by token.
class Pool {
 public:
  Pool(const Plane& plane, Part part) : plane_(plane), axes_(plane) {
    one(Axis::layer, part.layer);
    one(Axis::kv, part.kv);
    const auto n = [&](Axis axis) { return static_cast<std::int64_t>(axes_[axis].size()); };
    row_bits_ = n(Axis::head) * n(Axis::channel) * layout::bits(plane.dtype);
  }

  std::int64_t row_bits() const { return row_bits_; }
  std::int64_t block_size() const { return static_cast<std::int64_t>(axes_[Axis::slot].size()); }
  std::int64_t slots() const { return static_cast<std::int64_t>(axes_[Axis::block].size()) * block_size(); }

  /// Bit of the index-th block; nullptr when there is none.
  const Place* block(std::int64_t id) const {
    const auto& blocks = axes_[Axis::block];
    const auto found = std::lower_bound(blocks.begin(), blocks.end(), id,
                                        [](const Place& p, std::int64_t coord) { return p.coord < coord; });
    return found != blocks.end() && found->coord == id ? &*found : nullptr;
  }

  /// Tokens and their places: `rows` are token numbers, `bits` those of the pool. With `whole` blocks, the first tokens of
  /// blocks; their other slots follow. The nest copies rows to the pool or, `reading`, the pool to rows.
  Nest nest(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& bits, bool whole, bool reading) const {
    Nest nest(layout::bits(plane_.dtype), reading && plane_.high_nibble_first, !reading && plane_.high_nibble_first);
    nest.base(reading ? base_ : 0, reading ? 0 : base_);
    const auto add = [&](std::vector<std::int64_t> row_side, std::vector<std::int64_t> pool_side) {
      nest.add(reading ? Pairs{std::move(pool_side), std::move(row_side)}
                       : Pairs{std::move(row_side), std::move(pool_side)});
    };
    std::vector<std::int64_t> first_bits;
    for (const std::int64_t row : rows) first_bits.push_back(row * row_bits_);
    add(std::move(first_bits), bits);
    if (whole) add(steps(Axis::slot, row_bits_), bits_of(Axis::slot));
    const std::int64_t width = layout::bits(plane_.dtype);
    add(steps(Axis::head, width * static_cast<std::int64_t>(axes_[Axis::channel].size())), bits_of(Axis::head));
    add(steps(Axis::channel, width), bits_of(Axis::channel));
    return nest;
  }

  std::int64_t slot_bit(std::int64_t slot) const { return axes_[Axis::slot][static_cast<std::size_t>(slot)].bit; }

 private:
  void one(Axis axis, std::int64_t wanted) {
    for (const Place& place : axes_[axis]) {
      if (place.coord != wanted) continue;
      base_ += place.bit;
      return;
    }
    throw Error("the plane has no " + std::string(layout::name(axis)) + " " + std::to_string(wanted) + "; it has " +
                words(plane_));
  }
  std::vector<std::int64_t> bits_of(Axis axis) const {
    std::vector<std::int64_t> bits;
    for (const Place& place : axes_[axis]) bits.push_back(place.bit);
    return bits;
  }
  std::vector<std::int64_t> steps(Axis axis, std::int64_t step) const {
    std::vector<std::int64_t> bits;
    for (std::size_t i = 0; i < axes_[axis].size(); ++i) bits.push_back(static_cast<std::int64_t>(i) * step);
    return bits;
  }

  const Plane& plane_;
  Coordinates axes_;
  std::int64_t base_{plane_.offset};
  std::int64_t row_bits_{0};
};

/// Tokens in whole blocks, and the others, each with its bit in the pool.
struct Tokens {
  std::vector<std::int64_t> block_rows{}, block_bits{};
  std::vector<std::int64_t> rows{}, bits{};
};

void need_rows(std::size_t found, std::int64_t bits, std::int64_t tokens) {
  if (std::cmp_equal(found, (bits + 7) / 8)) return;
  throw Error("rows of " + std::to_string(tokens) + " tokens have " + std::to_string((bits + 7) / 8) +
              " bytes here, found " + std::to_string(found) + "; they are packed [tokens, heads, channels]");
}

Tokens by_slot(const Pool& pool, std::span<const std::int64_t> slot_mapping) {
  Tokens tokens;
  std::vector<bool> taken(static_cast<std::size_t>(pool.slots()));
  const std::int64_t size = pool.block_size();
  for (std::size_t i = 0; i < slot_mapping.size(); ++i) {
    const std::int64_t slot = slot_mapping[i];
    if (slot == -1) continue;
    const Place* block = slot < 0 ? nullptr : pool.block(slot / size);
    if (block == nullptr) {
      throw Error("token " + std::to_string(i) + " goes to slot " + std::to_string(slot) +
                  ": expected -1 or one of the pool's " + std::to_string(pool.slots()) + " slots in blocks of " +
                  std::to_string(size) + "; check the slot mapping and the block size");
    }
    const auto index = static_cast<std::size_t>(slot);
    if (index >= taken.size()) taken.resize(index + 1);
    if (taken[index]) {
      throw Error("slot " + std::to_string(slot) + " is named twice, by token " + std::to_string(i) +
                  " and one before it: expected one token per slot");
    }
    taken[index] = true;
  }
  for (std::size_t i = 0; i < slot_mapping.size();) {
    const std::int64_t slot = slot_mapping[i];
    const auto row = static_cast<std::int64_t>(i);
    if (slot < 0) {
      ++i;
      continue;
    }
    std::int64_t follow = 0;
    while (slot % size == 0 && follow < size && i + static_cast<std::size_t>(follow) < slot_mapping.size() &&
           slot_mapping[i + static_cast<std::size_t>(follow)] == slot + follow) {
      ++follow;
    }
    const std::int64_t block = pool.block(slot / size)->bit;
    if (follow == size) {
      tokens.block_rows.push_back(row);
      tokens.block_bits.push_back(block);
      i += static_cast<std::size_t>(size);
    } else {
      tokens.rows.push_back(row);
      tokens.bits.push_back(block + pool.slot_bit(slot % size));
      ++i;
    }
  }
  return tokens;
}

Tokens by_block(const Pool& pool, std::span<const std::int64_t> block_table, std::int64_t count) {
  const std::int64_t size = pool.block_size();
  const std::int64_t needed = (count + size - 1) / size;
  if (count < 0 || std::cmp_less(block_table.size(), needed)) {
    throw Error(std::to_string(count) + " tokens in blocks of " + std::to_string(size) + " need a block table of " +
                std::to_string(needed) + " blocks, found " + std::to_string(block_table.size()) +
                "; check the context length and the block size");
  }
  Tokens tokens;
  for (std::int64_t b = 0; b < needed; ++b) {
    const std::int64_t id = block_table[static_cast<std::size_t>(b)];
    const Place* block = pool.block(id);
    if (block == nullptr) {
      throw Error("entry " + std::to_string(b) + " of the block table is block " + std::to_string(id) +
                  ": expected one of the pool's " + std::to_string(pool.slots() / size) + " blocks; check the block table");
    }
    if ((b + 1) * size <= count) {
      tokens.block_rows.push_back(b * size);
      tokens.block_bits.push_back(block->bit);
      continue;
    }
    for (std::int64_t slot = 0; b * size + slot < count; ++slot) {
      tokens.rows.push_back(b * size + slot);
      tokens.bits.push_back(block->bit + pool.slot_bit(slot));
    }
  }
  return tokens;
}

void run_tokens(const Pool& pool, const Tokens& tokens, bool reading, std::span<const std::uint8_t> from,
                std::span<std::uint8_t> to, int threads) {
  if (!tokens.block_rows.empty()) pool.nest(tokens.block_rows, tokens.block_bits, true, reading).run(from, to, threads);
  if (!tokens.rows.empty()) pool.nest(tokens.rows, tokens.bits, false, reading).run(from, to, threads);
}

}  // namespace

void relayout(std::span<const std::uint8_t> from_bytes, const Plane& from, std::span<std::uint8_t> to_bytes, const Plane& to,
              int threads) {
  copy_plane(from_bytes, from, to_bytes, to, threads, Demand::same);
}

void extract(std::span<const std::uint8_t> from_bytes, const Plane& from, std::span<std::uint8_t> to_bytes, const Plane& to,
             int threads) {
  copy_plane(from_bytes, from, to_bytes, to, threads, Demand::within);
}

void relayout(const Cache& from, std::span<const std::span<const std::uint8_t>> from_bytes, const Cache& to,
              std::span<const std::span<std::uint8_t>> to_bytes, int threads) {
  check_spans(from, from_bytes, "source");
  check_spans(to, to_bytes, "target");
  for (std::size_t i = 0; i < to.allocations.size(); ++i) {
    if (const auto shared = layout::overlaps(to, static_cast<int>(i)); !shared.empty()) {
      throw Error("the target has two coordinates at bit " + std::to_string(shared.front().bit) + " of allocation '" +
                  to.allocations[i].name + "': expected one place for each; relayout cannot choose which one wins");
    }
  }
  const std::vector<Coordinates> sources = coordinates_of(from), targets = coordinates_of(to);
  check_once(from, sources, "source");
  check_once(to, targets, "target");
  std::vector<Copy> copies;
  std::vector<std::int64_t> read(from.planes.size()), written(to.planes.size());
  for (std::size_t t = 0; t < to.planes.size(); ++t) {
    for (std::size_t f = 0; f < from.planes.size(); ++f) {
      const Plane &source = from.planes[f], &target = to.planes[t];
      if (source.component != target.component || apart(layout::domain(source), layout::domain(target))) continue;
      const auto pairs = common(sources[f], targets[t]);
      const std::int64_t both = count(pairs);
      if (both == 0) continue;
      check_kind(source, target);
      read[f] += both;
      written[t] += both;
      copies.push_back({nest_between(source, target, pairs), source.allocation, target.allocation});
    }
  }
  const auto need_all = [](const Cache& cache, const std::vector<std::int64_t>& covered, const char* side,
                           const char* other) {
    for (std::size_t i = 0; i < covered.size(); ++i) {
      const std::int64_t all = layout::element_count(cache.planes[i]);
      if (covered[i] == all) continue;
      throw Error(std::string("of the ") + std::to_string(all) + " coordinates of the " + side + "'s plane " +
                  layout::to_text(cache.planes[i]) + ", " + std::to_string(covered[i]) + " are in the " + other +
                  ": expected all; the caches must have the same geometry and scheme");
    }
  };
  need_all(to, written, "target", "source");
  need_all(from, read, "source", "target");
  for (const Copy& copy : copies) {
    copy.nest.run(from_bytes[static_cast<std::size_t>(copy.from)], to_bytes[static_cast<std::size_t>(copy.to)], threads);
  }
}

void scatter(std::span<const std::uint8_t> rows, std::span<std::uint8_t> pool, const Plane& plane, Part part,
             std::span<const std::int64_t> slot_mapping, int threads) {
  check_target(plane, pool.size());
  const Pool slots(plane, part);
  const auto tokens = static_cast<std::int64_t>(slot_mapping.size());
  need_rows(rows.size(), tokens * slots.row_bits(), tokens);
  run_tokens(slots, by_slot(slots, slot_mapping), false, rows, pool, threads);
}

void gather(std::span<const std::uint8_t> pool, const Plane& plane, Part part, std::span<const std::int64_t> block_table,
            std::int64_t tokens, std::span<std::uint8_t> rows, int threads) {
  check_source(plane, pool.size());
  const Pool slots(plane, part);
  const Tokens found = by_block(slots, block_table, tokens);
  need_rows(rows.size(), tokens * slots.row_bits(), tokens);
  run_tokens(slots, found, true, pool, rows, threads);
}

std::int64_t row_bytes(const Plane& plane, std::int64_t tokens) {
  const auto n = [&](Axis axis) { return static_cast<std::int64_t>(places(plane, axis).size()); };
  return (tokens * n(Axis::head) * n(Axis::channel) * layout::bits(plane.dtype) + 7) / 8;
}

Pieces pieces(const Plane& from, const Plane& to) {
  const Nest nest = checked_nest(from, to, Demand::same);
  return {nest.run_bits(), nest.moves()};
}

}  // namespace kvcts::kernels::relayout
