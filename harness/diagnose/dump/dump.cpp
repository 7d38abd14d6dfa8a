#include "diagnose/dump/dump.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "diagnose/region_extents.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/oracle/tail.hpp"

namespace kvcts::dump {

using Kind = Provenance::Kind;
using Bytes = std::vector<std::uint8_t>;

namespace {

Bytes image(const ResolvedCase& c, const RegionRef& region, decltype(oracle::write_initial) write) {
  Bytes out(static_cast<std::size_t>(oracle::file_shape(c, region.bytes).size));
  write(c, region, 0, out);
  return out;
}

/// The bytes found where they are expected, or may have come along with a request's last block from any replica; elsewhere
/// those expected.
Bytes masked(const ResolvedCase& c, const RegionRef& region, std::span<const std::span<const std::uint8_t>> producer,
             const Bytes& expected, const Bytes& found) {
  Bytes out = expected;
  for (std::size_t replica = 0; replica < c.groups.at(static_cast<std::size_t>(region.group)).producer.ranks.size();
       ++replica) {
    Bytes whole = expected;
    if (!oracle::Tail(c, region).bring_along(producer, whole, replica)) break;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (found[i] == whole[i]) out[i] = found[i];
  }
  return out;
}

/// oracle::where(), for all channels of a row.
std::string place_text(const ResolvedCase& c, const RegionRef& region, std::int64_t offset) {
  std::string out = oracle::where(c, region, offset);
  if (const auto at = out.find(" channel "); at != std::string::npos) out.erase(at, out.find(" (", at) - at);
  return out;
}

/// `provenance` begins a row or poison; the result is of this byte of it.
Provenance along(const ResolvedCase& c, Provenance provenance, const RegionRef& region, std::int64_t offset) {
  if (provenance.kind == Kind::poison) provenance.offset = provenance.last_offset = offset;
  if (provenance.kind != Kind::element) return provenance;
  const Provenance location = element_run_at(rank_of(c, region).truth, region.allocation, offset).value().element;
  provenance.channel = location.channel, provenance.last_channel = location.last_channel;
  if (provenance.rank < 0) provenance.rank = region.rank;
  return provenance;
}

}  // namespace

RegionRef region_of(const ResolvedCase& resolved, const std::string& region) {
  std::string names;
  std::vector<RegionRef> tails;
  for (const Side side : {Side::consumer, Side::producer}) {
    std::string of_side;
    const std::size_t before = tails.size();
    for (const RegionRef& r : regions(resolved, side)) {
      of_side += r.name + ", ";
      if (r.name == region) return r;
      if (before == 0 && r.name.ends_with("/" + region)) tails.push_back(r);
    }
    names = of_side + names;
  }
  if (tails.empty())
    throw std::runtime_error("no region is called '" + region + "'; there are " + names.substr(0, names.size() - 2));
  if (tails.size() > 1)
    throw std::runtime_error("region '" + region + "' is ambiguous; write it in full, e.g. " + tails.front().name);
  return tails.front();
}

std::vector<ComparedRange> read_window(const ResolvedCase& c, const Window& window, const Bytes& found) {
  const RegionRef region = region_of(c, window.region);
  const auto shape = oracle::file_shape(c, region.bytes);
  const std::int64_t begin = shape.base + window.offset;
  if (window.bytes < 1 || begin < 0 || begin + window.bytes > shape.size) {
    throw std::runtime_error(region.name + " has bytes " + std::to_string(-shape.base) + " to " +
                             std::to_string(shape.size - shape.base) + " (guards included), the window is " +
                             std::to_string(window.offset) + " to " + std::to_string(window.offset + window.bytes));
  }
  using diagnose::RegionExtents;
  const auto expect_at_most = [](std::size_t most, const std::string& what, std::size_t is) {
    if (is > most)
      throw std::runtime_error("this case has more than " + std::to_string(most) + what +
                               "; `kvcts minimize` makes a smaller one of it");
  };
  const std::vector<RegionRef> sources = regions(c, Side::producer);
  std::int64_t searched = 0;
  for (const RegionRef& r : sources) searched += oracle::file_shape(c, r.bytes).size;
  expect_at_most(RegionExtents::cut_whole >> 20, " MiB to search",
                 static_cast<std::size_t>(std::max(searched, shape.size)) >> 20);
  std::vector<Bytes> producer;
  for (const RegionRef& r : sources) producer.push_back(image(c, r, oracle::write_initial));
  const std::vector<std::span<const std::uint8_t>> views(producer.begin(), producer.end());
  const Bytes before = image(c, region, oracle::write_initial), expected = image(c, region, oracle::write_expected);
  Bytes file = expected;
  std::ranges::copy(found, file.begin() + begin);
  const Bytes right = masked(c, region, views, expected, file);
  RegionExtents extents(c, views);
  extents.add({region, before, expected, file});
  extents.search();
  const auto& all = extents.extents(0);
  expect_at_most(RegionExtents::most_extents, " rows in this region", all.size());

  const bool empty = found.empty() && region.side == Side::consumer && c.connector.kind != "none";
  std::vector<ComparedRange> out;
  auto one = all.begin();
  for (std::int64_t at = begin; at < begin + window.bytes; ++at) {
    while (one != all.end() && one->at + one->bytes <= at) ++one;
    const std::int64_t offset = at - shape.base;
    ComparedRange byte{offset, 1, place_text(c, region, offset), {}, {}, false};
    if (empty || one == all.end() || at < one->at) {  // right, and no content
      byte.found.kind = Kind::poison, byte.found.region = region.name;
      byte.found = byte.expected = along(c, byte.found, region, offset);
    } else {
      byte.expected = along(c, one->should, region, offset);
      byte.found = one->source < 0 ? one->wrong ? one->did : byte.expected
                                   : along(c, one->did, sources[static_cast<std::size_t>(one->source)],
                                           one->source_offset + at - one->at);
      byte.wrong =
          one->wrong && !std::equal(file.begin() + one->at, file.begin() + one->at + one->bytes, right.begin() + one->at);
    }
    append(out, std::move(byte));
  }
  return out;
}

}  // namespace kvcts::dump
