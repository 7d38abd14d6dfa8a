// Content that lies where no step puts it: an extra step wrote it, or one that reached further than it should.
// Which request it is, which of its tokens and in which blocks is read off the bytes.
#include <map>
#include <ranges>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

/// What wrong bytes of a memory hold of a request's content, each element in its own slot and channel of some block.
struct Stray {
  std::string request, memory;
  TableVotes votes;  ///< by the position of the block in the request; it may have no such block
  std::set<std::int64_t> tokens, layers;
};

bool in_place(const Symbol& is, const Element& at, std::int64_t first_token, std::int64_t slots) {
  return is.token >= first_token && (is.token - first_token) % slots == at.slot && is.component == at.component &&
         is.kv == at.kv && is.layer == at.layer && is.head == at.head && is.channel == at.channel;
}

std::vector<Stray> strays(const HypothesisSearch& w) {
  std::multimap<std::uint32_t, std::string> requests;
  for (const auto& [name, request] : w.scenario().requests) requests.emplace(request.generation, name);
  std::vector<Stray> out;
  for (const auto& [memory, declared] : w.scenario().memories) {
    if (declared.side == "store" || declared.view.cache.empty()) continue;
    View view = declared.view;
    view.of = memory;
    const Lens lens(view, w.evidence().space, {}, {}, 0);
    std::map<std::string, Stray> found;
    for (const Clue& clue : w.clues().all) {
      if (!clue.wrong || clue.is.kind != Symbol::Kind::tag || clue.is.byte != 0 || !lens.sees(clue.buffer)) continue;
      const auto at = lens.at({clue.buffer, clue.offset});
      if (!at || at->block < 0) continue;
      const auto [begin, end] = requests.equal_range(clue.is.generation);
      for (const auto& [generation, name] : std::ranges::subrange(begin, end)) {
        const Request& request = w.scenario().requests.at(name);
        if (request.positions.contains(memory) || !in_place(clue.is, *at, request.first_token, lens.slots())) continue;
        Stray& stray = found.try_emplace(name, Stray{name, memory, {}, {}, {}}).first->second;
        ++stray.votes[(clue.is.token - request.first_token) / lens.slots()][at->block];
        stray.tokens.insert(clue.is.token), stray.layers.insert(clue.is.layer);
      }
    }
    for (auto& [name, stray] : found) out.push_back(std::move(stray));
  }
  return out;
}

/// A request's table in a memory with the blocks in which its content is, whatever it has there.
Ids with_blocks(Ids table, const TableVotes& votes) {
  const auto size = static_cast<std::size_t>(votes.rbegin()->first + 1);
  if (table.size() < size) table.resize(size, no_block);
  return outvoted(std::move(table), votes);
}

/// A write of its own, after any step.
void generate_write(HypothesisSearch& w, const Stray& stray) {
  const Memory& memory = w.scenario().memories.at(stray.memory);
  const auto [low, high] = domain_of(memory.view, Axis::layer);
  for (std::size_t i = 0; i < w.scenario().steps.size() && !w.spent(); ++i) {
    const Ids own = table_of(w, i, stray.request, stray.memory).value_or(Ids{});
    const Ids ids = with_blocks(own, stray.votes);
    Action extra;
    extra.op = Operation::write, extra.request = stray.request;
    extra.to = {memory.view};
    extra.to.front().of = stray.memory;
    if (ids != own) extra.to_blocks = ids;
    const auto request = w.request_at(i, stray.request);
    if (static_cast<std::int64_t>(stray.tokens.size()) != request->tokens)
      extra.pick.tokens.emplace(stray.tokens.begin(), stray.tokens.end());
    if (static_cast<std::int64_t>(stray.layers.size()) != high - low)
      extra.pick.layers.emplace(stray.layers.begin(), stray.layers.end());
    CandidateSteps bodies = w.bodies();
    bodies[i].push_back(extra);
    Ids shown;
    for (const auto& [position, votes] : stray.votes) shown.push_back(most_voted(votes));
    w.attempt(ids == own ? FaultClass::stale_block : FaultClass::wrong_block_id,
              "request " + stray.request + " was written to blocks " + list_words(shown) + " of " + stray.memory +
                  " after " + symbol_of(w, i) + ", where nothing was meant",
              std::move(bodies));
  }
}

/// A write of the request that continues behind its last block.
void generate_longer(HypothesisSearch& w, const Stray& stray) {
  for (std::size_t i = 0; i < w.scenario().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (a.op != Operation::write || a.request != stray.request || memory_of(a.to) != stray.memory || a.pick.tokens) continue;
    const auto own = table_at(w, i, false);
    const auto request = w.request_at(i, a.request);
    const std::int64_t end = *stray.tokens.rbegin() + 1;
    if (!own || end <= request->first_token + request->tokens) continue;
    Action body = a;
    body.to_blocks = with_blocks(*own, stray.votes);
    body.pick.tokens.emplace();
    for (std::int64_t t = request->first_token; t < end; ++t) body.pick.tokens->push_back(t);
    w.attempt(FaultClass::wrong_block_id,
              std::to_string(end - request->first_token) + " tokens instead of " + std::to_string(request->tokens) +
                  ", to blocks " + list_words(*body.to_blocks) + " instead of " + list_words(*own) + " of " + stray.memory +
                  " in " + symbol_of(w, i),
              i, body);
  }
}

}  // namespace

void generate_strays(HypothesisSearch& w) {
  for (const Stray& stray : strays(w)) {
    generate_write(w, stray);
    generate_longer(w, stray);
  }
}

}  // namespace kvcts::scenario
