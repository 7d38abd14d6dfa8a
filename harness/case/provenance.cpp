#include "case/provenance.hpp"

#include <algorithm>

namespace kvcts {

using nlohmann::json;
using Kind = Provenance::Kind;

namespace {

std::string range(std::int64_t first, std::int64_t last) {
  return std::to_string(first) + (last > first ? ".." + std::to_string(last) : "");
}

std::string hex(std::uint8_t value) {
  static constexpr char digits[] = "0123456789abcdef";
  return std::string("0x") + digits[value >> 4] + digits[value & 15];
}

}  // namespace

std::optional<ElementRun> element_run_at(const layout::Cache& cache, int allocation, std::int64_t offset) {
  using layout::Axis;
  if (offset < 0 || offset >= cache.allocations.at(static_cast<std::size_t>(allocation)).bytes) return std::nullopt;
  const auto found = layout::inverse(cache, allocation, offset * 8);
  if (found.empty()) return std::nullopt;
  const auto& plane = cache.planes.at(static_cast<std::size_t>(found.front().plane));
  const auto& at = found.front().coord;
  ElementRun out;
  out.bits = layout::bits(plane.dtype);
  Provenance& provenance = out.element;
  provenance.kind = Provenance::Kind::element;
  if (plane.component != layout::Component::data)
    provenance.component = plane.component == layout::Component::scale ? "scale" : "global scale";
  provenance.kv = at[Axis::kv], provenance.layer = at[Axis::layer], provenance.block = at[Axis::block],
  provenance.slot = at[Axis::slot];
  provenance.head = at[Axis::head];
  provenance.channel = at[Axis::channel], provenance.last_channel = provenance.channel + (out.bits == 4 ? 1 : 0);
  std::int64_t run = out.bits;
  for (const auto& m : plane.modes)
    if (m.axis == Axis::channel && m.stride == out.bits)
      run = (m.extent - (at[Axis::channel] - plane.origin[Axis::channel]) / m.step % m.extent) * out.bits;
  out.run = std::max<std::int64_t>(1, run / 8);
  return out;
}

bool extend(Provenance& run, const Provenance& next) {
  Provenance same = next;
  same.channel = run.channel, same.last_channel = run.last_channel, same.offset = run.offset,
  same.last_offset = run.last_offset;
  if (!(same == run)) return false;
  if (run.kind == Kind::element) {
    if (next.channel > run.last_channel + 1 || next.channel < run.channel || next.last_channel < run.last_channel)
      return false;
    run.last_channel = next.last_channel;
  }
  if (run.kind == Kind::poison) {
    if (next.offset != run.last_offset + 1) return false;
    run.last_offset = next.last_offset;
  }
  return true;
}

std::string to_string(const Provenance& provenance) {
  switch (provenance.kind) {
    case Kind::unknown:
      return "unknown";
    case Kind::constant:
      return hex(provenance.value);
    case Kind::nothing:
    case Kind::before:
    case Kind::follows:
    case Kind::other:
      return provenance.text;
    case Kind::poison: {
      const bool below = provenance.offset < 0;
      return "poison of " + provenance.region + (below ? " - " : " + ") +
             (below ? range(-provenance.last_offset, -provenance.offset) : range(provenance.offset, provenance.last_offset));
    }
    case Kind::element:
      break;
  }
  std::string out = provenance.component.empty() ? "" : provenance.component + " ";
  out += provenance.kv == 0 ? "K" : provenance.kv == 1 ? "V" : "kv " + std::to_string(provenance.kv);
  out += " layer " + std::to_string(provenance.layer);
  if (provenance.block >= 0)
    out += " block " + std::to_string(provenance.block) + " slot " + std::to_string(provenance.slot);
  else if (provenance.token >= 0)
    out += " token " + std::to_string(provenance.token);
  if (provenance.component != "global scale")
    out += " head " + std::to_string(provenance.head) + (provenance.component == "scale" ? " group " : " channel ") +
           range(provenance.channel, provenance.last_channel);
  out += ", generation " + std::to_string(provenance.generation);
  if (provenance.block >= 0 && provenance.token >= 0) out += ", token " + std::to_string(provenance.token);
  if (!provenance.from.empty() || provenance.rank >= 0)
    out += ", from" + (provenance.from.empty() ? "" : " " + provenance.from) +
           (provenance.rank < 0 ? "" : " rank " + std::to_string(provenance.rank));
  return out;
}

json place_json(const Provenance& provenance) {
  if (provenance.kind != Kind::element || provenance.block < 0 || !provenance.component.empty())
    return to_string(provenance);
  return {provenance.rank < 0 ? 0 : provenance.rank,
          provenance.layer,
          provenance.kv,
          provenance.block,
          provenance.slot,
          provenance.head,
          provenance.channel,
          provenance.generation};
}

void append(std::vector<ComparedRange>& extents, ComparedRange byte) {
  if (!extents.empty()) {
    ComparedRange& last = extents.back();
    Provenance expected = last.expected, found = last.found;
    if (last.offset + last.bytes == byte.offset && last.place == byte.place && last.wrong == byte.wrong &&
        extend(expected, byte.expected) && extend(found, byte.found)) {
      last.expected = std::move(expected), last.found = std::move(found), last.bytes += byte.bytes;
      return;
    }
  }
  extents.push_back(std::move(byte));
}

}  // namespace kvcts
