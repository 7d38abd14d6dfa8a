#include "diagnose/attributions.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <unordered_map>

namespace kvcts::scenario {

namespace {

bool content(const Symbol& symbol) { return symbol.kind == Symbol::Kind::tag || symbol.kind == Symbol::Kind::number; }

// Content, or poison from elsewhere: a step may have moved bytes from before the first write.
bool brought(const Symbol& symbol, int buffer, std::int64_t offset) {
  return content(symbol) || (symbol.kind == Symbol::Kind::poison && (symbol.buffer != buffer || symbol.offset != offset));
}

/// What was to be erased and is still there: content, or the bytes from before.
bool erased_late(const Attribution& attribution) { return attribution.untouched || content(attribution.is); }

std::uint64_t signature_of(const Observation& o, std::size_t check, int buffer, std::int64_t offset) {
  std::uint64_t out = 0;
  for (const auto& checks : o.bytes) out = extend_signature(out, checks[check].at(buffer, offset));
  return out;
}

bool fresh_in_every_pass(const Observation& o, std::size_t check, int buffer, std::int64_t offset) {
  bool fresh = true;
  for (std::size_t pass = 0; pass < o.bytes.size() && fresh; ++pass) {
    const Bytes& bytes = o.bytes[pass][check];
    fresh = bytes.at(buffer, offset) == bytes.fresh(buffer, offset);
  }
  return fresh;
}

}  // namespace

std::uint64_t extend_signature(std::uint64_t signature, std::uint8_t byte) {
  const std::uint64_t h = (signature ^ byte) * 0x9fb21c651e98df25ull;
  return h ^ (h >> 32);
}

SymbolResolver::SymbolResolver(const Observation& observation, SymbolTable& symbols, const AddressSpace& space,
                               std::uint64_t seed)
    : observation_(observation), symbols_(symbols) {
  // Everything that was ever meant to be somewhere, and the poison of every byte.
  for (const Buffer& b : space.buffers()) {
    if (b.sparse) continue;
    for (std::int64_t i = -b.guard_below; i < b.bytes + b.guard_above; ++i)
      symbols.intern({.kind = Symbol::Kind::poison, .buffer = b.ordinal, .offset = i});
  }
  for (int pass = 0; pass < naming_passes; ++pass) renderings_.emplace_back(symbols, space.buffers(), seed, pass);
  std::vector<SymbolId> ids;
  symbols_.each([&](SymbolId id) {
    const auto kind = symbols_.at(id).kind;
    if (kind != Symbol::Kind::hole && kind != Symbol::Kind::unknown && kind != Symbol::Kind::code) ids.push_back(id);
  });
  std::vector<std::uint64_t> signatures(ids.size(), 0);
  for (int pass = 0; pass < first_passes; ++pass) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      signatures[i] = extend_signature(signatures[i], renderings_[static_cast<std::size_t>(pass)].byte(ids[i]));
  }
  table_.assign(std::bit_ceil(ids.size() * 2 + 2), {0, hole});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::size_t at = signatures[i] & (table_.size() - 1);
    while (table_[at].second != hole) at = (at + 1) & (table_.size() - 1);
    table_[at] = {signatures[i], ids[i]};
  }
}

Symbol SymbolResolver::symbol(std::size_t check, int buffer, std::int64_t offset) const {
  std::array<std::uint8_t, naming_passes> seen{};
  for (std::size_t pass = 0; pass < seen.size(); ++pass) seen[pass] = observation_.bytes[pass][check].at(buffer, offset);
  std::uint64_t signature = 0;
  for (int pass = 0; pass < first_passes; ++pass)
    signature = extend_signature(signature, seen[static_cast<std::size_t>(pass)]);
  for (std::size_t at = signature & (table_.size() - 1); table_[at].second != hole; at = (at + 1) & (table_.size() - 1)) {
    if (table_[at].first != signature) continue;
    bool same = true;
    for (std::size_t pass = first_passes; pass < seen.size() && same; ++pass)
      same = renderings_[pass].byte(table_[at].second) == seen[pass];
    if (same) return symbols_.at(table_[at].second);
  }
  Symbol out;
  if (std::ranges::all_of(seen, [&](std::uint8_t byte) { return byte == seen[0]; }))
    out.kind = Symbol::Kind::constant, out.byte = seen[0];
  return out;
}

