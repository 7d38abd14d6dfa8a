#include "diagnose/symbol_extents.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "diagnose/findings/origins.hpp"

namespace kvcts::scenario {

namespace {

using findings::ByteView;

constexpr std::size_t most_runs = 2'000'000;
/// Right bytes between wrong ones that are equal by chance.
constexpr std::int64_t chance = 4;

/// Adjacent bytes of a buffer, in the first two passes.
struct Found {
  int buffer{0};
  std::int64_t begin{0};
  std::vector<std::uint8_t> first, second;
  std::int64_t end() const { return begin + static_cast<std::int64_t>(first.size()); }
};

/// Places of names in the truth, by the run of Ids that they belong to.
class SourceIndex {
 public:
  SourceIndex(const Checkpoint& check, const AddressSpace& space) : space_(space), images_(check.images) {
    for (const Buffer& b : space.buffers()) {
      if (b.side == "output") continue;
      SymbolId last = 0;
      for (const auto& [number, ids] : images_[static_cast<std::size_t>(b.ordinal)].pages()) {
        for (std::int64_t i = 0; i < SymbolImage::page; ++i) {
          const SymbolId id = (*ids)[static_cast<std::size_t>(i)];
          const bool begins = id != hole && (id != last + 1 || id % SymbolTable::chunk == 0);
          last = id;
          if (!begins) continue;
          auto& addresses = addresses_[id / SymbolTable::chunk];
          const BufferAddress address{b.ordinal, number * SymbolImage::page + i - id % SymbolTable::chunk};
          if (addresses.size() < 8 && (addresses.empty() || addresses.back() != address)) addresses.push_back(address);
        }
      }
    }
  }
  /// In another memory than `but`, if there is one.
  BufferAddress of(SymbolId id, int but) const {
    BufferAddress best;
    const auto found = addresses_.find(id / SymbolTable::chunk);
    if (found == addresses_.end()) return best;
    for (BufferAddress address : found->second) {
      address.offset += id % SymbolTable::chunk;
      if (images_[static_cast<std::size_t>(address.buffer)].at(address.offset) != id) continue;
      const bool elsewhere = memory(address.buffer) != memory(but);
      if (best.buffer < 0 || elsewhere) best = address;
      if (elsewhere) break;
    }
    return best;
  }

 private:
  const std::string& memory(int buffer) const { return space_.buffers()[static_cast<std::size_t>(buffer)].memory; }
  const AddressSpace& space_;
  const std::vector<SymbolImage>& images_;
  std::unordered_map<std::uint32_t, std::vector<BufferAddress>> addresses_;
};

class Walk {
 public:
  Walk(const Observation& observation, const Mismatch& mismatch, Expectation& expectation, const AddressSpace& space,
       const SymbolTable& symbols, std::uint64_t seed)
      : o_(observation),
        space_(space),
        symbols_(symbols),
        seed_(seed),
        number_(mismatch.ranges.front().check),
        check_(*expectation.at(o_.checks[number_])),
        sources_(check_, space) {
    for (const WrongRange& range : mismatch.ranges)
      if (range.check == number_) wrong_[range.buffer].emplace_back(range.begin, range.end);
  }

  std::vector<SymbolExtent> runs() {
    for (const Buffer& b : space_.buffers()) take_bytes(b);
    for (const Found& found : found_) {
      begins_.emplace(found.first.data(), found.begin);
      cut(found);
      if (runs_.size() > most_runs) return {};
    }
    look_up();
    std::ranges::sort(runs_, {}, [](const SymbolExtent& run) { return std::pair(run.first.buffer, run.first.offset); });
    return std::move(runs_);
  }

 private:
  const Buffer& buffer(int number) const { return space_.buffers()[static_cast<std::size_t>(number)]; }
  const Bytes& seen(std::size_t pass) const { return o_.bytes[pass][number_]; }

  void take_bytes(const Buffer& b) {
    const auto take = [&](std::int64_t begin, std::int64_t end) {
      if (found_.empty() || found_.back().buffer != b.ordinal || found_.back().end() != begin)
        found_.push_back({b.ordinal, begin, {}, {}});
      Found& found = found_.back();
      const std::size_t had = found.first.size(), size = static_cast<std::size_t>(end - begin);
      found.first.resize(had + size), found.second.resize(had + size);
      seen(0).read(b.ordinal, begin, end - begin, found.first.data() + had);
      seen(1).read(b.ordinal, begin, end - begin, found.second.data() + had);
    };
    if (!b.sparse) return take(-b.guard_below, b.bytes + b.guard_above);
    std::set<std::int64_t> pages;
    for (const auto& [number, ids] : check_.images[static_cast<std::size_t>(b.ordinal)].pages()) pages.insert(number);
    for (const auto& [begin, end] : wrong_[b.ordinal])
      for (std::int64_t number = SymbolImage::page_of(begin); number <= SymbolImage::page_of(end - 1); ++number)
        pages.insert(number);
    for (const std::int64_t number : pages)
      take(std::max(number * SymbolImage::page, -b.guard_below),
           std::min((number + 1) * SymbolImage::page, b.bytes + b.guard_above));
  }

