#include "connector/planner.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "connector/axis_offsets.hpp"

namespace kvcts::connector {

using layout::Axis;
using layout::Plane;

namespace {

std::string to_string(const Plane& plane) {
  return std::string(layout::name(plane.component)) + " " + std::string(layout::name(plane.dtype));
}

// A plane with its separable offsets.
struct Mapped {
  const Plane* plane{};
  int region{0};
  std::array<AxisOffsets, layout::axis_count> f;
  bool blocks{false}, slots{false};

  Mapped(const Plane& p, int first_region) : plane(&p), region(first_region + p.allocation) {
    for (Axis a : layout::all_axes) f[static_cast<std::size_t>(a)] = axis_offsets(p, a);
    blocks = has_axis(p, Axis::block);
    slots = has_axis(p, Axis::slot);
  }
  const AxisOffsets& operator[](Axis a) const { return f[static_cast<std::size_t>(a)]; }
};

// A stretch of channels that is contiguous on both sides, in bits relative to each row.
struct Segment {
  std::int64_t src{0}, dst{0}, bits{0};
};

std::vector<Segment> channel_segments(const Mapped& src, const Mapped& dst, std::int64_t& covered) {
  std::vector<Segment> out;
  const int width = layout::bits(dst.plane->dtype);
  const auto& s = src[Axis::channel];
  const auto& d = dst[Axis::channel];
  for (std::int64_t c = d.lo; c < d.lo + static_cast<std::int64_t>(d.bits.size()); ++c) {
    if (!d.holds(c) || !s.holds(c)) continue;
    ++covered;
    if (!out.empty() && out.back().src + out.back().bits == s.at(c) && out.back().dst + out.back().bits == d.at(c)) {
      out.back().bits += width;
    } else {
      out.push_back({s.at(c), d.at(c), width});
    }
  }
  return out;
}

// A token's row on each side: block and slot already resolved.
struct Place {
  std::int64_t block{0}, slot{0};
};

Place place(std::int64_t token, const std::vector<std::int64_t>& blocks, std::int64_t block_size, const char* side) {
  const auto index = static_cast<std::size_t>(token / block_size);
  if (index >= blocks.size()) {
    throw Refusal("request needs " + std::to_string(token + 1) + " tokens but its " + side + " block list has only " +
                  std::to_string(blocks.size()) + " blocks of " + std::to_string(block_size) + "; give it more blocks");
  }
  return {blocks[index], token % block_size};
}

class GroupPlanner {
 public:
  GroupPlanner(const SideView& producer, const SideView& consumer, const std::vector<Request>& requests, Plan& plan,
               process::Progress& progress)
      : producer_(producer), consumer_(consumer), requests_(requests), plan_(plan), progress_(progress) {}

  void run() {
    int region = producer_.first_region;
    for (const auto* cache : producer_.ranks) {
      for (const auto& plane : cache->planes) sources_.emplace_back(plane, region);
      region += static_cast<int>(cache->allocations.size());
    }
    region = consumer_.first_region;
    for (const auto* cache : consumer_.ranks) {
      for (const auto& plane : cache->planes) fill(Mapped(plane, region));
      region += static_cast<int>(cache->allocations.size());
    }
  }

 private:
  // All (layer, kv, head) rows of one consumer plane.
  void fill(const Mapped& dst) {
    const auto each = [](const AxisOffsets& f, auto&& body) {
      for (std::int64_t v = f.lo; v < f.lo + static_cast<std::int64_t>(f.bits.size()); ++v) {
        if (f.holds(v)) body(v);
      }
    };
    each(dst[Axis::layer], [&](std::int64_t layer) {
      each(dst[Axis::kv],
           [&](std::int64_t kv) { each(dst[Axis::head], [&](std::int64_t head) { fill_rows(dst, layer, kv, head); }); });
    });
  }

