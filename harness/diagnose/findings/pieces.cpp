#include <algorithm>
#include <set>

#include "diagnose/findings/extents.hpp"

namespace kvcts::findings {

namespace {

void advance(ByteSource& source, int bits, std::int64_t bytes) {
  if (source.at[ContentAxis::channel] == none || bits == 0) return;
  const std::int64_t to = begin_of(source, bits) + 8 * bytes;
  source.at[ContentAxis::channel] = to / bits, source.byte = static_cast<std::uint8_t>(to % bits / 8);
}

bool is_row(const Extent& extent) { return extent.bits > 0 && extent.should.at[ContentAxis::channel] != none; }

/// Rows that are cut alike.
std::tuple<int, bool, std::int64_t> kind_of(const Extent& extent) {
  return {extent.memory, extent.should.kind == ByteSource::Kind::element, extent.should.at[ContentAxis::component]};
}

}  // namespace

std::vector<Extent> cut_alike(const std::vector<Extent>& extents) {
  constexpr std::size_t most = 1 << 18;  // a cut in every row at every byte is no help
  std::map<std::tuple<int, bool, std::int64_t>, std::set<std::int64_t>> cuts;
  for (const Extent& extent : extents) {
    if (!is_row(extent)) continue;
    const std::int64_t begin = begin_of(extent.should, extent.bits);
    auto& of = cuts[kind_of(extent)];
    of.insert(begin), of.insert(begin + 8 * extent.bytes);
    // Other bytes of each code, or codes of another width: also where either side's next code begins.
    if (!extent.wrong || extent.is.kind != ByteSource::Kind::element) continue;
    if (extent.is.byte == extent.should.byte && extent.is_bits == extent.bits) continue;
    for (std::int64_t done = 0; done < extent.bytes; ++done)
      if ((begin + 8 * done) % extent.bits == 0 ||
          (begin_of(extent.is, extent.is_bits) + 8 * done) % std::max(8, extent.is_bits) == 0)
        of.insert(begin + 8 * done);
  }
  std::vector<Extent> out;
  for (Extent extent : extents) {
    if (is_row(extent)) {
      const std::int64_t begin = begin_of(extent.should, extent.bits), end = begin + 8 * extent.bytes;
      const auto& of = cuts[kind_of(extent)];
      std::int64_t done = begin;
      for (auto cut = of.upper_bound(begin); cut != of.end() && *cut < end; ++cut) {
        Extent piece = extent;
        piece.bytes = (*cut - done) / 8;
        piece.channels = (*cut - 1) / extent.bits - done / extent.bits + 1;
        piece.as_before = std::clamp<std::int64_t>(extent.as_before - (end - *cut) / 8, 0, piece.bytes);
        extent.as_before = std::min(extent.as_before, (end - *cut) / 8);
        extent.offset += piece.bytes, extent.bytes -= piece.bytes, extent.from_offset += piece.bytes;
        advance(extent.should, extent.bits, piece.bytes);
        if (extent.is.kind == ByteSource::Kind::element) advance(extent.is, extent.is_bits, piece.bytes);
        done = *cut;
        out.push_back(std::move(piece));
      }
      extent.channels = (end - 1) / extent.bits - done / extent.bits + 1;
    }
    out.push_back(std::move(extent));
    if (out.size() > most) return extents;
  }
  return out;
}

}  // namespace kvcts::findings