  void cut(const Found& found) {
    const SymbolImage& image = check_.images[static_cast<std::size_t>(found.buffer)];
    const auto& ranges = wrong_[found.buffer];
    std::size_t range = 0;
    const auto wrong_until = [&](std::int64_t at, std::int64_t& until) {
      while (range < ranges.size() && ranges[range].second <= at) ++range;
      const bool inside = range < ranges.size() && ranges[range].first <= at;
      until = inside ? ranges[range].second : range < ranges.size() ? ranges[range].first : found.end();
      return inside;
    };
    const std::vector<SymbolId>* page = nullptr;
    std::int64_t page_number = INT64_MIN;
    const auto id_at = [&](std::int64_t at) {
      const std::int64_t number = SymbolImage::page_of(at);
      if (number != page_number) {
        const auto there = image.pages().find(number);
        page_number = number, page = there == image.pages().end() ? nullptr : there->second.get();
      }
      return page == nullptr ? hole : (*page)[static_cast<std::size_t>(at - number * SymbolImage::page)];
    };
    for (std::int64_t at = found.begin; at < found.end();) {
      const SymbolId must = id_at(at);
      std::int64_t row = at + 1;  // end of the row, or of the hole
      const bool alike = must == hole || symbols_.at(must).kind == Symbol::Kind::constant;
      const auto goes_on = [&](SymbolId next) {
        return alike ? next == must : next == must + (row - at) && next % SymbolTable::chunk != 0;
      };
      while (row < found.end() && goes_on(id_at(row))) ++row;
      std::int64_t until = 0;
      bool wrong = wrong_until(at, until);
      std::int64_t end = std::min(until, row);
      // A few right bytes within a row.
      while (wrong && end < row) {
        std::int64_t right = 0;
        if (wrong_until(end, right) || right - end >= chance || right >= row) break;
        wrong_until(right, until);
        end = std::min(until, row);
      }
      add(found, at, end, must, wrong);
      at = end;
    }
  }

  void add(const Found& found, std::int64_t at, std::int64_t end, SymbolId must, bool wrong) {
    SymbolExtent run;
    run.first.buffer = found.buffer, run.first.offset = at, run.first.wrong = wrong;
    run.first.must = symbols_.at(must);
    const auto kind = run.first.must.kind;
    const bool content = kind == Symbol::Kind::tag || kind == Symbol::Kind::number;
    if (!wrong && !content) return;
    run.bytes = end - at;
    if (content)
      run.channels = symbols_.at(must + static_cast<SymbolId>(run.bytes) - 1).channel - run.first.must.channel + 1;
    run.first.is = run.first.must;
    if (wrong && !at_sight(found, run)) wanted_.push_back({runs_.size(), view(found), at - found.begin, run.bytes});
    if (wrong) must_.emplace(runs_.size(), must);
    runs_.push_back(std::move(run));
  }

  static ByteView view(const Found& found) { return found.first; }

  /// What needs no search.
  bool at_sight(const Found& found, SymbolExtent& run) {
    const Buffer& b = buffer(run.first.buffer);
    const auto begin = static_cast<std::size_t>(run.first.offset - found.begin), size = static_cast<std::size_t>(run.bytes);
    const ByteView first = ByteView(found.first).subspan(begin, size), second = ByteView(found.second).subspan(begin, size);
    bool untouched = true;
    for (std::size_t i = 0; i < size && untouched; ++i) {
      const std::int64_t at = run.first.offset + static_cast<std::int64_t>(i);
      untouched = first[i] == seen(0).fresh(b.ordinal, at) && second[i] == seen(1).fresh(b.ordinal, at);
    }
    run.first.is = {};
    if (untouched) {
      run.first.untouched = true;
      return true;
    }
    if (!std::ranges::all_of(first, [&](std::uint8_t byte) { return byte == first[0]; }) ||
        !std::ranges::equal(first, second))
      return false;
    run.first.is.kind = Symbol::Kind::constant, run.first.is.byte = first[0];
    return true;
  }