  void fill_rows(const Mapped& dst, std::int64_t layer, std::int64_t kv, std::int64_t head) {
    std::int64_t covered = 0;
    for (const auto& src : sources_) {
      if (src.plane->component != dst.plane->component || !src[Axis::layer].holds(layer) || !src[Axis::kv].holds(kv) ||
          !src[Axis::head].holds(head)) {
        continue;
      }
      std::int64_t here = 0;
      const auto& segments = segments_of(src, dst, here);
      if (here == 0) continue;
      // Replicas (a head held by several producer ranks): use the first rank that has it.
      if (covered == channels(dst)) break;
      check_types(src, dst);
      covered += here;
      move(src, dst, segments, layer, kv, head);
      plan_.relayout = plan_.relayout || inner_order(*src.plane) != inner_order(*dst.plane);
    }
    if (covered != channels(dst)) {
      throw Refusal("consumer needs " + to_string(*dst.plane) + " layer " + std::to_string(layer) + " " +
                    (kv == 0 ? "K" : "V") + " head " + std::to_string(head) + ": producer ranks have " +
                    std::to_string(covered) + " of its " + std::to_string(channels(dst)) +
                    " channels; the two caches do not describe the same model");
    }
  }

  static std::int64_t channels(const Mapped& m) {
    const auto& valid = m[Axis::channel].valid;
    return std::count(valid.begin(), valid.end(), true);
  }

  const std::vector<Segment>& segments_of(const Mapped& src, const Mapped& dst, std::int64_t& covered) {
    const auto key = std::make_pair(src.plane, dst.plane);
    auto it = segments_.find(key);
    if (it == segments_.end()) {
      std::int64_t count = 0;
      auto list = channel_segments(src, dst, count);
      it = segments_.emplace(key, std::make_pair(std::move(list), count)).first;
    }
    covered = it->second.second;
    return it->second.first;
  }

  static void check_types(const Mapped& src, const Mapped& dst) {
    if (src.plane->dtype != dst.plane->dtype) {
      throw Refusal("producer holds " + to_string(*src.plane) + ", consumer needs " + to_string(*dst.plane) +
                    ": that is a conversion, not a move; use the same dtype or a connector that converts");
    }
    if (layout::bits(src.plane->dtype) < 8 && src.plane->high_nibble_first != dst.plane->high_nibble_first) {
      throw Refusal(
          "producer and consumer order the two nibbles of a byte differently; moving them needs work below a byte, "
          "which this connector does not do");
    }
    if (src.blocks != dst.blocks || src.slots != dst.slots) {
      throw Refusal("producer and consumer disagree on whether " + to_string(*dst.plane) +
                    " has one value per token, block or cache");
    }
  }

  void move(const Mapped& src, const Mapped& dst, const std::vector<Segment>& segments, std::int64_t layer, std::int64_t kv,
            std::int64_t head) {
    const auto base = [&](const Mapped& m) {
      return m.plane->offset + m[Axis::layer].at(layer) + m[Axis::kv].at(kv) + m[Axis::head].at(head);
    };
    const std::int64_t src_base = base(src), dst_base = base(dst);
    const auto emit = [&](std::int64_t src_bit, std::int64_t dst_bit) {
      for (const auto& s : segments) {
        plan_.copies.push_back({src.region, src_bit + s.src, dst.region, dst_bit + s.dst, s.bits});
      }
    };
    if (!dst.blocks) {
      emit(src_base, dst_base);
      return;
    }
    for (const auto& request : requests_) {
      if (!request.transfer) continue;
      // Without a slot axis a block has one value: visit the first token of each consumer block.
      const std::int64_t step = dst.slots ? 1 : consumer_.block_size;
      for (std::int64_t token = 0; token < request.tokens; token += step) {
        const Place s = place(token, request.producer_blocks, producer_.block_size, "producer");
        const Place d = place(token, request.consumer_blocks, consumer_.block_size, "consumer");
        check_block(src, s.block, "producer");
        check_block(dst, d.block, "consumer");
        // A plane may have a value only for some slots: one scale per 16 tokens.
        if (dst.slots && !dst[Axis::slot].holds(d.slot)) continue;
        if (src.slots && !src[Axis::slot].holds(s.slot)) {
          throw Refusal("consumer needs " + to_string(*dst.plane) + " of slot " + std::to_string(d.slot) +
                        ", which on the producer is slot " + std::to_string(s.slot) + " and has no separate value there");
        }
        emit(src_base + src[Axis::block].at(s.block) + (src.slots ? src[Axis::slot].at(s.slot) : 0),
             dst_base + dst[Axis::block].at(d.block) + (dst.slots ? dst[Axis::slot].at(d.slot) : 0));
      }
    }
    progress_.set(plan_.copies.size(), 0);
  }

