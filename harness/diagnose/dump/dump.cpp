#include "diagnose/dump/dump.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "layout/layout.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/oracle/tail.hpp"

namespace kvcts::dump {

using layout::Axis;
using Kind = Provenance::Kind;
using Bytes = std::vector<std::uint8_t>;

namespace {

std::uint64_t extend_signature(std::uint64_t signature, std::uint8_t byte) {
  const std::uint64_t h = (signature ^ byte) * 0x9fb21c651e98df25ull;
  return h ^ (h >> 32);
}

/// Signatures of every byte of an image over all runs.
class Signatures {
 public:
  explicit Signatures(std::size_t size) : values_(size, 0x9e3779b97f4a7c15ull) {}
  void add(const Bytes& image) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = extend_signature(values_[i], image[i]);
  }
  std::uint64_t operator[](std::size_t i) const { return values_[i]; }
  std::size_t size() const { return values_.size(); }

 private:
  std::vector<std::uint64_t> values_;
};

/// The element of the declared layout at a byte.
std::optional<Seat> element_at(const ResolvedCase& c, const RegionRef& region, std::int64_t offset) {
  auto out = seat_at(rank_of(c, region).truth, region.allocation, offset);
  if (out) out->who.rank = region.rank;
  return out;
}

/// Whose content a place holds; nullopt: free, so poison.
std::optional<kernels::BlockContent> owner(const ResolvedCase& c, const RegionRef& region, const Provenance& at,
                                           bool transferred_only) {
  for (const auto& b : oracle::content(c.groups.at(static_cast<std::size_t>(region.group)), region.side, transferred_only)) {
    if (b.block == at.block && at.slot >= b.first_slot && at.slot < b.first_slot + b.tokens) return b;
  }
  return std::nullopt;
}

/// Who lies at a byte of a region before the transfer.
Provenance origin(const ResolvedCase& c, const RegionRef& region, std::int64_t offset) {
  const bool filled = region.side == Side::producer || c.connector.kind == "none";
  if (auto element = filled ? element_at(c, region, offset) : std::nullopt) {
    if (const auto own = owner(c, region, element->who, region.side == Side::consumer)) {
      element->who.generation = own->generation;
      element->who.token = own->first_token + element->who.slot - own->first_slot;
      return element->who;
    }
  }
  Provenance poison;
  poison.kind = Kind::poison;
  poison.region = region.name;
  poison.offset = poison.last_offset = offset;
  return poison;
}

std::string place_words(const ResolvedCase& c, const RegionRef& region, std::int64_t offset) {
  if (offset < 0) return "guard below";
  if (offset >= region.bytes) return "guard above";
  const auto element = element_at(c, region, offset);
  if (!element) return "padding";
  const Provenance& who = element->who;
  std::string out = (who.component.empty() ? "" : who.component + " ") + std::string(who.kv == 0 ? "K" : "V") + " layer " +
                    std::to_string(who.layer) + " block " + std::to_string(who.block) + " slot " + std::to_string(who.slot) +
                    " head " + std::to_string(who.head);
  if (!owner(c, region, who, region.side == Side::consumer)) out += " (free slot)";
  return out;
}

}  // namespace

ResolvedCase run_of(const ResolvedCase& resolved, int i) {
  ResolvedCase out = resolved;
  out.seed += static_cast<std::uint64_t>(i);
  out.passes = 1;
  return out;
}

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

