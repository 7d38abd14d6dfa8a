#include "kernels/cuda/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string>

#include "kernels/axis_table.hpp"
#include "kernels/code_rule.hpp"
#include "kernels/walk.hpp"
#include "layout/error.hpp"

namespace kvcts::cuda {
namespace {

using kernels::AxisEntry;
using kernels::AxisTable;
using layout::Axis;

/// Largest power of two up to 16 that divides everything that was added.
class Alignment {
 public:
  void add(i64 bytes) { all_ |= static_cast<u64>(bytes); }
  u32 bytes() const { return all_ == 0 ? 16 : static_cast<u32>(std::min<u64>(16, all_ & ~(all_ - 1))); }

 private:
  u64 all_{0};
};

struct Extent {
  i64 first{0}, count{0}, bit{0};
};

/// Channels that are consecutive in coordinates and in memory.
std::vector<Extent> channel_runs(const AxisTable& channels, int width) {
  std::vector<Extent> runs;
  for (const AxisEntry& entry : channels.entries()) {
    if (!runs.empty()) {
      Extent& last = runs.back();
      if (entry.coord == last.first + last.count && entry.bit == last.bit + last.count * width) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({entry.coord, 1, entry.bit});
  }
  return runs;
}

std::vector<Extent> single_codes(const AxisTable& channels) {
  std::vector<Extent> runs;
  for (const AxisEntry& entry : channels.entries()) runs.push_back({entry.coord, 1, entry.bit});
  return runs;
}

bool unblocked(const layout::Plane& plane) {
  return std::none_of(plane.modes.begin(), plane.modes.end(),
                      [](const layout::Mode& mode) { return mode.axis == Axis::block || mode.axis == Axis::slot; });
}

bool on_whole_bytes(const layout::Plane& plane) {
  if (plane.offset % 8 != 0) return false;
  return std::all_of(plane.modes.begin(), plane.modes.end(), [](const layout::Mode& mode) {
    return mode.axis == Axis::channel || mode.extent == 1 || mode.stride % 8 == 0;
  });
}

bool equal_runs_of_bytes(const std::vector<Extent>& runs, int width) {
  return std::all_of(runs.begin(), runs.end(), [&](const Extent& run) {
    return run.count == runs.front().count && run.bit % 8 == 0 && run.first * width % 8 == 0 && run.count * width % 8 == 0;
  });
}

Codes codes_of(const layout::Plane& plane) {
  const kernels::CodeRule rule = kernels::code_rule(plane.dtype);
  Codes codes;
  codes.width = static_cast<u32>(rule.width);
  codes.scale = plane.component != layout::Component::data;
  codes.or_mask = kernels::repeat(rule.or_mask, rule.width);
  codes.and_mask =
      kernels::repeat(codes.scale != 0 ? rule.and_mask & ~kernels::scale_digit_mask : rule.and_mask, rule.width);
  if (codes.scale != 0 && rule.width == 16) codes.kind = CodeKind::digit16;
  if (codes.scale != 0 && rule.width == 32) codes.kind = CodeKind::digit32;
  if (rule.width == 4 && plane.high_nibble_first) codes.kind = CodeKind::swapped;
  return codes;
}

std::vector<Place> places(const AxisTable& table) {
  std::vector<Place> out;
  for (const AxisEntry& entry : table.entries()) out.push_back({entry.coord, entry.bit});
  return out;
}

}  // namespace

Divider divider(u64 divisor, u64 limit) {
  if (divisor <= 1) return {1, 0};
  const bool exact = limit <= ~u64{0} / divisor;
  return {divisor, exact ? ~u64{0} / divisor + 1 : 0};
}

SmallDivider small_divider(u64 divisor, const char* what) {
  if (divisor == 0 || divisor * threads >= u64{1} << 31) {
    throw layout::Error(std::string("a device kernel has room for ") + what + " in [1, " +
                        std::to_string((u64{1} << 31) / threads) + "), found " + std::to_string(divisor));
  }
  if (divisor == 1) return {};
  const auto d = static_cast<u32>(divisor);
  const u32 bits = 31 + static_cast<u32>(std::bit_width(d - 1));
  return {d, static_cast<u32>(((u64{1} << bits) + d - 1) / d), bits - 32};
}

std::size_t Tables::add(const void* data, std::size_t bytes) {
  const std::size_t at = bytes_.size();
  bytes_.resize(at + (bytes + 15) / 16 * 16);
  if (bytes > 0) std::memcpy(bytes_.data() + at, data, bytes);
  return at;
}

RowsPlan plan_rows(std::span<const kernels::BlockContent> content, const layout::Plane& plane, const kernels::TagKey& key,
                   u32 unblocked_generation, u64 base, u64 memory_bytes) {
  const int width = kernels::code_rule(plane.dtype).width;
  if (base > memory_bytes) throw layout::Error("an allocation must begin inside its memory");
  const kernels::Map checked(memory_bytes - base, plane, content, key);  // throws as generate() does
  const AxisTable layers(plane, Axis::layer), kvs(plane, Axis::kv), blocks(plane, Axis::block), slots(plane, Axis::slot),
      heads(plane, Axis::head), channels(plane, Axis::channel);

  RowsPlan plan;
  plan.args.codes = codes_of(plane);
  std::vector<Part> parts;
  Alignment alignment;
  for (const AxisEntry& layer : layers.entries()) {
    for (const AxisEntry& kv : kvs.entries()) {
      const u64 prefix = kernels::tag_prefix(key.seed, key.pass, key.origin, static_cast<u64>(plane.component),
                                             static_cast<u64>(kv.coord), static_cast<u64>(layer.coord));
      const i64 bit = static_cast<i64>(base) * 8 + plane.offset + layer.bit + kv.bit;
      parts.push_back({prefix, bit, static_cast<u32>(layer.coord + 2 * kv.coord), 0});
      alignment.add(bit / 8);
    }
  }
  std::vector<Filled> filled;
  std::vector<Place> slot_places{{0, 0}};
  if (unblocked(plane)) {
    filled.push_back({0, 0, 0, 1, unblocked_generation, 0});
  } else {
    slot_places = places(slots);
    for (const kernels::BlockContent& block : content) {
      for (const AxisEntry& at : blocks.within(block.block, block.block + 1)) {
        filled.push_back({at.bit, block.first_token, block.first_slot, block.tokens, block.generation, 0});
        alignment.add(at.bit / 8);
      }
    }
  }
  const std::vector<Place> head_places = places(heads);
  for (const Place& place : slot_places) alignment.add(place.bit / 8);
  for (const Place& place : head_places) alignment.add(place.bit / 8);

  std::vector<Extent> runs = channel_runs(channels, width);
  const bool bytes = on_whole_bytes(plane);
  if (width >= 8 && !(bytes && std::all_of(runs.begin(), runs.end(), [](const Extent& run) { return run.bit % 8 == 0; }))) {
    throw layout::Error("device kernels need codes of 8 bits and more on whole bytes; plane " + layout::to_text(plane) +
                        " has them elsewhere");
  }
  if (width >= 8 && !equal_runs_of_bytes(runs, width)) runs = single_codes(channels);
  plan.by_code = !(bytes && equal_runs_of_bytes(runs, width));
  if (plan.by_code) runs = single_codes(channels);
  std::vector<ChannelRun> channel_places;
  for (const Extent& run : runs) {
    channel_places.push_back({run.bit, plan.by_code ? run.first : run.first * width / 8});
    alignment.add(run.bit / 8);
  }
  RowsArgs& args = plan.args;
  const u64 run_bytes = plan.by_code ? 1 : static_cast<u64>(runs.front().count * width / 8);
  if (run_bytes >= u64{1} << 31)
    throw layout::Error("a device kernel has room for rows below 2 GiB, found " + std::to_string(run_bytes));
  args.run_bytes = static_cast<u32>(run_bytes);
  const u64 slack = 16 - alignment.bytes();
  const u64 vectors = plan.by_code ? 1 : (run_bytes + slack + 15) / 16;
  args.whole =
      !plan.by_code && slack == 0 && run_bytes % 16 == 0 &&
      std::all_of(channel_places.begin(), channel_places.end(), [](const ChannelRun& run) { return run.stream % 4 == 0; });
  args.vectors = small_divider(vectors, "16-byte accesses per run");
  args.row_vectors = small_divider(vectors * runs.size(), "16-byte accesses per row");
  args.slots_inner = slots.pitch() < heads.pitch() && slot_places.size() > 1;
  const u64 inner = args.slots_inner != 0 ? slot_places.size() : head_places.size();
  const u64 outer = args.slots_inner != 0 ? head_places.size() : slot_places.size();
  args.rows = parts.size() * filled.size() * outer * inner;
  args.inner = divider(inner, args.rows);
  args.outer = divider(outer, args.rows);
  args.blocks = divider(filled.size(), args.rows);
  // Short runs of neighbouring rows are adjacent in x-packed and transposed layouts.
  args.rows_fastest = runs.size() > 1 && std::min(slots.pitch(), heads.pitch()) <= channels.pitch() * runs.front().count;

  plan.parts = plan.tables.add(parts);
  plan.filled = plan.tables.add(filled);
  plan.slots = plan.tables.add(slot_places);
  plan.heads = plan.tables.add(head_places);
  plan.runs = plan.tables.add(channel_places);
  return plan;
}

namespace {
template <class T>
const T* table(const void* tables, std::size_t at) {
  return reinterpret_cast<const T*>(static_cast<const u8*>(tables) + at);
}
}  // namespace

RowsArgs bind(const RowsPlan& plan, void* memory, const void* tables, const Probe& probe) {
  RowsArgs args = plan.args;
  args.memory = static_cast<u8*>(memory);
  args.parts = table<Part>(tables, plan.parts);
  args.filled = table<Filled>(tables, plan.filled);
  args.slots = table<Place>(tables, plan.slots);
  args.heads = table<Place>(tables, plan.heads);
  args.runs = table<ChannelRun>(tables, plan.runs);
  args.probe = probe;
  return args;
}

std::vector<Range> unwritten(u64 memory_bytes, u64 base, std::span<const layout::Plane> planes,
                             std::span<const kernels::BlockContent> content) {
  std::vector<Range> written;
  const auto add = [&](const layout::Plane& plane, const layout::Box& box) {
    for (const layout::Run& run : layout::runs(plane, box)) {
      written.push_back({base + static_cast<u64>(run.bit / 8), base + static_cast<u64>((run.bit + run.bits + 7) / 8)});
    }
  };
  for (const layout::Plane& plane : planes) {
    layout::Box box = layout::domain(plane);
    if (unblocked(plane)) {
      add(plane, box);
      continue;
    }
    const layout::Box whole = box;
    for (const kernels::BlockContent& block : content) {
      if (block.tokens == 0 || block.block < whole.lo[Axis::block] || block.block >= whole.hi[Axis::block]) continue;
      box.lo[Axis::block] = block.block;
      box.hi[Axis::block] = block.block + 1;
      box.lo[Axis::slot] = std::max(whole.lo[Axis::slot], block.first_slot);
      box.hi[Axis::slot] = std::min(whole.hi[Axis::slot], block.first_slot + block.tokens);
      if (box.lo[Axis::slot] < box.hi[Axis::slot]) add(plane, box);
    }
  }
  std::sort(written.begin(), written.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> out;
  u64 at = 0;
  for (const Range& range : written) {
    if (range.begin > at) out.push_back({at, range.begin});
    at = std::max(at, range.end);
  }
  if (at < memory_bytes) out.push_back({at, memory_bytes});
  return out;
}

PoisonPlan plan_poison(std::span<const Range> ranges, u64 key, u64 memory_bytes) {
  PoisonPlan plan;
  PoisonArgs& args = plan.args;
  u64 at = 0, vectors = 0;
  for (const Range& range : ranges) {
    if (range.begin < at || range.end < range.begin || range.end > memory_bytes) {
      throw layout::Error("poison needs ascending ranges inside the memory, found [" + std::to_string(range.begin) + ", " +
                          std::to_string(range.end) + ") of " + std::to_string(memory_bytes));
    }
    at = range.end;
    vectors += (range.end + 15) / 16 - range.begin / 16;
  }
  // If ranges are shorter than a tile on average, a tile takes several.
  args.fine = vectors < ranges.size() * range_vectors;
  const u64 unit = args.fine != 0 ? 1 : range_vectors;
  std::vector<u64> first{0};
  for (const Range& range : ranges) {
    const u64 count = range.begin == range.end ? 0 : (range.end + 15) / 16 - range.begin / 16;
    first.push_back(first.back() + (count + unit - 1) / unit);
  }
  args.count = ranges.size();
  args.key = key;
  args.tiles = args.fine != 0 ? (first.back() + range_vectors - 1) / range_vectors : first.back();
  plan.ranges = plan.tables.add(std::vector<Range>(ranges.begin(), ranges.end()));
  plan.first = plan.tables.add(first);
  return plan;
}

PoisonArgs bind(const PoisonPlan& plan, void* memory, const void* tables, const Probe& probe) {
  PoisonArgs args = plan.args;
  args.memory = static_cast<u8*>(memory);
  args.ranges = table<Range>(tables, plan.ranges);
  args.first = table<u64>(tables, plan.first);
  args.probe = probe;
  return args;
}

namespace {

/// Coordinates of one axis that must be the same on both sides, with the bit of each.
struct Joined {
  i64 coord, from, to;
};
std::vector<Joined> join(const AxisTable& from, const AxisTable& to, Axis axis) {
  std::vector<Joined> out;
  const auto &a = from.entries(), &b = to.entries();
  const bool same =
      a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](auto& x, auto& y) { return x.coord == y.coord; });
  if (!same) {
    throw layout::Error(std::string("both sides of a relayout must hold the same coordinates of axis ") +
                        layout::letter(axis) + ", found " + std::to_string(a.size()) + " from " +
                        std::to_string(a.front().coord) + " on and " + std::to_string(b.size()) + " from " +
                        std::to_string(b.front().coord) + " on");
  }
  for (std::size_t k = 0; k < a.size(); ++k) out.push_back({a[k].coord, a[k].bit, b[k].bit});
  return out;
}

i64 only(const AxisTable& axis, i64 coord, const char* what) {
  const auto found = axis.within(coord, coord + 1);
  if (found.empty())
    throw layout::Error(std::string(what) + " " + std::to_string(coord) + " is not in the plane that a relayout was given");
  return found.front().bit;
}

}  // namespace

RelayoutPlan plan_relayout(const layout::Plane& from, u64 from_base, const layout::Plane& to, u64 to_base,
                           std::span<const TokenMove> tokens) {
  if (from.dtype != to.dtype || from.component != to.component) {
    throw layout::Error("a relayout moves codes as they are: both sides need one dtype and component");
  }
  const int width = layout::bits(from.dtype);
  const auto joined = [&](Axis axis) { return join(AxisTable(from, axis), AxisTable(to, axis), axis); };
  RelayoutPlan plan;
  RelayoutArgs& args = plan.args;
  Alignment alignment;
  bool bytes = from.offset % 8 == 0 && to.offset % 8 == 0;
  const auto pair = [&](i64 from_bit, i64 to_bit) {
    bytes = bytes && from_bit % 8 == 0 && to_bit % 8 == 0;
    alignment.add(from_bit / 8);
    alignment.add(to_bit / 8);
    return Pair{from_bit / 8, to_bit / 8};
  };
  std::vector<Pair> parts, token_places, heads, runs;
  for (const Joined& layer : joined(Axis::layer)) {
    for (const Joined& kv : joined(Axis::kv)) {
      parts.push_back(pair(static_cast<i64>(from_base) * 8 + from.offset + layer.from + kv.from,
                           static_cast<i64>(to_base) * 8 + to.offset + layer.to + kv.to));
    }
  }
  const AxisTable from_blocks(from, Axis::block), to_blocks(to, Axis::block), from_slots(from, Axis::slot),
      to_slots(to, Axis::slot);
  for (const TokenMove& token : tokens) {
    token_places.push_back(pair(only(from_blocks, token.from_block, "block") + only(from_slots, token.from_slot, "slot"),
                                only(to_blocks, token.to_block, "block") + only(to_slots, token.to_slot, "slot")));
  }
  const AxisTable from_heads(from, Axis::head), to_heads(to, Axis::head);
  for (const Joined& head : join(from_heads, to_heads, Axis::head)) heads.push_back(pair(head.from, head.to));

  // Channels that are adjacent on both sides; all such runs must have one length, or else go channel by channel.
  struct Both {
    i64 count, from, to;
  };
  std::vector<Both> channels;
  const auto split = [&](bool together) {
    channels.clear();
    i64 last = 0;
    for (const Joined& c : joined(Axis::channel)) {
      const bool follows = !channels.empty() && c.coord == last + 1 &&
                           c.from == channels.back().from + channels.back().count * width &&
                           c.to == channels.back().to + channels.back().count * width;
      if (together && follows) {
        ++channels.back().count;
      } else {
        channels.push_back({1, c.from, c.to});
      }
      last = c.coord;
    }
  };
  split(true);
  if (std::any_of(channels.begin(), channels.end(), [&](const Both& run) { return run.count != channels.front().count; }))
    split(false);
  const i64 run_bits = channels.front().count * width;
  bytes = bytes && run_bits % 8 == 0;
  for (const Both& run : channels) runs.push_back(pair(run.from, run.to));
  if (!bytes)
    throw layout::Error("the device moves whole bytes; these two planes share no runs of whole bytes: " +
                        layout::to_text(from) + " and " + layout::to_text(to));
  alignment.add(run_bits / 8);
  args.access = alignment.bytes();
  args.pieces = small_divider(static_cast<u64>(run_bits / 8) / args.access, "accesses per run");
  args.row_pieces = small_divider(args.pieces.divisor * runs.size(), "accesses per row");
  args.swap_nibbles = width == 4 && from.high_nibble_first != to.high_nibble_first;

  // The inner axis on the writing side.
  const bool tokens_inner = to_slots.pitch() < to_heads.pitch();
  const auto& inner = tokens_inner ? token_places : heads;
  const auto& outer = tokens_inner ? heads : token_places;
  args.rows = parts.size() * inner.size() * outer.size();
  args.inner = divider(inner.size(), args.rows);
  args.outer = divider(outer.size(), args.rows);
  args.rows_fastest = runs.size() > 1 && std::min(to_slots.pitch(), to_heads.pitch()) <=
                                             AxisTable(to, Axis::channel).pitch() * channels.front().count;
  plan.bytes = args.rows * runs.size() * static_cast<u64>(run_bits / 8);
  plan.parts = plan.tables.add(parts);
  plan.outer = plan.tables.add(outer);
  plan.inner = plan.tables.add(inner);
  plan.runs = plan.tables.add(runs);
  return plan;
}

RelayoutArgs bind(const RelayoutPlan& plan, const void* from, void* to, const void* tables) {
  RelayoutArgs args = plan.args;
  args.from = static_cast<const u8*>(from);
  args.to = static_cast<u8*>(to);
  args.parts = table<Pair>(tables, plan.parts);
  args.outer_places = table<Pair>(tables, plan.outer);
  args.inner_places = table<Pair>(tables, plan.inner);
  args.runs = table<Pair>(tables, plan.runs);
  return args;
}

template <class Args>
void shape_copy(Args& args, u64 run_bytes, u64 runs, std::span<const u64> places) {
  Alignment alignment;
  alignment.add(static_cast<i64>(run_bytes));
  for (const u64 place : places) alignment.add(static_cast<i64>(place));
  args.access = alignment.bytes();
  args.run_bytes = static_cast<u32>(run_bytes);
  args.pieces = small_divider(run_bytes / args.access, "accesses per run");
  args.row_pieces = small_divider(args.pieces.divisor * runs, "accesses per row");
}
template void shape_copy(ScatterArgs&, u64, u64, std::span<const u64>);
template void shape_copy(GatherArgs&, u64, u64, std::span<const u64>);

}  // namespace kvcts::cuda
