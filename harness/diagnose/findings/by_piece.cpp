// Pieces of a transfer: runs of bytes that are adjacent on both sides, what an engine is asked to move at once. Code that
// moves bytes knows nothing of layers and heads: it fails by the length of a piece, its alignment or its place in the list.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "case/text.hpp"
#include "diagnose/findings/findings.hpp"

namespace kvcts::findings {

namespace {

struct Piece {
  int memory{0}, region{0}, from_region{0};
  std::int64_t offset{0}, from{0}, bytes{0};
  std::int64_t request{0}, block{0};
  std::int64_t right{-1};     ///< bytes in front of the first wrong one; -1: none is wrong
  std::int64_t as_before{0};  ///< bytes at its end that are as before the transfer
  std::int64_t missing() const { return right < 0 ? 0 : bytes - right; }
};
using Pieces = std::vector<Piece>;

/// Where content lies at the source.
struct SourceRange {
  std::array<std::int64_t, 6> row{};
  std::int64_t begin{0}, bytes{0};  ///< begin: bit of the row
  int region{0};
  std::int64_t offset{0};
  auto key() const { return std::pair(row, begin); }
};

std::array<std::int64_t, 6> row_of(const ByteSource& source) {
  return {source.at[ContentAxis::component], source.at[ContentAxis::request], source.at[ContentAxis::layer],
          source.at[ContentAxis::kv],        source.at[ContentAxis::token],   source.at[ContentAxis::head]};
}

/// Of content that several ranks hold, the first rank's.
std::vector<SourceRange> source_ranges_of(const std::vector<Extent>& extents, const Labels& labels) {
  std::vector<SourceRange> out;
  for (const Extent& extent : extents)
    if (labels.sources.contains(extent.memory) && extent.should.kind == ByteSource::Kind::element && extent.bits > 0)
      out.push_back(
          {row_of(extent.should), begin_of(extent.should, extent.bits), extent.bytes, extent.region, extent.offset});
  std::ranges::stable_sort(out, {}, &SourceRange::key);
  const auto again = std::ranges::unique(out, {}, &SourceRange::key);
  out.erase(again.begin(), again.end());
  return out;
}

/// In the order of their places; none if something has no home, or is wrong in another way than that nothing was written.
Pieces pieces_of(const std::vector<Extent>& extents, const Labels& labels, const std::vector<SourceRange>& source_ranges,
                 bool by_block) {
  std::vector<const Extent*> content;
  for (const Extent& extent : extents) {
    if (labels.sources.contains(extent.memory) || extent.memory >= labels.first_output) {
      if (extent.wrong && extent.memory < labels.first_output) return {};
      continue;
    }
    const bool meant = extent.should.kind == ByteSource::Kind::element && extent.bits > 0;
    if (extent.wrong && (!meant || extent.is.kind != ByteSource::Kind::nothing)) return {};
    if (meant) content.push_back(&extent);
  }
  std::ranges::stable_sort(content, {}, [](const Extent* f) { return std::tuple(f->memory, f->region, f->offset); });
  Pieces out;
  for (const Extent* extent : content) {
    for (std::int64_t done = 0, bytes = 0; done < extent->bytes; done += bytes) {
      const std::int64_t bit = begin_of(extent->should, extent->bits) + 8 * done;
      const auto next =
          std::ranges::upper_bound(source_ranges, std::pair(row_of(extent->should), bit), {}, &SourceRange::key);
      if (next == source_ranges.begin()) return {};
      const SourceRange& source_range = *std::prev(next);
      const std::int64_t ahead = (bit - source_range.begin) / 8;
      if (source_range.row != row_of(extent->should) || ahead >= source_range.bytes) return {};
      bytes = std::min(extent->bytes - done, source_range.bytes - ahead);
      const std::int64_t offset = extent->offset + done, from = source_range.offset + ahead,
                         block = extent->should.at[ContentAxis::block];
      const bool goes_on = !out.empty() && out.back().region == extent->region &&
                           out.back().from_region == source_range.region && out.back().offset + out.back().bytes == offset &&
                           out.back().from + out.back().bytes == from && (!by_block || out.back().block == block);
      if (!goes_on)
        out.push_back({extent->memory, extent->region, source_range.region, offset, from, 0,
                       extent->should.at[ContentAxis::request], block});
      Piece& piece = out.back();
      if (extent->wrong && piece.right < 0) piece.right = piece.bytes;
      const std::int64_t behind = extent->bytes - done - bytes;
      const std::int64_t as_before = extent->wrong ? bytes : std::clamp<std::int64_t>(extent->as_before - behind, 0, bytes);
      piece.as_before = as_before == bytes ? piece.as_before + bytes : as_before;
      piece.bytes += bytes;
    }
  }
  return out;
}

/// What pieces may have in common.
struct Property {
  enum class Of : std::uint8_t { length, alignment, order } of{};
  std::string words, others;
  std::vector<bool> has;
  std::int64_t unit{0};  ///< that the length is no multiple of
};

std::vector<Property> properties_of(const Pieces& pieces) {
  using Of = Property::Of;
  std::vector<Property> out;
  const auto add = [&](Of of, const std::string& words, auto&& holds,
                       const std::string& others = "the others") -> Property& {
    Property one{of, words, others, {}};
    for (std::size_t i = 0; i < pieces.size(); ++i) one.has.push_back(holds(i));
    return out.emplace_back(std::move(one));
  };
  constexpr std::int64_t most = 4096;
  for (std::int64_t k = 2; k <= most; k *= 2)
    add(
        Of::length,
        k == 2 ? "every piece of an odd length" : fmt::format("every piece whose length is no multiple of {}", k),
        [&](std::size_t i) { return pieces[i].bytes % k != 0; }, k == 2 ? "the even ones" : "the others")
        .unit = k;
  std::int64_t longest = 0, shortest = INT64_MAX;  // of those that are right
  for (const Piece& one : pieces)
    if (one.right < 0) longest = std::max(longest, one.bytes), shortest = std::min(shortest, one.bytes);
  add(
      Of::length, "every longer piece", [&](std::size_t i) { return pieces[i].bytes > longest; },
      fmt::format("those of up to {} bytes", text::thousands(longest)));
  add(
      Of::length, "every shorter piece", [&](std::size_t i) { return pieces[i].bytes < shortest; },
      fmt::format("those of {} bytes and more", text::thousands(shortest)));
  for (const auto& [end, side] : {std::pair(&Piece::offset, "destination"), std::pair(&Piece::from, "source")})
    for (std::int64_t k = 2; k <= most; k *= 2)
      add(Of::alignment, fmt::format("every piece whose place at the {} is no multiple of {}", side, k),
          [&, end = end](std::size_t i) { return pieces[i].*end % k != 0; });
  const auto rank = [&](std::size_t i) { return std::pair(pieces[i].memory, std::int64_t{0}); };
  const auto request = [&](std::size_t i) { return std::pair(pieces[i].memory, pieces[i].request); };
  const auto ends = [&](const char* of, auto&& owner) {
    std::map<std::pair<int, std::int64_t>, std::pair<std::size_t, std::size_t>> first_and_last;
    for (std::size_t i = 0; i < pieces.size(); ++i) first_and_last.try_emplace(owner(i), i, i).first->second.second = i;
    add(Of::order, fmt::format("the last piece of each {}", of),
        [&](std::size_t i) { return first_and_last.at(owner(i)).second == i; });
    add(Of::order, fmt::format("the first piece of each {}", of),
        [&](std::size_t i) { return first_and_last.at(owner(i)).first == i; });
  };
  ends("request", request), ends("rank", rank);
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].right >= 0) wrong.push_back(i);
  if (wrong.size() >= 3 && wrong[1] - wrong[0] > 1) {
    const std::size_t n = wrong[1] - wrong[0];
    add(Of::order, n == 2 ? "every other piece" : fmt::format("one piece in {}", n),
        [&](std::size_t i) { return i % n == wrong[0] % n; });
  }
  return out;
}

