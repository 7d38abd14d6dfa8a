#include <algorithm>

#include "layout/checked.hpp"
#include "scene/machine/recorder.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Component;
using layout::checked::floor_div;

namespace {

bool wanted(Component component, const std::string& parts) {
  if (parts == "data") return component == Component::data;
  if (parts == "scales") return component != Component::data;
  return true;
}

bool picked(const Picks& picks, std::int64_t value) {
  return !picks || std::find(picks->begin(), picks->end(), value) != picks->end();
}

}  // namespace

const ViewLocator& Recorder::locator(const View& view) { return locators_.of(view); }

RequestNow& Recorder::request(const std::string& name) { return now_.requests.at(name); }

Table Recorder::table_of(const RequestNow& request, const ViewLocator& view,
                         const std::optional<std::vector<std::int64_t>>& instead) const {
  Table out;
  if (const auto found = request.tables.find(view.memory()); found != request.tables.end()) out = found->second;
  if (instead) out.ids = *instead;
  for (std::size_t i = out.positions.size(); i < out.ids.size(); ++i) {
    out.positions.push_back(out.positions.empty() ? static_cast<std::int64_t>(i) : out.positions.back() + 1);
  }
  return out;
}

std::vector<CodeRow> Recorder::rows(const ViewLocator& view, const RequestNow& request, const Table& table,
                                    const StepSelection& pick, const std::string& parts) const {
  std::vector<CodeRow> out;
  const std::int64_t n = view.block_size();
  for (const PlaneLocator& plane : view.planes()) {
    const Component component = plane.plane().component;
    if (!wanted(component, parts)) continue;
    const layout::Box& box = plane.domain();
    const auto each = [&](Axis axis, const Picks& picks, const auto& body) {
      for (std::int64_t i = box.lo[axis]; i < box.hi[axis]; ++i) {
        if (!picked(picks, i)) continue;
        if (const auto part = plane.part(axis, i)) body(i, *part);
      }
    };
    const auto add = [&](std::int64_t token, std::int64_t block, std::int64_t sum, bool whole) {
      each(Axis::kv, pick.kv, [&](std::int64_t kv, std::int64_t kv_part) {
        each(Axis::layer, pick.layers, [&](std::int64_t layer, std::int64_t layer_part) {
          each(Axis::head, pick.heads, [&](std::int64_t head, std::int64_t head_part) {
            CodeRow row{&plane, component, kv, layer, token, head, block, sum + kv_part + layer_part + head_part, 0, whole};
            settle(row, view, pick.channels);
            out.push_back(row);
          });
        });
      });
    };
    if (plane.unblocked()) {
      add(0, 0, 0, true);
      continue;
    }
    for (std::size_t i = 0; i < table.ids.size(); ++i) {
      if (table.ids[i] == no_block) continue;
      const auto block = plane.part(Axis::block, table.ids[i]);
      if (!block) continue;
      for (std::int64_t slot = 0; slot < n; ++slot) {
        const std::int64_t token = request.first_token + table.positions[i] * n + slot;
        if (pick.tokens ? !picked(pick.tokens, token) : token >= request.first_token + request.tokens) continue;
        if (const auto part = plane.part(Axis::slot, slot)) add(token, static_cast<std::int64_t>(i), *block + *part, false);
      }
    }
  }
  return out;
}

