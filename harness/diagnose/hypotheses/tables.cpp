// Block tables that are right for something else: ids of another unit, of another time, of a larger pool.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

// Ids of the larger blocks, each made of `ratio` blocks. Nothing if the list does not divide so.
std::optional<Ids> larger(const Ids& ids, std::int64_t ratio) {
  Ids out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto within = static_cast<std::int64_t>(i) % ratio;
    if (within == 0 ? ids[i] % ratio != 0 || ids[i] < 0 : ids[i] != ids[i - 1] + 1) return std::nullopt;
    if (within == 0) out.push_back(ids[i] / ratio);
  }
  return out.empty() || static_cast<std::int64_t>(ids.size()) < ratio ? std::nullopt : std::optional(out);
}

Ids smaller(const Ids& ids, std::int64_t ratio) {
  Ids out;
  for (const std::int64_t id : ids) {
    for (std::int64_t k = 0; k < ratio; ++k) out.push_back(id * ratio + k);
  }
  return out;
}

// The same with the factor at the wrong place: id + k * pool.
Ids strided(const Ids& ids, std::int64_t ratio, std::int64_t pool) {
  Ids out;
  for (const std::int64_t id : ids) {
    for (std::int64_t k = 0; k < ratio; ++k) out.push_back(id + k * pool);
  }
  return out;
}

// Blocks of a scheduler, counted in kernel blocks with another ratio. Lists of different lengths pair up to the shorter.
void generate_ratios(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  for (const std::int64_t right : {2, 3, 4, 8, 16}) {
    for (const bool at_source : {true, false}) {
      const auto table = table_at(search, step, at_source);
      const auto coarse = table ? larger(*table, right) : std::nullopt;
      if (!coarse) continue;
      const auto across = table_at(search, step, !at_source);
      const std::int64_t pool = domain_of((at_source ? a.from : a.to).front(), Axis::block).second / right;
      Action astray = a;
      (at_source ? astray.from_blocks : astray.to_blocks) = strided(*coarse, right, pool);
      search.attempt(FaultClass::wrong_block_size,
                     "ids " + list_text(*coarse) + " of blocks of " + std::to_string(right) + " expanded to id + k * " +
                         std::to_string(pool) + " in " + symbol_of(search, step),
                     step, astray);
      for (const std::int64_t wrong : {1, 2, 3, 4, 8, 16, 32}) {
        if (wrong == right) continue;
        const std::string words = "ids " + list_text(*coarse) + " of blocks of " + std::to_string(right) + " expanded by " +
                                  std::to_string(wrong) + " in " + symbol_of(search, step);
        Action body = a;
        Ids mine = smaller(*coarse, wrong);
        (at_source ? body.from_blocks : body.to_blocks) = mine;
        search.attempt(FaultClass::wrong_block_size, words, step, body);
        if (!across) continue;
        Ids theirs = *across;
        const std::size_t n = std::min(mine.size(), theirs.size());
        mine.resize(n), theirs.resize(n);
        (at_source ? body.from_blocks : body.to_blocks) = mine;
        (at_source ? body.to_blocks : body.from_blocks) = theirs;
        search.attempt(FaultClass::wrong_block_size, words + ", as far as the lists of both ends go", step, body);
        if (const auto other = larger(*across, right); other && at_source) {
          body.from_blocks = smaller(*coarse, wrong), body.to_blocks = smaller(*other, wrong);
          search.attempt(FaultClass::wrong_block_size, words + ", at both ends", step, body);
        }
      }
    }
  }
}

// The request's table at another time.
void generate_times(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  for (const bool at_source : {true, false}) {
    const std::string memory = memory_of(at_source ? a.from : a.to);
    for (std::size_t k = 0; k < search.scenario().steps.size(); ++k) {
      const Action& assign = search.action(k);
      if (assign.op != Operation::assign || assign.request != a.request || !assign.blocks.contains(memory)) continue;
      Action body = a;
      (at_source ? body.from_blocks : body.to_blocks) =
          table_of(search, k < step ? k : k + 1, a.request, memory).value_or(Ids{});
      search.attempt(FaultClass::stale_block,
                     "the block table of " + a.request + " as it was " + (k < step ? "before " : "after ") +
                         symbol_of(search, k) + " in " + symbol_of(search, step),
                     step, body);
    }
  }
}