/// What became of the pieces with a property: how many bytes at the end of each were not written.
struct Effect {
  std::string words;
  bool part{true};
  std::function<std::int64_t(const Piece&)> missing;
};

std::vector<Effect> effects_of(const Pieces& pieces, const Property& property) {
  std::int64_t most = 0, kept = INT64_MAX;
  for (const Piece& one : pieces)
    if (one.right >= 0) most = std::max(most, one.missing()), kept = std::min(kept, one.right);
  const auto whole = [](const Piece& one) { return one.bytes; };
  const auto some = [=](const Piece& one) { return std::min(most, one.bytes); };
  std::vector<Effect> out{{"is not written", false, whole},
                          {fmt::format("is {} byte{} short", text::thousands(most), most == 1 ? "" : "s"), true, some}};
  if (const std::int64_t k = property.unit; k > 0) {
    std::ranges::reverse(out);
    if (most >= k) out.erase(out.begin());
    if (k > 2)
      out.insert(out.begin() + (most < k),
                 Effect{"ends at the multiple of it", true, [=](const Piece& one) { return one.bytes % k; }});
  } else if (property.of == Property::Of::length && kept > 0 && kept != INT64_MAX) {
    out.push_back({fmt::format("ends behind {} bytes", text::thousands(kept)), true,
                   [=](const Piece& one) { return std::max<std::int64_t>(0, one.bytes - kept); }});
  }
  return out;
}

/// Those with the property are so, as far as can be seen, and all others are right.
bool tells(const Pieces& pieces, const Property& property, const Effect& effect) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& one = pieces[i];
    const std::int64_t missing = property.has[i] ? effect.missing(one) : 0;
    if (one.missing() > missing || one.as_before < missing) return false;
  }
  return true;
}

}  // namespace

std::vector<PieceRule> piece_rules(const std::vector<Extent>& extents, const Labels& labels) {
  std::vector<PieceRule> out;
  // Cheap, and true of most failures.
  if (std::ranges::none_of(extents, [](const Extent& f) { return f.wrong && f.is.kind == ByteSource::Kind::nothing; }))
    return out;
  const std::vector<SourceRange> source_ranges = source_ranges_of(extents, labels);
  for (const bool by_block : {false, true}) {
    const Pieces pieces = pieces_of(extents, labels, source_ranges, by_block);
    const std::int64_t wrong = std::ranges::count_if(pieces, [](const Piece& one) { return one.right >= 0; });
    for (const Property& property : properties_of(pieces)) {
      const std::int64_t with = std::ranges::count(property.has, true), few = property.of == Property::Of::order ? 1 : 2;
      // One piece has every property: what two have in common, and two others have not, may be why.
      if (wrong < few || std::ssize(pieces) - with < 2 || with > 2 * wrong) continue;
      for (const Effect& effect : effects_of(pieces, property)) {
        if (!tells(pieces, property, effect)) continue;
        PieceRule rule;
        rule.of = static_cast<int>(property.of);
        rule.words = property.words + " " + effect.words;
        rule.message = fmt::format("{}; {} are whole", rule.words, property.others);
        rule.share = fmt::format("{} of {} pieces", text::thousands(with), text::thousands(std::ssize(pieces)));
        rule.part = effect.part;
        rule.whole = std::ranges::all_of(pieces, [](const Piece& one) { return one.right <= 0; });
        out.push_back(std::move(rule));
        if (!effect.part) break;
      }
    }
    if (!out.empty()) break;
  }
  return out;
}

}  // namespace kvcts::findings