  static void check_block(const Mapped& m, std::int64_t block, const char* side) {
    if (!m[Axis::block].holds(block)) {
      throw Refusal(std::string(side) + " block id " + std::to_string(block) + " is not in its pool of " +
                    std::to_string(m[Axis::block].bits.size()) + " blocks");
    }
  }

  const SideView& producer_;
  const SideView& consumer_;
  const std::vector<Request>& requests_;
  Plan& plan_;
  process::Progress& progress_;
  std::vector<Mapped> sources_;
  std::map<std::pair<const Plane*, const Plane*>, std::pair<std::vector<Segment>, std::int64_t>> segments_;
};

}  // namespace

void plan_group(const SideView& producer, const SideView& consumer, const std::vector<Request>& requests, Plan& plan,
                process::Progress& progress) {
  GroupPlanner(producer, consumer, requests, plan, progress).run();
}

void join(std::vector<Copy>& copies) {
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) {
    return std::tie(a.dst, a.dst_offset, a.src, a.src_offset) < std::tie(b.dst, b.dst_offset, b.src, b.src_offset);
  });
  std::size_t kept = 0;
  for (const Copy& c : copies) {
    if (kept > 0) {
      Copy& last = copies[kept - 1];
      if (last == c) continue;
      if (last.src == c.src && last.dst == c.dst && last.src_offset + last.bytes == c.src_offset &&
          last.dst_offset + last.bytes == c.dst_offset) {
        last.bytes += c.bytes;
        continue;
      }
    }
    copies[kept++] = c;
  }
  copies.resize(kept);
}

void finish(std::vector<Copy>& copies) {
  join(copies);
  std::int64_t end = 0;  // end of the bytes taken so far in this destination
  int region = -1;
  for (Copy& c : copies) {
    if (c.dst != region) region = c.dst, end = 0;
    if ((c.src_offset - c.dst_offset) % 8 != 0) {
      throw Refusal(
          "the two sides place 4-bit codes in different halves of their bytes; moving them needs work below a byte, "
          "which this connector does not do");
    }
    const std::int64_t before = c.dst_offset % 8, after = (8 - (c.dst_offset + c.bytes) % 8) % 8;
    c = {c.src, (c.src_offset - before) / 8, c.dst, (c.dst_offset - before) / 8, (before + c.bytes + after) / 8};
    if (c.dst_offset < end) {
      throw Refusal(
          "two 4-bit codes that share a byte on the consumer come from different bytes of the producer; moving them needs "
          "work below a byte, which this connector does not do");
    }
    end = c.dst_offset + c.bytes;
  }
}

std::string inner_order(const Plane& plane) {
  std::vector<layout::Mode> modes;
  for (const auto& m : plane.modes) {
    if (m.extent > 1 && (m.axis == Axis::slot || m.axis == Axis::head || m.axis == Axis::channel)) modes.push_back(m);
  }
  std::stable_sort(modes.begin(), modes.end(),
                   [](const layout::Mode& a, const layout::Mode& b) { return std::abs(a.stride) > std::abs(b.stride); });
  std::string out;
  for (const auto& m : modes) {
    // Neighbouring modes of one axis that continue each other form one loop.
    if (!out.empty() && out.back() == layout::letter(m.axis)) continue;
    out += layout::letter(m.axis);
  }
  return out;
}

}  // namespace kvcts::connector