Rescaled::Rescaled(const Observation& o, const Mismatch& mismatch, const Expectation& expectation, SymbolTable& symbols) {
  std::size_t numbers = 0;
  std::set<std::pair<std::size_t, int>> seen;
  for (const WrongRange& range : mismatch.ranges) {
    numbers += static_cast<std::size_t>(range.end - range.begin);
    if (!seen.emplace(range.check, range.buffer).second) continue;
    // Also of the right numbers: theirs may be the one that was taken.
    const Checkpoint* check = expectation.at(o.checks[range.check]);
    for (const auto& [number, ids] : check->images[static_cast<std::size_t>(range.buffer)].pages()) {
      for (const SymbolId id : *ids) {
        const Symbol symbol = symbols.at(id);
        if (symbol.kind == Symbol::Kind::number && symbol.scale != 0)
          scales_[{symbol.generation, symbol.layer}].insert(symbol.scale);
      }
    }
  }
  for (auto& [layer, scales] : scales_)
    if (scales.size() * numbers > most) scales.clear();
}

template <class F>
void Rescaled::each_of(const Symbol& number, F&& f) const {
  Symbol other = number;
  for (const std::uint8_t power : {0, 2}) {
    other.power = power;
    if (f(other)) return;
  }
  const auto scales = scales_.find({number.generation, number.layer});
  if (scales == scales_.end()) return;
  other.power = number.power;
  for (const std::uint32_t scale : scales->second) {
    other.scale = scale;
    if (scale != number.scale && f(other)) return;
  }
}

std::optional<Symbol> Rescaled::symbol(const Symbol& must, const SymbolResolver& resolver, std::size_t check, int buffer,
                                       std::int64_t offset) {
  if (must.kind != Symbol::Kind::number) return std::nullopt;
  std::optional<Symbol> found;
  const auto fits = [&](const Symbol& other) {
    if (!resolver.is(other, check, buffer, offset)) return false;
    found = last_ = other;
    return true;
  };
  // Bytes of one number, and numbers of one row, have the same thing happen to them.
  if (last_) {
    Symbol same = must;
    same.power = last_->power;
    if (last_->power == must.power) same.scale = last_->scale;
    if (same != must && fits(same)) return found;
  }
  each_of(must, fits);
  return found;
}

bool SymbolResolver::is(const Symbol& symbol, std::size_t check, int buffer, std::int64_t offset) const {
  const SymbolId id = symbols_.intern(symbol);
  for (std::size_t pass = 0; pass < renderings_.size(); ++pass)
    if (renderings_[pass].byte(id) != observation_.bytes[pass][check].at(buffer, offset)) return false;
  return true;
}

Attributions attribute_bytes(const Observation& o, const Mismatch& mismatch, const Truth&, Expectation& expectation,
                             const AddressSpace& space, SymbolTable& symbols, std::uint64_t seed) {
  if (mismatch.ranges.empty()) return {};
  const SymbolResolver resolver(o, symbols, space, seed);
  Rescaled rescaled(o, mismatch, expectation, symbols);
  const std::size_t check = mismatch.ranges.front().check;
  return attribute_bytes(o, mismatch, expectation, space, symbols, [&](const Symbol& must, int buffer, std::int64_t offset) {
    const auto number = rescaled.symbol(must, resolver, check, buffer, offset);
    return number ? *number : resolver.symbol(check, buffer, offset);
  });
}