std::vector<Stretch> look(const ResolvedCase& resolved, const Window& window, const std::vector<Bytes>& found) {
  const RegionRef region = region_of(resolved, window.region);
  const auto shape = oracle::file_shape(resolved, region.bytes);
  const std::int64_t begin = shape.base + window.offset;
  if (window.bytes < 1 || begin < 0 || begin + window.bytes > shape.size) {
    throw std::runtime_error(region.name + " has bytes " + std::to_string(-shape.base) + " to " +
                             std::to_string(shape.size - shape.base) + " (guards included), the window is " +
                             std::to_string(window.offset) + " to " + std::to_string(window.offset + window.bytes));
  }
  std::vector<RegionRef> all = regions(resolved, Side::producer);
  const std::size_t producers = all.size();
  for (const RegionRef& r : regions(resolved, Side::consumer)) all.push_back(r);
  std::int64_t total = 0;
  std::vector<Signatures> before;
  for (const RegionRef& r : all) {
    total += oracle::file_shape(resolved, r.bytes).size;
    if (total > most_bytes)
      throw std::runtime_error(
          "the regions of this case have more than 256 MiB; `kvcts minimize` makes a smaller one of it");
    before.emplace_back(static_cast<std::size_t>(oracle::file_shape(resolved, r.bytes).size));
  }
  const auto size = static_cast<std::size_t>(window.bytes);
  const std::size_t replicas = resolved.groups.at(static_cast<std::size_t>(region.group)).producer.ranks.size();
  Signatures expected(size), is(size);
  std::vector<Signatures> tails(replicas, Signatures(size));
  for (int i = 0; i < runs; ++i) {
    const ResolvedCase run = run_of(resolved, i);
    std::vector<Bytes> images;
    for (std::size_t r = 0; r < all.size(); ++r) {
      Bytes image(before[r].size());
      oracle::write_initial(run, all[r], 0, image);
      before[r].add(image);
      if (r < producers) images.push_back(std::move(image));
    }
    Bytes file(static_cast<std::size_t>(shape.size));
    const auto part = [&] { return Bytes(file.begin() + begin, file.begin() + begin + window.bytes); };
    if (found.empty()) {
      oracle::write_initial(run, region, 0, file);
      const Bytes there = part();
      expected.add(there), is.add(there);
      for (Signatures& tail : tails) tail.add(there);
      continue;
    }
    oracle::write_expected(run, region, 0, file);
    expected.add(part());
    const Bytes right = file;
    const std::vector<std::span<const std::uint8_t>> views(images.begin(), images.end());
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      file = right;  // slots after a request's last token may hold the producer's, from any replica
      oracle::Tail(run, region).bring_along(views, file, replica);
      tails[replica].add(part());
    }
    is.add(found.at(static_cast<std::size_t>(i)));
  }

  // Who has the observed signatures: replicas share them, and the first is named.
  std::unordered_map<std::uint64_t, std::optional<std::pair<std::size_t, std::size_t>>> wanted;
  for (std::size_t i = 0; i < size; ++i) wanted[expected[i]], wanted[is[i]];
  const auto own = static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [&](const RegionRef& r) { return r.name == region.name; }) - all.begin());
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t i = 0; i < before[r].size(); ++i) {
      const auto at = wanted.find(before[r][i]);
      if (at != wanted.end() && (!at->second || (r == own && all[at->second->first].side != Side::producer)))
        at->second = {r, i};
    }
  }
  const auto who = [&](std::uint64_t signature, std::optional<std::uint8_t> constant) {
    if (const auto at = wanted.at(signature)) {
      const RegionRef& r = all[at->first];
      return origin(resolved, r, static_cast<std::int64_t>(at->second) - oracle::file_shape(resolved, r.bytes).base);
    }
    Provenance out;
    if (constant) out.kind = Kind::constant, out.value = *constant;
    return out;
  };
  std::vector<Stretch> out;
  for (std::size_t i = 0; i < size; ++i) {
    std::optional<std::uint8_t> constant;
    if (!found.empty() && std::all_of(found.begin(), found.end(), [&](const Bytes& b) { return b[i] == found[0][i]; }))
      constant = found[0][i];
    const std::int64_t offset = window.offset + static_cast<std::int64_t>(i);
    const bool wrong = is[i] != expected[i] &&
                       std::none_of(tails.begin(), tails.end(), [&](const Signatures& tail) { return tail[i] == is[i]; });
    append(out,
           {offset, 1, place_words(resolved, region, offset), who(expected[i], std::nullopt), who(is[i], constant), wrong});
  }
  return out;
}

}  // namespace kvcts::dump