// A fill that hit other blocks: those that hold its bytes.
void generate_filled(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  if (!a.to_blocks || a.to.size() != 1) return;
  const AddressToElement to_element(a.to[0], search.evidence().space, {}, {}, 0);
  std::set<std::int64_t> hit, spared;
  for (const Attribution& attribution : search.attributions().all) {
    if (!attribution.wrong) continue;
    const auto element = to_element.at({attribution.buffer, attribution.offset});
    if (!element || element->block < 0) continue;
    const bool meant = std::find(a.to_blocks->begin(), a.to_blocks->end(), element->block) != a.to_blocks->end();
    (meant ? spared : hit).insert(element->block);
  }
  // Intended constant bytes tell nothing: a block of the list with no wrong bytes was hit, unless bytes were kept that
  // another block lost.
  Ids all, moved;
  for (const std::int64_t id : *a.to_blocks) {
    if (!spared.contains(id)) all.push_back(id), moved.push_back(id);
  }
  for (const std::int64_t id : hit) all.push_back(id);
  const auto attempt = [&](const Ids& ids) {
    Action body = a;
    body.to_blocks = ids;
    search.attempt(FaultClass::wrong_block_id,
                   "blocks " + list_text(ids) + " instead of " + list_text(*a.to_blocks) + " in " + symbol_of(search, step),
                   step, body);
  };
  attempt(all);
  attempt({hit.begin(), hit.end()});
  for (std::size_t k = 0; k < a.to_blocks->size() && hit.size() == 1; ++k) {
    Ids one = *a.to_blocks;
    one[k] = *hit.begin();
    attempt(one);
  }
}

// Blocks of two sizes, moved one by one: as much as fits into both.
void one_by_one(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  const auto r = search.request_at(step, a.request);
  if (a.op != Operation::move || !r) return;
  const std::int64_t p = slots_of(a.from.front()), c = slots_of(a.to.front());
  if (p == c) return;
  std::vector<std::int64_t> from, to;
  for (std::int64_t i = 0; i * std::max(p, c) < r->tokens; ++i) {
    for (std::int64_t s = 0; s < std::min(p, c); ++s) {
      if (i * p + s >= r->tokens || i * c + s >= r->tokens) continue;
      from.push_back(r->first_token + i * p + s), to.push_back(r->first_token + i * c + s);
    }
  }
  Action body = a;
  body.pick.tokens = from, body.pick_to.tokens = to;
  search.attempt(FaultClass::wrong_block_size,
                 "block i went to block i although the source's hold " + std::to_string(p) +
                     " tokens and the destination's " + std::to_string(c) + " in " + symbol_of(search, step),
                 step, body);
}

}  // namespace

void generate_one_by_one(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) one_by_one(search, i);
}

void generate_tables(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op == Operation::fill) generate_filled(search, i);
    if (a.op != Operation::move && a.op != Operation::read && a.op != Operation::write && a.op != Operation::put &&
        a.op != Operation::get)
      continue;
    generate_ratios(search, i);
    generate_times(search, i);
  }
}

// Each request of a batch by another's table, or by whatever list its own bytes show.
void generate_tables_together(HypothesisSearch& search) {
  for (const bool at_source : {true, false}) {
    CandidateSteps bodies = search.bodies();
    std::string words;
    std::size_t changed = 0, old = 0;
    for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
      const Action& a = search.action(i);
      const auto& views = at_source ? a.from : a.to;
      if ((a.op != Operation::move && a.op != Operation::read) || views.empty()) continue;
      std::vector<const ObservedMove*> taken;
      for (const ObservedMove& s : search.observed_moves(i)) {
        if (s.taken || !at_source) taken.push_back(&s);
      }
      const Ids table = table_at(search, i, at_source).value_or(Ids{}), shown = table_shown(search, i, at_source, taken);
      if (table.empty() || shown == table) continue;
      const std::string memory = memory_of(views);
      Ids ids = shown;
      std::string whose;
      for (const auto& [name, other] : search.scenario().requests) {
        const auto theirs = name == a.request ? std::nullopt : table_of(search, i, name, memory);
        const std::size_t n = theirs ? std::min(theirs->size(), shown.size()) : 0;
        // As far as both go; what their table lacks stayed unchanged, or is beyond this request.
        if (n == 0 || !std::equal(shown.begin(), shown.begin() + static_cast<std::ptrdiff_t>(n), theirs->begin()) ||
            !std::equal(shown.begin() + static_cast<std::ptrdiff_t>(n), shown.end(),
                        table.begin() + static_cast<std::ptrdiff_t>(n)))
          continue;
        ids = *theirs, whose = " (those of " + name + ")";
      }
      (at_source ? bodies[i].front().from_blocks : bodies[i].front().to_blocks) = ids;
      words += (words.empty() ? "" : "; ") + ("blocks " + list_text(ids)) + " instead of " + list_text(table) + " of " +
               memory + whose + " in " + symbol_of(search, i);
      ++changed, old += outdated(search, i, memory, ids, table);
    }
    if (changed > 1)
      search.attempt(old == changed ? FaultClass::stale_block : FaultClass::wrong_block_id, words, std::move(bodies));
  }
}

namespace {

/// One id differs, and is a small number beside the pool, such as -1.
bool one_beside(const Ids& table, const Ids& ids, const View& view) {
  constexpr std::int64_t near = 16;
  const std::int64_t blocks = domain_of(view, layout::Axis::block).second;
  std::int64_t changed = 0, beside = 0;
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (k < table.size() && ids[k] == table[k]) continue;
    ++changed;
    beside += (ids[k] < 0 && ids[k] >= -near) || (ids[k] >= blocks && ids[k] < blocks + near);
  }
  return changed == 1 && beside == 1;
}

