// All moves as one list of pieces, as an engine or a transport has it: pieces that never moved, hold another's bytes, went
// to another region or have narrow offsets, and what was written behind the last one.
#include <algorithm>
#include <map>
#include <tuple>

#include "diagnose/hypotheses/copy_list.hpp"

namespace kvcts::scenario {

namespace {

enum class State { arrived, untouched, other };

struct Piece {
  std::size_t step{0};
  ListedCopy copy;
  State state{State::arrived};
  Symbol must;  ///< its first byte
  Symbol is;    ///< what lies there
};

std::string of(std::size_t k, std::size_t n) { return std::to_string(k) + " of " + std::to_string(n); }

class List {
 public:
  /// `whole`: copies that are adjacent at both ends are one piece.
  List(HypothesisSearch& search, bool whole) : w_(search) {
    constexpr std::size_t most = 4096;
    for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
      if (search.action(i).op != Operation::move) continue;
      const std::vector<ListedCopy> copies = copies_of(search, i);
      for (const ListedCopy& copy : whole ? join_contiguous(copies) : copies) pieces_.push_back({i, copy, {}, {}, {}});
      if (copies.empty() || pieces_.size() > most) {
        pieces_.clear();
        return;
      }
    }
    look();
  }
  bool empty() const { return pieces_.empty(); }

  /// `first`: only if what is there is how some list begins.
  void generate_missing(bool first) {
    const auto lost = std::ranges::count(pieces_, State::untouched, &Piece::state);
    if (lost == 0 || std::ranges::count(pieces_, State::other, &Piece::state) > 0) return;
    std::vector<Piece> rest;
    std::ranges::copy_if(pieces_, std::back_inserter(rest), [](const Piece& p) { return p.state == State::arrived; });
    if (rest.empty()) return;
    if (first && lacks_one_plane()) return;  // a list seldom ends just there: the part that is missing says more
    const auto [fault_class, words] = what_is_missing(static_cast<std::size_t>(lost));
    if (!first || fault_class == FaultClass::truncated) attempt(fault_class, words, rest);
  }