std::vector<CodeRow> Recorder::find_rows(const ViewLocator& view, const RequestNow& request, const Table& table,
                                         Component component, std::int64_t kv, std::int64_t layer, std::int64_t token,
                                         std::int64_t head) const {
  std::vector<CodeRow> out;
  const std::int64_t n = view.block_size();
  const std::int64_t position = floor_div(token - request.first_token, n);
  for (const PlaneLocator& plane : view.planes()) {
    if (plane.plane().component != component) continue;
    const auto k = plane.part(Axis::kv, kv), l = plane.part(Axis::layer, layer), h = plane.part(Axis::head, head);
    if (!k || !l || !h) continue;
    const layout::Box& box = plane.domain();
    if (kv >= box.hi[Axis::kv] || layer >= box.hi[Axis::layer] || head >= box.hi[Axis::head]) continue;
    CodeRow row{&plane, component, kv, layer, token, head, 0, *k + *l + *h, 0, plane.unblocked()};
    if (!row.whole) {
      const auto entry = std::find(table.positions.begin(), table.positions.end(), position);
      const auto index = static_cast<std::size_t>(entry - table.positions.begin());
      if (entry == table.positions.end() || index >= table.ids.size() || table.ids[index] == no_block) continue;
      const auto b = plane.part(Axis::block, table.ids[index]);
      const auto s = plane.part(Axis::slot, token - request.first_token - position * n);
      if (!b || !s) continue;
      row.sum += *b + *s;
      row.block = static_cast<std::int64_t>(index);
    }
    settle(row, view, std::nullopt);
    out.push_back(row);
  }
  return out;
}

std::vector<CodeRow> Recorder::find_scales(const ViewLocator& view, const RequestNow& request, const Table& table,
                                           Component component, std::int64_t kv, std::int64_t layer, std::int64_t token,
                                           std::int64_t head) const {
  const auto& planes = view.planes();
  if (std::none_of(planes.begin(), planes.end(), [&](const PlaneLocator& p) { return p.plane().component == component; }))
    return {};
  const auto only = [&](Axis axis, std::int64_t coordinate) {
    std::optional<std::int64_t> lo, hi;
    for (const PlaneLocator& plane : view.planes()) {
      if (plane.plane().component != component) continue;
      const layout::Box& box = plane.domain();
      lo = std::min(lo.value_or(box.lo[axis]), box.lo[axis]);
      hi = std::max(hi.value_or(box.hi[axis]), box.hi[axis]);
    }
    return lo && *hi == *lo + 1 ? *lo : coordinate;
  };
  kv = only(Axis::kv, kv), layer = only(Axis::layer, layer), head = only(Axis::head, head);
  const std::int64_t n = view.block_size(), first = request.first_token + floor_div(token - request.first_token, n) * n;
  for (std::int64_t at = token; at >= first; --at) {
    auto found = find_rows(view, request, table, component, kv, layer, at, head);
    if (!found.empty()) return found;
  }
  return {};
}

// Code that rounds addresses down does so at the start of a row; the inside of the row keeps its distances.
void Recorder::settle(CodeRow& row, const ViewLocator& view, const Picks& channels) const {
  if (view.align() <= 1) return;
  const std::int64_t first = channels && !channels->empty() ? channels->front() : row.plane->domain().lo[Axis::channel];
  const auto part = row.plane->part(Axis::channel, first);
  if (!part) return;
  const BitRange at = row.plane->at(row.sum + *part);
  const std::int64_t base = program_.buffers[static_cast<std::size_t>(at.buffer)].base * 8, unit = view.align() * 8;
  row.shift = floor_div(base + at.bit, unit) * unit - (base + at.bit);
}

std::optional<BitRange> Recorder::contiguous_bits(const CodeRow& row) const {
  if (!row.plane->contiguous()) return std::nullopt;
  const layout::Box& box = row.plane->domain();
  auto out = bits_at(row, box.lo[Axis::channel]);
  if (out) out->width *= static_cast<int>(box.hi[Axis::channel] - box.lo[Axis::channel]);
  return out;
}

std::optional<BitRange> Recorder::bits_at(const CodeRow& row, std::int64_t channel) const {
  const layout::Box& box = row.plane->domain();
  if (channel < box.lo[Axis::channel] || channel >= box.hi[Axis::channel]) return std::nullopt;
  const auto part = row.plane->part(Axis::channel, channel);
  if (!part) return std::nullopt;
  BitRange out = row.plane->at(row.sum + *part);
  out.bit += row.shift;
  return out;
}

}  // namespace kvcts::scenario
