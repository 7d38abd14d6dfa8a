#include "script/clues.hpp"

#include <algorithm>
#include <cstring>

namespace kvcts::script {

namespace {

bool content(const Who& who) { return who.kind == Who::Kind::tag || who.kind == Who::Kind::number; }

}  // namespace

std::uint64_t extend_signature(std::uint64_t signature, std::uint8_t byte) {
  const std::uint64_t h = (signature ^ byte) * 0x9fb21c651e98df25ull;
  return h ^ (h >> 32);
}

Namer::Namer(const Observation& observation, Names& names, const Arena& arena, std::uint64_t seed) : observation_(observation), names_(names) {
  // Everybody who was ever meant to be somewhere, and the poison of every byte.
  for (const Backing& b : arena.backings()) {
    Who who;
    who.kind = Who::Kind::poison;
    who.backing = b.ordinal;
    if (b.sparse) continue;
    for (std::int64_t i = -b.guard_below; i < b.bytes + b.guard_above; ++i) {
      who.offset = i;
      names.intern(who);
    }
  }
  std::vector<Id> ids;
  names.each([&](Id id) { ids.push_back(id); });
  std::vector<std::uint64_t> signatures(ids.size(), 0);
  for (int pass = 0; pass < naming_passes; ++pass) {
    Rendering rendering(names, arena.backings(), seed, pass);
    for (std::size_t i = 0; i < ids.size(); ++i) signatures[i] = extend_signature(signatures[i], rendering.byte(ids[i]));
  }
  index_.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto kind = names.at(ids[i]).kind;
    if (kind != Who::Kind::hole && kind != Who::Kind::unknown && kind != Who::Kind::code) index_.emplace(signatures[i], ids[i]);
  }
}

std::uint64_t Namer::signature(std::size_t check, int backing, std::int64_t offset) const {
  std::uint64_t h = 0;
  for (int pass = 0; pass < naming_passes; ++pass) h = extend_signature(h, observation_.bytes[static_cast<std::size_t>(pass)][check].at(backing, offset));
  return h;
}

Who Namer::who(std::size_t check, int backing, std::int64_t offset) const {
  const auto found = index_.find(signature(check, backing, offset));
  if (found != index_.end()) return names_.at(found->second);
  Who out;
  const std::uint8_t first = observation_.bytes[0][check].at(backing, offset);
  bool constant = true;
  for (int pass = 1; pass < naming_passes; ++pass) constant = constant && observation_.bytes[static_cast<std::size_t>(pass)][check].at(backing, offset) == first;
  if (constant) out.kind = Who::Kind::constant, out.byte = first;
  return out;
}

Clues find_clues(const Observation& o, const Mismatch& mismatch, const Truth& truth, Expectation& expectation, const Arena& arena, Names& names,
                 std::uint64_t seed) {
  (void)truth;
  Clues out;
  if (mismatch.ranges.empty()) return out;
  out.check = mismatch.ranges.front().check;
  const Checkpoint* check = expectation.at(o.checks[out.check]);
  const Namer namer(o, names, arena, seed);
  std::unordered_map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> wrong;
  for (const WrongRange& range : mismatch.ranges) {
    if (range.check == out.check) wrong[range.backing].emplace_back(range.begin, range.end);
  }
  for (const Backing& b : arena.backings()) {
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
      for (std::int64_t i = 0; i < Image::page; ++i) {
        const std::int64_t offset = number * Image::page + i;
        if ((*ids)[static_cast<std::size_t>(i)] != hole && content(names.at((*ids)[static_cast<std::size_t>(i)])) && !is_wrong(offset)) offsets.push_back(offset);
      }
    }
    std::sort(offsets.begin(), offsets.end());
    for (const std::int64_t offset : offsets) {
      Clue clue;
      clue.backing = b.ordinal, clue.offset = offset;
      clue.must = names.at(expectation.id(*check, b.ordinal, offset, names));
      clue.wrong = is_wrong(offset);
      if (clue.wrong) {
        clue.untouched = true;
        for (int pass = 0; pass < naming_passes && clue.untouched; ++pass) {
          const Bytes& bytes = o.bytes[static_cast<std::size_t>(pass)][out.check];
          clue.untouched = bytes.at(b.ordinal, offset) == bytes.fresh(b.ordinal, offset);
        }
        clue.is = namer.who(out.check, b.ordinal, offset);
        ++out.wrong;
        out.untouched += clue.untouched;
        out.unknown += clue.is.kind == Who::Kind::unknown;
        out.damage += !content(clue.must);
      } else {
        clue.is = clue.must;
      }
      out.all.push_back(std::move(clue));
    }
  }
  return out;
}

std::string identity_key(const Who& who) {
  std::string key;
  const auto put = [&](std::int64_t value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(static_cast<int>(who.component) * 1000 + static_cast<int>(who.dtype) * 10 + who.byte);
  put(who.generation), put(who.kv), put(who.layer), put(who.token), put(who.head), put(who.channel);
  return key;
}

Whereabouts::Whereabouts(const Checkpoint& check, const Arena& arena, const Names& names) {
  for (const Backing& b : arena.backings()) {
    for (const auto& [number, ids] : check.images[static_cast<std::size_t>(b.ordinal)].pages()) {
      for (std::int64_t i = 0; i < Image::page; ++i) {
        const Id id = (*ids)[static_cast<std::size_t>(i)];
        if (id == hole) continue;
        const Who who = names.at(id);
        if (who.kind == Who::Kind::tag) places_[identity_key(who)].push_back({b.ordinal, number * Image::page + i});
      }
    }
  }
}

std::vector<Place> Whereabouts::of(const Who& who) const {
  const auto found = places_.find(identity_key(who));
  return found == places_.end() ? std::vector<Place>{} : found->second;
}

}  // namespace kvcts::script