// An id beyond the pool still has an address: derived from the bytes, by the distance from where block 0 would be.
class OutsideIds {
 public:
  OutsideIds(HypothesisSearch& search, std::size_t step, bool at_source, const ScenarioRequest& request, Ids table)
      : search_(search), step_(step), at_source_(at_source), request_(request), table_(std::move(table)) {}

  void generate(bool beside_only) {
    // An access outside is to a block that the pool lacks.
    constexpr std::size_t most = 32;
    const Ids voted = outvoted(table_, votes_of_bytes());
    const auto outside = accessed_outside();
    for (const auto& [block, id] : outside) {
      if (outside.size() > most || block >= static_cast<std::int64_t>(table_.size())) break;
      Ids ids = table_;
      ids[static_cast<std::size_t>(block)] = id;
      attempt(ids, beside_only);
    }
    if (voted != table_) attempt(voted, beside_only);
  }

 private:
  void attempt(const Ids& ids, bool beside_only) {
    if (beside_only && !one_beside(table_, ids, view_)) return;
    Action body = search_.action(step_);
    (at_source_ ? body.from_blocks : body.to_blocks) = ids;
    const std::int64_t blocks = domain_of(view_, layout::Axis::block).second;
    Ids strangers;
    for (const std::int64_t id : ids)
      if (id != no_block && (id < 0 || id >= blocks)) strangers.push_back(id);
    search_.attempt(FaultClass::wrong_block_id,
                    "blocks " + list_text(ids) + " instead of " + list_text(table_) + " of " + memory_of(view_) +
                        (strangers.empty() ? "" : fmt::format(" ({} not among its {})", list_text(strangers), blocks)) +
                        " in " + symbol_of(search_, step_),
                    step_, body);
  }

  void vote(TableVotes& votes, const ViewElement& e, BufferAddress address) const {
    const auto first = to_address_.at(e, 0), second = to_address_.at(e, 1);
    if (!e.token || *e.token < request_.first_token || !first || !second || first->buffer != address.buffer) return;
    const std::int64_t stride = second->offset - first->offset, distance = address.offset - first->offset;
    if (stride != 0 && distance % stride == 0)
      ++votes[(*e.token - request_.first_token) / to_address_.slots()][distance / stride];
  }

  TableVotes votes_of_bytes() {
    const auto own = [&](const Symbol& symbol) {
      return symbol.kind == Symbol::Kind::tag && symbol.byte == 0 && symbol.generation == request_.generation;
    };
    const auto element = [](const Symbol& symbol) {
      return ViewElement{symbol.component, symbol.dtype, symbol.kv, symbol.layer, symbol.head, symbol.channel,
                         symbol.token,     -1,           0};
    };
    TableVotes votes;
    std::int64_t budget = 4000;
    for (const Attribution& attribution : search_.attributions().all) {
      const Symbol &is = attribution.is, &must = attribution.must;
      if (!attribution.wrong || attribution.untouched || --budget < 0) continue;
      if (!at_source_) {
        if (own(is)) vote(votes, element(is), {attribution.buffer, attribution.offset});
      } else if (own(must) && is.kind == Symbol::Kind::poison) {
        vote(votes, element(must), {is.buffer, is.offset});
      } else if (own(must) && is.kind == Symbol::Kind::tag) {
        for (const BufferAddress& p : search_.element_index().of(is)) vote(votes, element(must), p);
      }
    }
    return votes;
  }

  std::set<std::pair<std::int64_t, std::int64_t>> accessed_outside() {
    std::set<std::pair<std::int64_t, std::int64_t>> out;
    for (const nlohmann::json& event : search_.evidence().observation.events) {
      if (event.value("violation", "") != "outside" || event.value("step", "") != search_.scenario().steps[step_].name)
        continue;
      TableVotes there;
      for (const ObservedMove& s : search_.observed_moves(step_)) {
        if (s.at) vote(there, *s.at, {event.value("backing", -1), event.value("offset", std::int64_t{0})});
      }
      for (const auto& [block, ids] : there) {
        for (const auto& [id, n] : ids) out.emplace(block, id);
      }
    }
    return out;
  }

  HypothesisSearch& search_;
  std::size_t step_;
  bool at_source_;
  const ScenarioRequest& request_;
  Ids table_;
  const View& view_ = (at_source_ ? search_.action(step_).from : search_.action(step_).to)[0];
  ElementToAddress to_address_{search_.locators().of(view_), table_, {}, request_.first_token};
};

void generate_outside(HypothesisSearch& search, bool beside_only) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    const auto request = search.request_at(i, a.request);
    if (!request ||
        (a.op != Operation::move && a.op != Operation::read && a.op != Operation::write && a.op != Operation::get))
      continue;
    for (const bool at_source : {true, false}) {
      auto table = table_at(search, i, at_source);
      if ((at_source ? a.from : a.to).size() == 1 && table && !table->empty())
        OutsideIds(search, i, at_source, *request, std::move(*table)).generate(beside_only);
    }
  }
}

}  // namespace

void generate_beside(HypothesisSearch& search) { generate_outside(search, true); }
void generate_beyond(HypothesisSearch& search) { generate_outside(search, false); }

}  // namespace kvcts::scenario
