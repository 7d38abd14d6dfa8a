#include "run/checker/elements.hpp"

#include <algorithm>
#include <cstring>

#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

using layout::Axis;

void each_element(const ResolvedCase& c, const RegionRef& region, bool transferred,
                  const std::function<void(const CheckedElement&)>& visit) {
  const auto& group = c.groups.at(static_cast<std::size_t>(region.group));
  const auto& side = region.side == Side::producer ? group.producer : group.consumer;
  const auto& truth = side.ranks.at(static_cast<std::size_t>(region.rank)).truth;
  const std::int64_t size = side.ranks.at(0).geometry.block_size, base = oracle::file_shape(c, region.bytes).base * 8;
  for (const auto& plane : truth.planes) {
    if (plane.allocation != region.allocation) continue;
    const auto box = layout::domain(plane);
    const bool blocked = std::any_of(plane.modes.begin(), plane.modes.end(), [](auto& m) { return m.axis == Axis::block; });
    CheckedElement e;
    e.plane = &plane, e.width = layout::bits(plane.dtype);
    const auto row = [&] {
      for (e.at[Axis::layer] = box.lo[Axis::layer]; e.at[Axis::layer] < box.hi[Axis::layer]; ++e.at[Axis::layer])
        for (e.at[Axis::kv] = box.lo[Axis::kv]; e.at[Axis::kv] < box.hi[Axis::kv]; ++e.at[Axis::kv])
          for (e.at[Axis::head] = box.lo[Axis::head]; e.at[Axis::head] < box.hi[Axis::head]; ++e.at[Axis::head])
            for (e.at[Axis::channel] = box.lo[Axis::channel]; e.at[Axis::channel] < box.hi[Axis::channel];
                 ++e.at[Axis::channel]) {
              const auto where = layout::locate(plane, e.at);
              if (!where) continue;
              e.bit = base + where->bit;
              visit(e);
            }
    };
    bool visited = false;  // a plane without blocks has one value
    for (const auto& request : group.requests) {
      if (visited && !blocked) break;
      if (transferred && !request.transfer) continue;
      const auto& blocks = region.side == Side::producer ? request.producer_blocks : request.consumer_blocks;
      e.request = &request;
      for (e.token = 0; e.token < (blocked ? request.tokens : 1); ++e.token) {
        if (blocked) {
          e.at[Axis::block] = blocks.at(static_cast<std::size_t>(e.token / size));
          e.at[Axis::slot] = e.token % size;
        } else {
          e.at[Axis::block] = plane.origin[Axis::block], e.at[Axis::slot] = plane.origin[Axis::slot];
        }
        row();
        visited = true;
      }
    }
  }
}

std::uint32_t read_code(std::span<const std::uint8_t> file, std::int64_t bit, int width) {
  const auto at = static_cast<std::size_t>(bit / 8);
  if (width < 8) return file[at] >> (bit % 8) & 0xFu;
  std::uint32_t code = 0;
  std::memcpy(&code, file.data() + at, static_cast<std::size_t>(width / 8));
  return code;
}

void write_code(std::span<std::uint8_t> file, std::int64_t bit, int width, std::uint32_t code) {
  const auto at = static_cast<std::size_t>(bit / 8);
  if (width < 8)
    file[at] = static_cast<std::uint8_t>((file[at] & ~(0xF << (bit % 8))) | ((code & 0xF) << (bit % 8)));
  else
    std::memcpy(file.data() + at, &code, static_cast<std::size_t>(width / 8));
}

}  // namespace kvcts::checker
