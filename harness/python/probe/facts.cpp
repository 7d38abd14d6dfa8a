#include "python/probe/facts.hpp"

#include <algorithm>

#include "diagnose/findings/findings.hpp"
#include "diagnose/findings/places.hpp"
#include "kernels/poison.hpp"
#include "python/probe/rows.hpp"

namespace kvcts::probe {

using layout::Axis;
using Kind = findings::Who::Kind;

namespace {

findings::Coord coord_of(const RowName& row) {
  using A = findings::Axis;
  findings::Coord out;
  out[A::component] = 0, out[A::channel] = 0;
  out[A::request] = row.generation, out[A::layer] = row.layer, out[A::kv] = row.kv, out[A::token] = row.token;
  out[A::head] = row.head;
  return out;
}

/// The codes of a row where the layout has them.
struct Row {
  struct Byte {
    int allocation;
    std::int64_t offset;
    std::uint8_t value, right;
    bool wrong() const { return value != right; }
  };
  std::vector<Byte> bytes;
};

std::optional<Row> row_at(const Question& q, layout::Coord at, const RowName& should, std::int64_t channels,
                          layout::Dtype dtype) {
  const kernels::RowId id{layout::Component::data, should.kv, should.layer, should.head, should.token, should.generation};
  const std::int64_t width = layout::bits(dtype) / 8;
  std::vector<std::uint8_t> right(static_cast<std::size_t>(channels * width));
  kernels::tag_row(kernels::row_key(q.content.key, id), id, dtype, 0, channels, right);
  Row out;
  for (at[Axis::channel] = 0; at[Axis::channel] < channels; ++at[Axis::channel]) {
    const auto place = layout::locate(q.bound.cache, layout::Component::data, at);
    if (!place || place->width != width * 8) return std::nullopt;
    const auto bytes = q.bound.stretches[static_cast<std::size_t>(place->allocation)].bytes;
    for (std::int64_t b = 0; b < width; ++b) {
      const std::int64_t offset = place->bit / 8 + b;
      out.bytes.push_back({place->allocation, offset, bytes[static_cast<std::size_t>(offset)],
                           right[static_cast<std::size_t>(at[Axis::channel] * width + b)]});
    }
  }
  return out;
}

/// Whose row it is: known by its first codes, the poison of its place, or one value.
findings::Who who_is(const Question& q, const Rows& rows, const layout::Coord& at, const Row& row) {
  findings::Who out;
  if (const auto name = rows.at(at)) {
    out.kind = Kind::element, out.at = coord_of(*name);
    return out;
  }
  const std::uint8_t first = row.bytes.front().value;
  const bool poison = q.content.poison && std::ranges::all_of(row.bytes, [&](const Row::Byte& byte) {
                        return byte.value == kernels::poison_byte(poison_of(q.content, byte.allocation), byte.offset);
                      });
  if (poison)
    out.kind = Kind::nothing;
  else if (std::ranges::all_of(row.bytes, [&](const Row::Byte& byte) { return byte.value == first; }))
    out.kind = Kind::constant, out.value = first;
  return out;
}

/// Of a row whose wrong bytes have no owner: wrong and right ones apart.
void add_apart(const Row& row, const findings::Fact& whole, std::vector<findings::Fact>& facts) {
  const auto width = static_cast<std::size_t>(whole.bits / 8);
  for (std::size_t begin = 0, end = 0; begin < row.bytes.size(); begin = end) {
    while (end < row.bytes.size() && row.bytes[end].wrong() == row.bytes[begin].wrong()) ++end;
    findings::Fact part = whole;
    part.offset = row.bytes[begin].offset, part.bytes = static_cast<std::int64_t>(end - begin);
    part.channels = static_cast<std::int64_t>((end - 1) / width - begin / width + 1);
    part.should.at[findings::Axis::channel] = static_cast<std::int64_t>(begin / width);
    part.should.byte = static_cast<std::uint8_t>(begin % width);
    part.wrong = row.bytes[begin].wrong();
    if (!part.wrong) part.is = part.should;
    facts.push_back(std::move(part));
  }
}

/// Whether a right row helps to say what sets the wrong ones apart: beside few, those that differ on one axis.
bool shows(const Damage& damage, const layout::Coord& right) {
  constexpr std::size_t few = 32;
  if (!damage.rows || damage.rows->size() > few) return true;
  return std::ranges::any_of(*damage.rows, [&](const auto& wrong) {
    int differing = 0;
    for (std::size_t i = 0; i < layout::axis_count; ++i) differing += wrong[i] != right.v[i];
    return differing <= 1;
  });
}

}  // namespace

std::vector<Finding> what_happened(const Question& q, const Damage& damage) {
  Rows rows(q);
  layout::Dtype dtype{};
  for (const layout::Plane& plane : q.bound.cache.planes)
    if (plane.component == layout::Component::data) dtype = plane.dtype;
  if (layout::bits(dtype) < 8) return {};
  findings::Names names;
  names.memories = {"the cache"};
  for (const layout::Plane& plane : q.bound.cache.planes) names.planes[0].push_back(findings::plane_of(plane));
  std::vector<findings::Fact> facts;
  const layout::Box& box = rows.box();
  constexpr std::size_t most_right = 1 << 12, most = 1 << 20;  // rows; right ones only show what sets the others apart
  const std::int64_t row_bytes = box.hi[Axis::channel] * layout::bits(dtype) / 8;
  bool known = false;
  std::size_t seen = 0;
  for (const bool damaged : {true, false}) {
    for (const kernels::BlockContent& block : rows.blocks()) {
      if (damage.blocks.contains(block.block) != damaged) continue;
      if (facts.size() > most) return {};
      if (!damaged && seen > most_right) break;
      layout::Coord at{};
      at[Axis::block] = block.block;
      for (at[Axis::layer] = box.lo[Axis::layer]; at[Axis::layer] < box.hi[Axis::layer]; ++at[Axis::layer])
        for (at[Axis::kv] = box.lo[Axis::kv]; at[Axis::kv] < box.hi[Axis::kv]; ++at[Axis::kv])
          for (std::int64_t t = 0; t < block.tokens; ++t)
            for (at[Axis::head] = box.lo[Axis::head]; at[Axis::head] < box.hi[Axis::head]; ++at[Axis::head]) {
              at[Axis::slot] = block.first_slot + t;
              const RowName should{at[Axis::layer], at[Axis::kv], block.first_token + t, at[Axis::head], block.generation};
              at[Axis::channel] = 0;
              const bool read = damaged && (!damage.rows || damage.rows->contains(at.v));
              seen += !damaged;
              if (!read && !shows(damage, at)) continue;
              const auto row = read ? row_at(q, at, should, box.hi[Axis::channel], dtype) : std::nullopt;
              const auto place = layout::locate(q.bound.cache, layout::Component::data, at);
              if (!place || place->width != layout::bits(dtype)) continue;
              findings::Fact fact;
              fact.offset = place->bit / 8;
              fact.channels = box.hi[Axis::channel], fact.bits = fact.is_bits = layout::bits(dtype);
              fact.should.kind = Kind::element, fact.should.at = coord_of(should);
              fact.is = fact.should;
              fact.bytes = row_bytes;
              if (const auto wrong = row ? std::ranges::count_if(row->bytes, &Row::Byte::wrong) : 0) {
                fact.wrong = true, fact.is = {};
                if (wrong * 2 >= row_bytes) {  // less is no other row's
                  if (!known) {
                    for (const auto& one : damage.rows ? *damage.rows : std::set<decltype(at.v)>{})
                      rows.want(layout::Coord{one});
                    if (!rows.know_declared()) return {};
                  }
                  known = true;
                  fact.is = who_is(q, rows, at, *row);
                  if (fact.is == fact.should) fact.is = {};  // it begins right
                }
              }
              fact.should.at[findings::Axis::block] = block.block, fact.should.at[findings::Axis::slot] = at[Axis::slot];
              if (fact.wrong && fact.is.kind == Kind::unknown)
                add_apart(*row, fact, facts);
              else
                facts.push_back(std::move(fact));
            }
    }
  }
  return findings::what_happened(facts, names);
}

}  // namespace kvcts::probe