  void look_up() {
    // Names by SymbolId, and what was in every memory before.
    std::vector<std::uint8_t> stream(symbols_.chunks() * SymbolTable::chunk);
    std::vector<bool> issued(stream.size());
    Rendering rendering(symbols_, space_.buffers(), seed_, 0);
    symbols_.each([&](SymbolId id) {
      const auto kind = symbols_.at(id).kind;
      if (kind != Symbol::Kind::tag && kind != Symbol::Kind::number && kind != Symbol::Kind::nibbles) return;
      stream[id] = rendering.byte(id), issued[id] = true;
    });
    std::vector<std::vector<std::uint8_t>> poison;
    std::vector<BufferAddress> begins;
    for (const Found& found : found_) {
      const Buffer& b = buffer(found.buffer);
      if (b.zeroed || b.side == "output") continue;
      begins.push_back({found.buffer, found.begin});
      rendering.poison(b, found.begin, poison.emplace_back(found.first.size()));
    }
    std::vector<ByteView> sources{stream};
    sources.insert(sources.end(), poison.begin(), poison.end());
    const auto judge = [&](int source, std::int64_t at, const findings::SearchedRange& extent) -> findings::Likely {
      if (source > 0) {
        // Up to where a guard begins or ends.
        const BufferAddress from = begins[static_cast<std::size_t>(source) - 1];
        const std::int64_t offset = from.offset + at, end = buffer(from.buffer).bytes;
        return {offset < 0 ? -offset : offset < end ? end - offset : 1 << 20, 0};
      }
      if (!issued[static_cast<std::size_t>(at)]) return {};
      const SymbolExtent& run = runs_[extent.number];
      const std::int64_t ahead = extent.at + found_begin(extent) - run.first.offset;
      const bool same_row = symbols_.at(static_cast<SymbolId>(at)).channel == run.first.must.channel + ahead;
      return {SymbolTable::chunk - at % SymbolTable::chunk, same_row ? 2 : 1};
    };
    std::vector<SymbolExtent> rest;
    std::vector<bool> done(runs_.size());
    for (const findings::SearchedRange& piece : findings::origins_of(sources, wanted_, judge)) {
      done[piece.number] = true;
      rest.push_back(origin_of(piece, begins));
    }
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      SymbolExtent& run = runs_[i];
      if (done[i]) continue;
      if (run.first.wrong && run.first.must.kind == Symbol::Kind::tag && buffer(run.first.buffer).side == "output")
        read(run, must_.at(i));
      rest.push_back(std::move(run));
    }
    runs_ = std::move(rest);
  }

  /// A part of a run, with its origin; `begins`: of the sources after the first.
  SymbolExtent origin_of(const findings::SearchedRange& piece, const std::vector<BufferAddress>& begins) const {
    const SymbolExtent& whole = runs_[piece.number];
    const std::int64_t offset = piece.at + found_begin(piece), ahead = offset - whole.first.offset;
    SymbolExtent run = whole;
    run.first.offset = offset, run.bytes = piece.bytes;
    const SymbolId must = must_.at(piece.number);
    const auto kind = whole.first.must.kind;
    if (kind == Symbol::Kind::tag || kind == Symbol::Kind::number) {
      run.first.must = symbols_.at(must + static_cast<SymbolId>(ahead));
      run.channels = symbols_.at(must + static_cast<SymbolId>(ahead + run.bytes) - 1).channel - run.first.must.channel + 1;
    }
    run.first.is = {};
    if (piece.source == 0) {
      run.is = static_cast<SymbolId>(piece.from);
      run.first.is = symbols_.at(run.is);
      run.from = sources_.of(static_cast<SymbolId>(piece.from), whole.first.buffer);
    } else if (piece.source > 0) {
      run.from = begins[static_cast<std::size_t>(piece.source) - 1];
      run.from.offset += piece.from;
      run.first.is.kind = Symbol::Kind::poison;
      run.first.is.buffer = run.from.buffer, run.first.is.offset = run.from.offset;
    }
    if (buffer(whole.first.buffer).side == "output" && (kind == Symbol::Kind::tag))
      read(run, must + static_cast<SymbolId>(ahead));
    return run;
  }

  /// Of the file of a stretch.
  std::int64_t found_begin(const findings::SearchedRange& extent) const { return begins_.at(extent.file.data()); }

  /// A step that read what was wrong already.
  void read(SymbolExtent& run, SymbolId must) const {
    const BufferAddress there = sources_.of(must, run.first.buffer);
    if (there.buffer < 0) return;
    const auto wrong = wrong_.find(there.buffer);
    if (wrong == wrong_.end()) return;
    const auto after = std::ranges::upper_bound(wrong->second, std::pair(there.offset, INT64_MAX));
    if (after == wrong->second.begin() || std::prev(after)->second <= there.offset) return;
    std::vector<std::uint8_t> here(static_cast<std::size_t>(run.bytes)), source(here.size());
    seen(0).read(run.first.buffer, run.first.offset, run.bytes, here.data());
    seen(0).read(there.buffer, there.offset, run.bytes, source.data());
    if (here != source) return;
    run.from = there, run.follows = true;
  }

  const Observation& o_;
  const AddressSpace& space_;
  const SymbolTable& symbols_;
  std::uint64_t seed_;
  std::size_t number_;
  const Checkpoint& check_;
  SourceIndex sources_;
  std::unordered_map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> wrong_;
  std::vector<Found> found_;
  std::unordered_map<const std::uint8_t*, std::int64_t> begins_;  ///< by the bytes of a Found
  std::vector<SymbolExtent> runs_;
  std::vector<findings::SearchedRange> wanted_;
  std::unordered_map<std::size_t, SymbolId> must_;  ///< of wrong runs
};

}  // namespace

std::vector<SymbolExtent> symbol_extents(const Observation& observation, const Mismatch& mismatch, Expectation& expectation,
                                         const AddressSpace& space, const SymbolTable& symbols, std::uint64_t seed) {
  if (mismatch.ranges.empty()) return {};
  return Walk(observation, mismatch, expectation, space, symbols, seed).runs();
}

}  // namespace kvcts::scenario
