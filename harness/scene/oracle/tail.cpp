#include "scene/oracle/tail.hpp"

#include <algorithm>
#include <array>

namespace kvcts::oracle {

using layout::Axis;
using layout::Plane;

namespace {

constexpr std::array row_axes{Axis::layer, Axis::kv, Axis::head};

// A code of 4 bits is half a byte; others are whole bytes.
bool same_code(std::span<const std::uint8_t> a, std::int64_t a_bit, std::span<const std::uint8_t> b, std::int64_t b_bit,
               int width) {
  const auto *x = &a[static_cast<std::size_t>(a_bit / 8)], *y = &b[static_cast<std::size_t>(b_bit / 8)];
  if (width < 8) return ((*x >> (a_bit % 8)) & 0xF) == ((*y >> (b_bit % 8)) & 0xF);
  return std::equal(x, x + width / 8, y);
}

void copy_code(std::span<const std::uint8_t> from, std::int64_t from_bit, std::span<std::uint8_t> to, std::int64_t to_bit,
               int width) {
  const auto* x = &from[static_cast<std::size_t>(from_bit / 8)];
  auto* y = &to[static_cast<std::size_t>(to_bit / 8)];
  if (width >= 8) {
    std::copy_n(x, width / 8, y);
    return;
  }
  const auto nibble = (*x >> (from_bit % 8)) & 0xF;
  *y = static_cast<std::uint8_t>((*y & ~(0xF << (to_bit % 8))) | (nibble << (to_bit % 8)));
}

}  // namespace

Tail::Tail(const ResolvedCase& resolved, const RegionRef& region)
    : case_(resolved), region_(region), group_(resolved.groups.at(static_cast<std::size_t>(region.group))) {
  if (region.side != Side::consumer || group_.producer.ranks.empty()) return;
  truth_ = &rank_of(case_, region).truth;
  base_ = file_shape(case_, region.bytes).base * 8;
  consumer_size_ = group_.consumer.ranks.at(0).geometry.block_size;
  producer_size_ = group_.producer.ranks.at(0).geometry.block_size;
  sources_ = regions(case_, Side::producer);
  for (const auto& b : content(group_, Side::consumer, true)) tokens_[b.block] = b.tokens;
}

void Tail::each_plane(const std::function<void(const Request&, const Plane&)>& body) const {
  if (truth_ == nullptr) return;
  for (const Request& request : group_.requests) {
    if (!request.transfer) continue;
    for (const Plane& plane : truth_->planes) {
      if (plane.allocation == region_.allocation && has_axis(plane, Axis::slot)) body(request, plane);
    }
  }
}

void Tail::each_row(const Request& request, const Plane& plane, const std::function<void(const Row&)>& body) const {
  const auto box = layout::domain(plane);
  layout::Coord at = box.lo;
  for (at[Axis::layer] = box.lo[Axis::layer]; at[Axis::layer] < box.hi[Axis::layer]; ++at[Axis::layer]) {
    for (at[Axis::kv] = box.lo[Axis::kv]; at[Axis::kv] < box.hi[Axis::kv]; ++at[Axis::kv]) {
      for (at[Axis::head] = box.lo[Axis::head]; at[Axis::head] < box.hi[Axis::head]; ++at[Axis::head]) {
        for (const Row& row : rows(request, plane, at)) body(row);
      }
    }
  }
}

std::vector<Tail::Row> Tail::rows(const Request& request, const Plane& plane, layout::Coord at) const {
  struct Candidate {
    std::size_t file;
    int rank;
    std::int64_t base;
    const Plane* plane;
  };
  std::vector<Candidate> candidates;  // planes of the producer that have this row
  for (std::size_t p = 0; p < sources_.size(); ++p) {
    const auto& ref = sources_[p];
    if (ref.group != region_.group) continue;
    for (const Plane& candidate : rank_of(case_, ref).truth.planes) {
      if (candidate.allocation != ref.allocation || candidate.component != plane.component || candidate.dtype != plane.dtype)
        continue;
      const auto box = layout::domain(candidate);
      const bool holds =
          std::all_of(row_axes.begin(), row_axes.end(), [&](Axis a) { return box.lo[a] <= at[a] && at[a] < box.hi[a]; });
      if (holds) candidates.push_back({p, ref.rank, file_shape(case_, ref.bytes).base * 8, &candidate});
    }
  }
  const auto box = layout::domain(plane);
  const auto reach = std::min(static_cast<std::int64_t>(request.consumer_blocks.size()) * consumer_size_,
                              static_cast<std::int64_t>(request.producer_blocks.size()) * producer_size_);
  std::vector<Row> out;
  std::vector<int> holders;
  std::vector<Source> sources;
  for (std::int64_t position = request.tokens; position < reach; ++position) {
    for (at[Axis::channel] = box.lo[Axis::channel]; at[Axis::channel] < box.hi[Axis::channel]; ++at[Axis::channel]) {
      at[Axis::block] = request.consumer_blocks[static_cast<std::size_t>(position / consumer_size_)];
      at[Axis::slot] = position % consumer_size_;
      const auto to = layout::locate(plane, at);
      if (!to) continue;
      layout::Coord there = at;
      there[Axis::block] = request.producer_blocks[static_cast<std::size_t>(position / producer_size_)];
      there[Axis::slot] = position % producer_size_;
      holders.clear(), sources.clear();
      for (const Candidate& candidate : candidates) {
        if (!holders.empty() && holders.back() == candidate.rank) continue;
        const auto from = layout::locate(*candidate.plane, there);
        if (!from) continue;
        holders.push_back(candidate.rank);
        sources.push_back({candidate.file, candidate.base + from->bit});
      }
      if (holders.empty()) continue;
      auto row = std::find_if(out.begin(), out.end(), [&](const Row& r) { return r.holders == holders; });
      if (row == out.end()) row = out.insert(row, Row{holders, {}, {}});
      row->codes.push_back({base_ + to->bit, to->width});
      row->sources.insert(row->sources.end(), sources.begin(), sources.end());
    }
  }
  return out;
}

bool Tail::beside_a_token(const Code& code) const {
  if (code.width >= 8) return false;
  for (const auto& other : layout::inverse(*truth_, region_.allocation, (code.bit - base_) ^ 4)) {
    if (!has_axis(truth_->planes[static_cast<std::size_t>(other.plane)], Axis::block)) return true;
    const auto tokens = tokens_.find(other.coord[Axis::block]);
    if (tokens != tokens_.end() && other.coord[Axis::slot] < tokens->second) return true;
  }
  return false;
}

bool Tail::bring_along(const Files& producer, std::span<std::uint8_t> file, std::size_t replica) const {
  bool any = false;
  each_plane([&](const Request& request, const Plane& plane) {
    each_row(request, plane, [&](const Row& row) {
      for (std::size_t i = 0; i < row.codes.size(); ++i) {
        const Source& from = row.source(i, replica % row.holders.size());
        copy_code(producer[from.file], from.bit, file, row.codes[i].bit, row.codes[i].width);
      }
      any = true;
    });
  });
  return any;
}

void Tail::mask_tail(const Files& producer, std::span<const std::uint8_t> found, std::span<std::uint8_t> expected) const {
  each_plane([&](const Request& request, const Plane& plane) {
    // Of whole blocks: the holder of each row.
    std::vector<std::size_t> came_from;
    bool stayed = true, came = true;
    each_row(request, plane, [&](const Row& row) {
      const auto held = [&](std::size_t i, std::size_t holder) {
        const Source& from = row.source(i, holder);
        return same_code(found, row.codes[i].bit, producer[from.file], from.bit, row.codes[i].width);
      };
      for (std::size_t i = 0; i < row.codes.size(); ++i) {
        const Code& code = row.codes[i];
        if (same_code(found, code.bit, expected, code.bit, code.width)) continue;
        if (!beside_a_token(code)) {
          stayed = false;
          continue;
        }
        for (std::size_t holder = 0; holder < row.holders.size(); ++holder) {
          if (held(i, holder)) copy_code(found, code.bit, expected, code.bit, code.width);
        }
      }
      std::size_t from = 0;
      const auto all_held = [&] {
        for (std::size_t i = 0; i < row.codes.size(); ++i) {
          if (!held(i, from) && !beside_a_token(row.codes[i])) return false;
        }
        return true;
      };
      while (came && from < row.holders.size() && !all_held()) ++from;
      came = came && from < row.holders.size();
      came_from.push_back(from);
    });
    if (stayed || !came) return;
    std::size_t next = 0;
    each_row(request, plane, [&](const Row& row) {
      const std::size_t holder = came_from[next++];
      for (std::size_t i = 0; i < row.codes.size(); ++i) {
        const Code& code = row.codes[i];
        const Source& from = row.source(i, holder);
        if (same_code(found, code.bit, producer[from.file], from.bit, code.width))
          copy_code(found, code.bit, expected, code.bit, code.width);
      }
    });
  });
}

}  // namespace kvcts::oracle