  /// Where bytes lie that belong to another piece.
  void generate_others() {
    std::map<std::tuple<int, std::int64_t, std::int64_t>, std::size_t> by_source;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const ListedCopy& c = pieces_[i].copy;
      by_source.emplace(std::tuple(c.from.buffer, c.from.offset, c.bytes), i);
    }
    std::vector<std::size_t> got(pieces_.size());
    std::vector<Piece> all = pieces_;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      got[i] = i;
      if (pieces_[i].state == State::arrived) continue;
      bool known = false;
      for (const BufferAddress& p : w_.element_index().of(pieces_[i].is)) {
        const auto at = by_source.find({p.buffer, p.offset, pieces_[i].copy.bytes});
        if (at == by_source.end()) continue;
        got[i] = at->second, all[i].copy.from = p, known = true;
        break;
      }
      if (!known) return;
    }
    const auto [fault_class, words] = what_was_exchanged(got);
    attempt(fault_class, words, all);
  }

  /// Regions of one size, one after the other.
  void generate_other_regions() {
    const auto& buffers = w_.evidence().space.buffers();
    std::vector<int> targets;
    for (const Piece& p : pieces_)
      if (std::ranges::find(targets, p.copy.to.buffer) == targets.end()) targets.push_back(p.copy.to.buffer);
    std::ranges::sort(targets);
    for (std::size_t by = 1; by < targets.size(); ++by) {
      std::vector<Piece> all = pieces_;
      for (Piece& p : all) {
        const auto at = static_cast<std::size_t>(std::ranges::find(targets, p.copy.to.buffer) - targets.begin());
        const Buffer &was = buffers[static_cast<std::size_t>(targets[at])],
                     &now = buffers[static_cast<std::size_t>(targets[(at + by) % targets.size()])];
        if (was.bytes == now.bytes) p.copy.to.buffer = now.ordinal;
      }
      attempt(FaultClass::layer_misrouted, "everything went to the region " + std::to_string(by) + " further on in the list",
              all);
    }
  }

  void generate_narrow_offsets() {
    const auto& buffers = w_.evidence().space.buffers();
    for (int bits = 8; bits < 33 && !w_.spent(); ++bits) {
      const std::int64_t mask = (std::int64_t{1} << bits) - 1;
      std::vector<Piece> all = pieces_;
      bool any = false;
      for (Piece& p : all) {
        const std::int64_t offset = p.copy.to.offset & mask;
        any = any || offset != p.copy.to.offset;
        p.copy.to.offset = offset;
        p.copy.bytes = std::min(p.copy.bytes, buffers[static_cast<std::size_t>(p.copy.to.buffer)].bytes - offset);
      }
      if (!any) return;  // from here on every offset fits
      attempt(FaultClass::int32_overflow, "offsets at the destination keep " + std::to_string(bits) + " bits", all);
    }
  }

  /// Any piece can be the last one of a list; most lists end with a region.
  void generate_behind() {
    constexpr std::int64_t page = 4096, most = 1 << 20;
    const Attributions& attributions = w_.attributions();
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (i + 1 < pieces_.size() && pieces_[i + 1].copy.to.buffer == pieces_[i].copy.to.buffer) continue;
      const ListedCopy& copy = pieces_[i].copy;
      const std::int64_t end = copy.to.offset + copy.bytes;
      std::int64_t last = end;
      bool zeros = true;
      for (const Attribution& attribution : attributions.all) {
        if (!attribution.wrong || attribution.buffer != copy.to.buffer || attribution.offset < end) continue;
        last = attribution.offset + 1;
        zeros = zeros && attribution.is.kind == Symbol::Kind::constant && attribution.is.byte == 0;
      }
      if (last == end || last - end > most) continue;
      for (const std::int64_t bytes : {last - end, (last - end + page - 1) / page * page}) {
        std::vector<Piece> all = pieces_;
        all[i].copy.bytes += bytes;
        attempt(FaultClass::over_read, "the last piece continues for " + std::to_string(bytes) + " bytes", all);
      }
      if (!zeros) continue;
      CandidateSteps bodies = w_.bodies();
      Action padding;
      padding.op = Operation::fill, padding.value = "zero";
      padding.to.resize(1);
      padding.to[0].of = w_.evidence().space.buffers()[static_cast<std::size_t>(copy.to.buffer)].name;
      padding.to_offset = end, padding.bytes = last - end;
      bodies[pieces_[i].step].push_back(std::move(padding));
      w_.attempt(FaultClass::over_read, std::to_string(last - end) + " bytes after the last piece were set to zero",
                 std::move(bodies));
    }
  }

 private:
  void look() {
    std::map<std::pair<int, std::int64_t>, std::size_t> begins;
    for (std::size_t i = 0; i < pieces_.size(); ++i) begins[{pieces_[i].copy.to.buffer, pieces_[i].copy.to.offset}] = i;
    for (const Attribution& attribution : w_.attributions().all) {
      auto at = begins.upper_bound({attribution.buffer, attribution.offset});
      if (at == begins.begin()) continue;
      Piece& p = pieces_[(--at)->second];
      if (p.copy.to.buffer != attribution.buffer || attribution.offset >= p.copy.to.offset + p.copy.bytes) continue;
      if (attribution.offset == p.copy.to.offset) p.must = attribution.must, p.is = attribution.is;
      if (!attribution.wrong) continue;
      const State here = attribution.untouched ? State::untouched : State::other;
      p.state = p.state == State::arrived ? here : p.state == here ? here : State::other;
    }
  }

  void attempt(FaultClass fault_class, const std::string& words, const std::vector<Piece>& pieces) {
    CandidateSteps bodies = w_.bodies();
    std::map<std::size_t, std::vector<ListedCopy>> by_step;
    for (const Piece& p : pieces_) by_step[p.step];
    for (const Piece& p : pieces) by_step[p.step].push_back(p.copy);
    for (const auto& [step, copies] : by_step) bodies[step] = written_out(w_, step, copies);
    w_.attempt(fault_class, words, std::move(bodies));
  }

  /// Whether K or V of one layer is missing as a whole, and nothing else.
  bool lacks_one_plane() const {
    std::map<std::pair<std::int64_t, std::int64_t>, State> planes;
    const bool whole = std::ranges::all_of(pieces_, [&](const Piece& p) {
      return planes.try_emplace({p.must.layer, p.must.kv}, p.state).first->second == p.state;
    });
    return whole && std::ranges::count(planes, State::untouched, [](const auto& plane) { return plane.second; }) == 1;
  }

  /// A class for the set that did not arrive: a list that ends early, in any order in which lists are made.
  std::pair<FaultClass, std::string> what_is_missing(std::size_t lost) const {
    std::size_t scales = 0, lost_scales = 0;
    for (const Piece& p : pieces_) {
      if (p.must.component == layout::Component::data) continue;
      ++scales, lost_scales += p.state == State::untouched;
    }
    if (lost_scales == lost)
      return {FaultClass::scale_lost, of(lost, scales) + " pieces of scales were not moved, all codes were"};
    using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
    using Order = Key (*)(const Piece&);
    for (const Order key : {Order([](const Piece&) { return Key{}; }),
                            Order([](const Piece& p) { return Key{p.must.layer, p.must.kv, p.must.token}; }),
                            Order([](const Piece& p) { return Key{p.must.layer, p.must.token, p.must.kv}; }),
                            Order([](const Piece& p) { return Key{p.must.token, p.must.layer, p.must.kv}; }),
                            Order([](const Piece& p) { return Key{p.must.kv, p.must.layer, p.must.token}; })}) {
      std::vector<Piece> order = pieces_;
      std::ranges::stable_sort(order, {}, key);
      const auto first = static_cast<std::size_t>(std::ranges::find(order, State::untouched, &Piece::state) - order.begin());
      if (first + lost == order.size() && first > 0)
        return {FaultClass::truncated, "only the first " + of(first, order.size()) + " pieces were moved"};
    }
    return {FaultClass::false_success,
            of(lost, pieces_.size()) + " pieces never arrived, and the transfer was reported as complete"};
  }

  /// By the axes on which pieces differ from those whose bytes they have.
  std::pair<FaultClass, std::string> what_was_exchanged(const std::vector<std::size_t>& got) const {
    bool layer = false, kv = false, head = false, token = false, consistent = true, once = true, scales = true;
    std::set<std::size_t> used;
    std::map<std::int64_t, std::int64_t> tokens;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Symbol &want = pieces_[i].must, &have = pieces_[got[i]].must;
      once = used.insert(got[i]).second && once;
      const auto [known, fresh] = tokens.try_emplace(want.token, have.token);
      consistent = consistent && (fresh || known->second == have.token);
      if (got[i] == i) continue;
      ++wrong;
      scales = scales && want.component != layout::Component::data;
      layer = layer || want.layer != have.layer, kv = kv || want.kv != have.kv;
      head = head || want.head != have.head, token = token || want.token != have.token;
    }
    const std::string count = of(wrong, got.size()) + " pieces hold what belongs to another ";
    if (scales) return {FaultClass::scale_misplaced, count + "group of codes: scales only"};
    if (layer && !kv && !head && !token) return {FaultClass::layer_misrouted, count + "layer"};
    if (kv && !layer && !head && !token)
      return {once ? FaultClass::kv_split_vs_interleaved : FaultClass::region_aliasing,
              once ? "K and V are exchanged" : "both K and V are what one of them should be"};
    if (head && !layer && !kv && !token) return {FaultClass::head_shard_mapping, count + "head"};
    if (token && !layer && !kv && !head && (once || consistent)) return {FaultClass::wrong_block_id, count + "token"};
    if (once) return {FaultClass::wrong_block_id, count + "piece, exchanged among them"};
    return {FaultClass::identity_collision, count + "piece, which is also where it belongs"};
  }

  HypothesisSearch& w_;
  std::vector<Piece> pieces_;
};

template <class F>
void of_the_list(HypothesisSearch& search, bool whole, F&& generate) {
  try {
    List list(search, whole);
    if (!list.empty()) generate(list);
  } catch (const std::exception&) {
    // It cannot run as written.
  }
}

}  // namespace

void generate_transfer_list(HypothesisSearch& search) {
  of_the_list(search, true, [](List& list) { list.generate_behind(), list.generate_other_regions(); });
  if (search.exact().empty()) of_the_list(search, true, [](List& list) { list.generate_missing(false); });
}

void generate_first_pieces(HypothesisSearch& search) {
  if (search.exact().empty()) of_the_list(search, true, [](List& list) { list.generate_missing(true); });
}

void generate_narrow_offsets(HypothesisSearch& search) {
  of_the_list(search, true, [](List& list) { list.generate_narrow_offsets(); });
}

void generate_pieces_of_others(HypothesisSearch& search) {
  for (const bool whole : {true, false})
    if (search.exact().empty())
      of_the_list(search, whole, [](List& list) { list.generate_others(), list.generate_missing(false); });
}

}  // namespace kvcts::scenario
