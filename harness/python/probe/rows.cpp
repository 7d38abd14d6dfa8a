#include "python/probe/rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/tag.hpp"

namespace kvcts::probe {

using layout::Axis;

std::string words(const RowName& row) {
  return fmt::format("{} layer {} token {} head {}, generation {}", row.kv == 0 ? "K" : "V", row.layer, row.token, row.head,
                     row.generation);
}

Rows::Rows(const Question& question)
    : question_(question), blocks_(blocks_of(question.content.requests, question.subject.geometry)) {
  bool any = false;
  for (const layout::Plane& plane : question.bound.cache.planes) {
    if (plane.component != layout::Component::data) continue;
    const layout::Box box = layout::domain(plane);
    if (!any) box_ = box, dtype_ = plane.dtype;
    any = true;
    for (const Axis axis : layout::all_axes) {
      box_.lo[axis] = std::min(box_.lo[axis], box.lo[axis]);
      box_.hi[axis] = std::max(box_.hi[axis], box.hi[axis]);
    }
  }
  end_head_ = std::max(box_.hi[Axis::head], question.model_heads);
  if (question.model_heads == 0) first_head_ = box_.lo[Axis::head];
  // 64 bits and more, whole bytes.
  const int bits = kernels::entropy_bits(dtype_);
  channels_ = std::min<std::int64_t>(box_.hi[Axis::channel], (64 + bits - 1) / bits + 3);
  channels_ -= channels_ * layout::bits(dtype_) % 8 != 0;
  const auto note = [&](const std::vector<Request>& requests, std::int64_t block_size) {
    for (const Request& request : requests) {
      for (std::uint32_t g = request.generation > 64 ? request.generation - 64 : 0; g <= request.generation; ++g)
        generations_.insert(g);
      most_tokens_ = std::max(most_tokens_, static_cast<std::int64_t>(request.blocks.size()) * block_size);
    }
  };
  note(question.content.requests, question.subject.geometry.block_size);
  if (question.source) note(question.source->content.requests, question.source->subject.geometry.block_size);
}

void Rows::know(const RowName& row) {
  const kernels::RowId id{layout::Component::data, row.kv, row.layer, row.head, row.token, row.generation};
  codes_.resize(static_cast<std::size_t>(channels_ * layout::bits(dtype_) / 8));
  kernels::tag_row(kernels::row_key(question_.content.key, id), id, dtype_, 0, channels_, codes_);
  const std::uint64_t print = kernels::digest(codes_);
  if (wanted_.empty() || wanted_.contains(print)) known_.emplace(print, row);
}

void Rows::want(const layout::Coord& row) {
  if (const auto print = fingerprint(row)) wanted_.insert(*print);
}

void Rows::know_tokens(std::int64_t layer, std::int64_t kv, std::int64_t head) {
  for (const std::uint32_t g : generations_) {
    for (std::int64_t t = 0; t < most_tokens_; ++t) know({layer, kv, t, head, g});
  }
}

void Rows::know_axes(const std::set<std::int64_t>& tokens) {
  for (std::int64_t l = box_.lo[Axis::layer]; l < box_.hi[Axis::layer]; ++l)
    for (std::int64_t k = box_.lo[Axis::kv]; k < box_.hi[Axis::kv]; ++k)
      for (std::int64_t h = first_head_; h < end_head_; ++h)
        for (const std::uint32_t g : generations_)
          for (const std::int64_t t : tokens) know({l, k, t, h, g});
}

bool Rows::know_declared() {
  constexpr double most = 1 << 20;
  std::set<std::uint32_t> generations;
  const auto note = [&](const std::vector<Request>& requests) {
    for (const Request& request : requests) {
      generations.insert(request.generation);
      if (request.generation > 0) generations.insert(request.generation - 1);
    }
  };
  note(question_.content.requests);
  if (question_.source) note(question_.source->content.requests);
  double rows = static_cast<double>(most_tokens_) * static_cast<double>(generations.size());
  for (const Axis axis : {Axis::layer, Axis::kv}) rows *= static_cast<double>(box_.hi[axis] - box_.lo[axis]);
  rows *= static_cast<double>(end_head_ - first_head_);
  if (rows > most) return false;
  generations_.swap(generations);
  for (std::int64_t l = box_.lo[Axis::layer]; l < box_.hi[Axis::layer]; ++l)
    for (std::int64_t k = box_.lo[Axis::kv]; k < box_.hi[Axis::kv]; ++k)
      for (std::int64_t h = first_head_; h < end_head_; ++h) know_tokens(l, k, h);
  return true;
}

std::optional<std::uint64_t> Rows::fingerprint(const layout::Coord& row) const {
  const int width = layout::bits(dtype_);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(channels_ * width / 8), 0);
  for (std::int64_t c = 0; c < channels_; ++c) {
    layout::Coord at = row;
    at[Axis::channel] = c;
    const auto place = layout::locate(question_.bound.cache, layout::Component::data, at);
    if (!place || place->width != width) return std::nullopt;
    const auto bytes = question_.bound.stretches[static_cast<std::size_t>(place->allocation)].bytes;
    for (int b = 0; b < width; b += 8) {
      const std::uint8_t byte = bytes[static_cast<std::size_t>((place->bit + b) / 8)];
      const auto to = static_cast<std::size_t>((c * width + b) / 8);
      if (width < 8)
        codes[to] = static_cast<std::uint8_t>(codes[to] | ((byte >> (place->bit % 8)) & 0xF) << (c % 2 * 4));
      else
        codes[to] = byte;
    }
  }
  return kernels::digest(codes);
}

std::optional<RowName> Rows::at(const layout::Coord& row) const {
  const auto key = fingerprint(row);
  if (!key) return std::nullopt;
  const auto found = known_.find(*key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace kvcts::probe
