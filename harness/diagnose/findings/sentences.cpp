#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "case/text.hpp"
#include "diagnose/findings/findings.hpp"

namespace kvcts::findings {

namespace {

constexpr std::size_t most_listed = 6;

std::string one(ContentAxis axis, std::int64_t value, const Labels& labels) {
  if (axis == ContentAxis::kv) return value == 0 ? "K" : value == 1 ? "V" : fmt::format("kv {}", value);
  if (axis == ContentAxis::component) return value == 0 ? "data" : value == 1 ? "scales" : "global scales";
  if (axis == ContentAxis::request) {
    const auto name = labels.requests.find(value);
    return name == labels.requests.end() ? fmt::format("generation {}", value) : name->second;
  }
  return std::to_string(value);
}

std::string range(std::int64_t first, std::int64_t last) {
  return first == last ? std::to_string(first) : fmt::format("{}..{}", first, last);
}

/// "0..3, 5"; of very many stretches the first ones and their number.
std::string list(ContentAxis axis, const std::vector<std::int64_t>& values, const Labels& labels) {
  if (axis == ContentAxis::kv || axis == ContentAxis::component || axis == ContentAxis::request) {
    std::string out;
    for (std::size_t i = 0; i < values.size(); ++i)
      out += (i == 0 ? "" : i + 1 == values.size() ? " and " : ", ") + one(axis, values[i], labels);
    return out;
  }
  std::vector<std::string> ranges;
  for (std::size_t i = 0, begin = 0; i < values.size(); ++i) {
    if (i + 1 < values.size() && values[i + 1] == values[i] + 1) continue;
    ranges.push_back(range(values[begin], values[i]));
    begin = i + 1;
  }
  if (ranges.size() <= most_listed) return fmt::format("{}", fmt::join(ranges, ", "));
  return fmt::format("{} and {} more", fmt::join(ranges.begin(), ranges.begin() + most_listed, ", "),
                     ranges.size() - most_listed);
}

std::string bytes_text(std::int64_t bytes) { return text::thousands(bytes) + (bytes == 1 ? " byte" : " bytes"); }

std::string_view word(ContentAxis axis) {
  constexpr std::array<std::string_view, axis_count> words{"component", "request", "layer", "K/V",    "token",
                                                           "block",     "slot",    "head",  "channel"};
  return words[static_cast<std::size_t>(axis)];
}

std::string named(ContentAxis axis, const std::vector<std::int64_t>& values, const Labels& labels) {
  if (axis == ContentAxis::kv || axis == ContentAxis::component) return list(axis, values, labels);
  return fmt::format("{}{} {}", word(axis), values.size() == 1 ? "" : "s", list(axis, values, labels));
}

bool all_known(const std::vector<std::int64_t>& values) { return !values.empty() && values.front() != none; }

/// Where: the axes on which not all of the memory is meant.
std::string scope_text(const std::vector<Extent>& extents, const ExtentBox& box, const Scope& universe,
                       const Labels& labels) {
  const Extent& first = extents[box.extents.front()];
  std::string out = labels.memories.at(static_cast<std::size_t>(first.memory));
  const auto add = [&](const std::string& text) { out += ", " + text; };
  const bool content = first.should.kind == ByteSource::Kind::element;
  if (!content && !all_known(box.scope.at(ContentAxis::block)) && !all_known(box.scope.at(ContentAxis::layer))) {
    std::int64_t begin = first.offset, end = first.offset;
    for (const std::size_t i : box.extents) {
      begin = std::min(begin, extents[i].offset);
      end = std::max(end, extents[i].offset + extents[i].bytes);
    }
    if (first.region >= 0) out = labels.regions.at(static_cast<std::size_t>(first.region));
    return out + ", byte" + (end - begin == 1 ? " " : "s ") + range(begin, end - 1);
  }
  const auto narrow = [&](ContentAxis axis) {
    const auto& values = box.scope.at(axis);
    return all_known(values) && values != universe.at(axis);
  };
  for (const ContentAxis axis : {ContentAxis::request, ContentAxis::component, ContentAxis::layer, ContentAxis::kv})
    if (narrow(axis)) add(named(axis, box.scope.at(axis), labels));
  if (content && (narrow(ContentAxis::token) || narrow(ContentAxis::block)) && all_known(box.scope.at(ContentAxis::token))) {
    add(named(ContentAxis::token, box.scope.at(ContentAxis::token), labels));
    if (all_known(box.scope.at(ContentAxis::block)))
      out += " (" + named(ContentAxis::block, box.scope.at(ContentAxis::block), labels) + ")";
  } else if (!content && all_known(box.scope.at(ContentAxis::block))) {
    add(named(ContentAxis::block, box.scope.at(ContentAxis::block), labels));
    if (narrow(ContentAxis::slot)) add(named(ContentAxis::slot, box.scope.at(ContentAxis::slot), labels));
  }
  if (narrow(ContentAxis::head)) add(named(ContentAxis::head, box.scope.at(ContentAxis::head), labels));
  if (narrow(ContentAxis::channel)) add(named(ContentAxis::channel, box.scope.at(ContentAxis::channel), labels));
  return out;
}

/// "token 5 is token 9" in ranges.
std::string table_text(ContentAxis axis, const AxisMap& map, const Labels& labels) {
  std::vector<std::string> parts;
  const auto& table = map.table;
  for (std::size_t i = 0, begin = 0; i < table.size(); ++i) {
    const bool goes_on =
        i + 1 < table.size() && table[i + 1].first == table[i].first + 1 && table[i + 1].second == table[i].second + 1;
    if (goes_on) continue;
    if (begin == i)
      parts.push_back(fmt::format("{} for {}", one(axis, table[i].second, labels), one(axis, table[i].first, labels)));
    else
      parts.push_back(
          fmt::format("{} for {}", range(table[begin].second, table[i].second), range(table[begin].first, table[i].first)));
    begin = i + 1;
  }
  const std::size_t shown = std::min(parts.size(), most_listed);
  return fmt::format("{}{}", fmt::join(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     parts.size() > shown ? fmt::format(" and {} more", parts.size() - shown) : "");
}

/// What is there on one axis, "head 0", "layer + 1", "tokens 0..15 for 16..31".
std::string map_text(ContentAxis axis, const AxisMap& map, const std::vector<std::int64_t>& should, const Labels& labels) {
  const bool words_only = axis == ContentAxis::kv || axis == ContentAxis::component || axis == ContentAxis::request;
  const std::string_view what = word(axis);
  switch (map.kind) {
    case AxisMap::Kind::same:
      return "";
    case AxisMap::Kind::always: {
      const std::string value = one(axis, map.by, labels);
      if (axis != ContentAxis::request || labels.requests.contains(map.by))
        return words_only && axis != ContentAxis::request ? value : fmt::format("{} {}", what, value);
      return value;
    }
    case AxisMap::Kind::shift:
      if (should.size() > 1 && should.back() - should.front() + 1 == static_cast<std::int64_t>(should.size()) && !words_only)
        return fmt::format("{}s {}", what, range(should.front() + map.by, should.back() + map.by));
      return fmt::format("{} {} {}", what, map.by < 0 ? '-' : '+', std::abs(map.by));
    case AxisMap::Kind::multiple:
      return fmt::format("{} x {}", what, map.by);
    case AxisMap::Kind::remainder:
      return fmt::format("{} modulo {}", what, map.by);
    case AxisMap::Kind::rounded:
      return fmt::format("{} rounded down to a multiple of {}", what, map.by);
    case AxisMap::Kind::reversed:
      return fmt::format("{}s in reverse", what);
    case AxisMap::Kind::exchange:
      if (map.table.size() == 2)
        return fmt::format("{}{} and {} exchanged", words_only ? "" : std::string(what) + "s ",
                           one(axis, map.table[0].first, labels), one(axis, map.table[1].first, labels));
      return fmt::format("{}s exchanged: {}", what, table_text(axis, map, labels));
    case AxisMap::Kind::table:
      return fmt::format("{}{}", words_only ? "" : std::string(what) + "s ", table_text(axis, map, labels));
    case AxisMap::Kind::tangle:
      return fmt::format("other {}s in no simple order", what);
  }
  return "";
}

/// Whose content it is, where none was meant.
std::string content_text(const std::vector<Extent>& extents, const ExtentBox& box, const Labels& labels) {
  std::vector<std::string> parts;
  for (const ContentAxis axis : {ContentAxis::component, ContentAxis::request, ContentAxis::layer, ContentAxis::kv,
                                 ContentAxis::token, ContentAxis::head}) {
    std::vector<std::int64_t> values;
    for (const std::size_t i : box.extents) values.push_back(extents[i].is.at[axis]);
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    if (axis == ContentAxis::component && values == std::vector<std::int64_t>{0}) continue;
    if (!all_known(values)) continue;
    const bool unnamed = axis == ContentAxis::request && !labels.requests.contains(values.front());
    parts.push_back(unnamed ? list(axis, values, labels) : named(axis, values, labels));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string what_text(const std::vector<Extent>& extents, const ExtentBox& box, const std::map<ContentAxis, AxisMap>& maps,
                      const Labels& labels) {
  const Extent& extent = extents[box.extents.front()];
  const bool content = extent.should.kind == ByteSource::Kind::element;
  const std::string instead = content ? ""
                              : extent.should.kind == ByteSource::Kind::constant
                                  ? fmt::format(" instead of 0x{:02x}", extent.should.value)
                                  : "";
  switch (extent.is.kind) {
    case ByteSource::Kind::nothing:
      return content || !instead.empty() ? "not written" + instead : "as before";
    case ByteSource::Kind::constant:
      return fmt::format("{} 0x{:02x}{}", content ? "holds" : "overwritten with", extent.is.value, instead);
    case ByteSource::Kind::poison:
      return "holds what was in " + extent.is.text + " before anything was written";
    case ByteSource::Kind::mixed:
      return "holds " + (extent.is.text.empty() ? "parts of several elements" : extent.is.text);
    case ByteSource::Kind::follows:
      return "as it lies in " + extent.is.text;
    case ByteSource::Kind::unknown:
      return (content ? "holds bytes " : "overwritten with bytes ") +
             (extent.is.text.empty() ? "of unknown origin" : extent.is.text) + instead;
    case ByteSource::Kind::element:
      break;
  }
  if (extent.should.kind == ByteSource::Kind::constant) return "still holds " + content_text(extents, box, labels) + instead;
  if (!content) return "holds " + content_text(extents, box, labels) + ", where nothing was meant";
  std::vector<std::string> parts;
  for (const auto& [axis, map] : maps)
    if (map.kind != AxisMap::Kind::always || map.by != none)
      parts.push_back(map_text(axis, map, box.scope.at(axis), labels));
  if (extent.is.byte != extent.should.byte) parts.emplace_back("the bytes of each code in another order");
  if (extent.is.times != extent.should.times)
    parts.push_back(extent.is.times == 0 ? "numbers without their scale"
                                         : fmt::format("numbers scaled {} times", extent.is.times));
  if (parts.empty()) parts.emplace_back("the right elements with other bits");
  return fmt::format("holds {}", fmt::join(parts, ", "));
}

/// What it is, whatever the numbers: "not written by layer, K/V".
std::string kind_of(const std::vector<Extent>& extents, const ExtentBox& box, const std::map<ContentAxis, AxisMap>& maps,
                    const Scope& universe) {
  constexpr std::array<std::string_view, 7> became{"not written",    "other",   "a constant",   "from elsewhere",
                                                   "parts of codes", "as read", "unknown bytes"};
  const Extent& first = extents[box.extents.front()];
  std::string out(became[static_cast<std::size_t>(first.is.kind)]);
  for (const auto& [axis, map] : maps) out += fmt::format(" {}", word(axis));
  if (first.should.kind != ByteSource::Kind::element) return out + " where nothing was meant";
  std::string_view by = " by ";
  for (const ContentAxis axis : {ContentAxis::request, ContentAxis::component, ContentAxis::layer, ContentAxis::kv,
                                 ContentAxis::token, ContentAxis::head, ContentAxis::channel}) {
    const auto &values = box.scope.at(axis), &all = universe.at(axis);
    if (all_known(values) && values != all) out += fmt::format("{}{}", std::exchange(by, ", "), word(axis));
  }
  return out;
}

struct Parted {
  std::string where;
  std::int64_t bytes{0};
};

/// The memory, and the axes on which not all of it is meant, of what should be there or of what is; none of `but`.
Parted parted(const std::vector<Extent>& extents, const std::vector<std::size_t>& some, const Scope& universe,
              const Labels& labels, const std::set<ContentAxis>& but, ByteSource Extent::* source = &Extent::should) {
  Parted out;
  std::map<ContentAxis, std::set<std::int64_t>> sets;
  for (const std::size_t i : some) {
    out.bytes += extents[i].bytes;
    for (int a = 0; a < axis_count; ++a)
      sets[static_cast<ContentAxis>(a)].insert((extents[i].*source).at[static_cast<ContentAxis>(a)]);
  }
  out.where = labels.memories.at(static_cast<std::size_t>(extents[some.front()].memory));
  for (const ContentAxis axis :
       {ContentAxis::request, ContentAxis::component, ContentAxis::layer, ContentAxis::kv, ContentAxis::head}) {
    const std::vector<std::int64_t> values(sets[axis].begin(), sets[axis].end());
    if (!but.contains(axis) && all_known(values) && values != universe.at(axis))
      out.where += ", " + named(axis, values, labels);
  }
  return out;
}

}  // namespace

Finding to_string(const FlatCopy& flat, const Labels& labels) {
  const auto extent = [&](int region, std::int64_t offset) {
    return fmt::format("{}, byte{} {}", labels.regions.at(static_cast<std::size_t>(region)), flat.length == 1 ? "" : "s",
                       range(offset, offset + flat.length - 1));
  };
  const std::string share = flat.bytes == flat.length
                                ? bytes_text(flat.bytes)
                                : fmt::format("{} of {} bytes", text::thousands(flat.bytes), text::thousands(flat.length));
  return {fmt::format("{}: holds {} ({})", extent(flat.region, flat.offset), extent(flat.from, flat.from_offset), share),
          flat.bytes, false, "bytes of another place"};
}

Finding to_string(const std::vector<Extent>& extents, const Transposition& turned, const Scope& universe,
                  const Labels& labels) {
  const Parted part = parted(extents, turned.extents, universe, labels, {turned.a, turned.b});
  return {fmt::format("{}: holds {}s and {}s in the other order ({})", part.where, word(turned.a), word(turned.b),
                      bytes_text(part.bytes)),
          part.bytes, false, fmt::format("{}s and {}s in the other order", word(turned.a), word(turned.b))};
}

Finding to_string(const std::vector<Extent>& extents, const StrideFit& fit, const Scope& universe, const Labels& labels) {
  const Parted part = parted(extents, fit.extents, universe, labels, {}, fit.read ? &Extent::should : &Extent::is);
  const std::string& region = labels.regions.at(static_cast<std::size_t>(fit.region));
  const std::string in = !fit.read ? "" : " in " + (fit.several ? region.substr(0, region.find('/')) : region);
  const std::string verb = fit.read ? "was read with" : "content lies with";
  if (fit.shift != 0)
    return {
        fmt::format("{}: {} {} bytes {} than declared{} ({})", part.where, fit.read ? "was read" : "content lies",
                    text::thousands(std::abs(fit.shift)), fit.shift < 0 ? "nearer" : "further", in, bytes_text(part.bytes)),
        part.bytes, false, verb + " a distance"};
  std::vector<std::string> found, declared;
  std::string kind = verb + " strides of";
  for (const auto& [axis, stride] : fit.strides) {
    const auto known = fit.declared.find(axis);
    if (known != fit.declared.end() && known->second == stride) continue;
    const std::string what = axis == ContentAxis::kv ? "K and V" : fmt::format("{}s", word(axis));
    kind += " " + what;
    found.push_back(fmt::format("{} {}{}", what, text::thousands(stride), found.empty() ? " bytes apart" : ""));
    if (known != fit.declared.end()) declared.push_back(what + " " + text::thousands(known->second));
  }
  const std::string meant = declared.empty() ? "" : fmt::format("; declared: {}", fmt::join(declared, ", "));
  return {fmt::format("{}: {} {}{}{} ({})", part.where, verb, fmt::join(found, ", "), in, meant, bytes_text(part.bytes)),
          part.bytes, false, kind};
}

Finding to_string(const std::vector<Extent>& extents, const ExtentBox& box, const std::map<ContentAxis, AxisMap>& maps,
                  const Scope& universe, const Labels& labels) {
  const std::string share =
      box.others == 0 ? bytes_text(box.bytes)
                      : fmt::format("{} of {} bytes", text::thousands(box.bytes), text::thousands(box.bytes + box.others));
  return {
      fmt::format("{}: {} ({})", scope_text(extents, box, universe, labels), what_text(extents, box, maps, labels), share),
      box.bytes, false, kind_of(extents, box, maps, universe)};
}

}  // namespace kvcts::findings