Attributions attribute_bytes(const Observation& o, const Mismatch& mismatch, Expectation& expectation,
                             const AddressSpace& space, SymbolTable& symbols, const SymbolAt& symbol_at) {
  Attributions out;
  if (mismatch.ranges.empty()) return out;
  out.check = mismatch.ranges.front().check;
  const Checkpoint* check = expectation.at(o.checks[out.check]);
  std::unordered_map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> wrong;
  for (const WrongRange& range : mismatch.ranges) {
    if (range.check == out.check) wrong[range.buffer].emplace_back(range.begin, range.end);
  }
  for (const Buffer& b : space.buffers()) {
    const auto& ranges = wrong[b.ordinal];
    const auto is_wrong = [&](std::int64_t offset) {
      const auto after = std::upper_bound(ranges.begin(), ranges.end(), std::pair(offset, INT64_MAX));
      return after != ranges.begin() && offset < std::prev(after)->second;
    };
    std::vector<std::int64_t> offsets;
    for (const auto& [begin, end] : ranges) {
      for (std::int64_t i = begin; i < end; ++i) offsets.push_back(i);
    }
    for (const auto& [number, ids] : check->images[static_cast<std::size_t>(b.ordinal)].pages()) {
      for (std::int64_t i = 0; i < SymbolImage::page; ++i) {
        const std::int64_t offset = number * SymbolImage::page + i;
        const SymbolId id = (*ids)[static_cast<std::size_t>(i)];
        if (id != hole && brought(symbols.at(id), b.ordinal, offset) && !is_wrong(offset)) offsets.push_back(offset);
      }
    }
    std::ranges::sort(offsets);
    for (const std::int64_t offset : offsets) {
      Attribution attribution;
      attribution.buffer = b.ordinal, attribution.offset = offset;
      attribution.must = symbols.at(expectation.id(*check, b.ordinal, offset, symbols));
      attribution.wrong = is_wrong(offset);
      if (attribution.wrong) {
        attribution.is = symbol_at(attribution.must, b.ordinal, offset);
        attribution.untouched = b.zeroed || b.sparse
                                    ? fresh_in_every_pass(o, out.check, b.ordinal, offset)
                                    : attribution.is.kind == Symbol::Kind::poison && attribution.is.buffer == b.ordinal &&
                                          attribution.is.offset == offset;
        if (attribution.is.kind == Symbol::Kind::unknown)
          attribution.signature = signature_of(o, out.check, b.ordinal, offset);
        ++out.wrong;
        out.untouched += attribution.untouched;
        out.unknown += attribution.is.kind == Symbol::Kind::unknown;
        if (!content(attribution.must))
          ++(attribution.must.kind == Symbol::Kind::constant && erased_late(attribution) ? out.left : out.damage);
      } else {
        attribution.is = attribution.must;
      }
      out.all.push_back(std::move(attribution));
    }
  }
  return out;
}

std::uint64_t identity_key(const Symbol& symbol) {
  std::uint64_t key = static_cast<std::uint64_t>(symbol.component) * 1000 + static_cast<std::uint64_t>(symbol.dtype);
  const auto put = [&](std::int64_t value) {
    key = (key ^ static_cast<std::uint64_t>(value)) * 0x9fb21c651e98df25ull;
    key ^= key >> 29;
  };
  put(symbol.byte), put(symbol.generation), put(symbol.kv), put(symbol.layer), put(symbol.token), put(symbol.head),
      put(symbol.channel);
  return key;
}

ElementIndex::ElementIndex(const Checkpoint& check, const AddressSpace& space, const SymbolTable& symbols)
    : ElementIndex(check.images, [&](int buffer) { return buffer < static_cast<int>(space.buffers().size()); }, symbols) {}

ElementIndex::ElementIndex(const std::vector<SymbolImage>& images, const std::function<bool(int buffer)>& of,
                           const SymbolTable& symbols) {
  std::vector<std::pair<std::uint64_t, BufferAddress>> all;
  for (int buffer = 0; buffer < static_cast<int>(images.size()); ++buffer) {
    if (!of(buffer)) continue;
    for (const auto& [number, ids] : images[static_cast<std::size_t>(buffer)].pages()) {
      for (std::int64_t i = 0; i < SymbolImage::page; ++i) {
        const SymbolId id = (*ids)[static_cast<std::size_t>(i)];
        if (id == hole) continue;
        const Symbol symbol = symbols.at(id);
        if (symbol.kind == Symbol::Kind::tag)
          all.emplace_back(identity_key(symbol), BufferAddress{buffer, number * SymbolImage::page + i});
      }
    }
  }
  std::ranges::stable_sort(all, [](const auto& a, const auto& c) { return a.first < c.first; });
  for (const auto& [key, address] : all) keys_.push_back(key), addresses_.push_back(address);
}

std::span<const BufferAddress> ElementIndex::of(const Symbol& symbol) const {
  const auto [begin, end] = std::equal_range(keys_.begin(), keys_.end(), identity_key(symbol));
  return std::span(addresses_)
      .subspan(static_cast<std::size_t>(begin - keys_.begin()), static_cast<std::size_t>(end - begin));
}

}  // namespace kvcts::scenario
