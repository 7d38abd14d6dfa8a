// Content that lies where no step puts it: an extra step wrote it, or one that reached further than it should.
// Which request it is, which of its tokens and in which blocks is read off the bytes.
#include <map>
#include <ranges>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

/// What wrong bytes of a memory hold of a request's content, each element in its own slot and channel of some block.
struct UnexpectedSource {
  std::string request, memory;
  TableVotes votes;  ///< by the position of the block in the request; it may have no such block
  std::set<std::int64_t> tokens, layers;
};

bool in_place(const Symbol& is, const ViewElement& at, std::int64_t first_token, std::int64_t slots) {
  return is.token >= first_token && (is.token - first_token) % slots == at.slot && is.component == at.component &&
         is.kv == at.kv && is.layer == at.layer && is.head == at.head && is.channel == at.channel;
}

std::vector<UnexpectedSource> unexpected_sources(const HypothesisSearch& search) {
  std::multimap<std::uint32_t, std::string> requests;
  for (const auto& [name, request] : search.scenario().requests) requests.emplace(request.generation, name);
  std::vector<UnexpectedSource> out;
  for (const auto& [memory, declared] : search.scenario().memories) {
    if (declared.side == "store" || declared.view.cache.empty()) continue;
    View view = declared.view;
    view.of = memory;
    const AddressToElement to_element(view, search.evidence().space, {}, {}, 0);
    std::map<std::string, UnexpectedSource> found;
    for (const Attribution& attribution : search.attributions().all) {
      if (!attribution.wrong || attribution.is.kind != Symbol::Kind::tag || attribution.is.byte != 0 ||
          !to_element.sees(attribution.buffer))
        continue;
      const auto at = to_element.at({attribution.buffer, attribution.offset});
      if (!at || at->block < 0) continue;
      const auto [begin, end] = requests.equal_range(attribution.is.generation);
      for (const auto& [generation, name] : std::ranges::subrange(begin, end)) {
        const ScenarioRequest& request = search.scenario().requests.at(name);
        if (request.positions.contains(memory) || !in_place(attribution.is, *at, request.first_token, to_element.slots()))
          continue;
        UnexpectedSource& unexpected = found.try_emplace(name, UnexpectedSource{name, memory, {}, {}, {}}).first->second;
        ++unexpected.votes[(attribution.is.token - request.first_token) / to_element.slots()][at->block];
        unexpected.tokens.insert(attribution.is.token), unexpected.layers.insert(attribution.is.layer);
      }
    }
    for (auto& [name, unexpected] : found) out.push_back(std::move(unexpected));
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
void generate_write(HypothesisSearch& search, const UnexpectedSource& unexpected) {
  const Memory& memory = search.scenario().memories.at(unexpected.memory);
  const auto [low, high] = domain_of(memory.view, Axis::layer);
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Ids own = table_of(search, i, unexpected.request, unexpected.memory).value_or(Ids{});
    const Ids ids = with_blocks(own, unexpected.votes);
    Action extra;
    extra.op = Operation::write, extra.request = unexpected.request;
    extra.to = {memory.view};
    extra.to.front().of = unexpected.memory;
    if (ids != own) extra.to_blocks = ids;
    const auto request = search.request_at(i, unexpected.request);
    if (static_cast<std::int64_t>(unexpected.tokens.size()) != request->tokens)
      extra.pick.tokens.emplace(unexpected.tokens.begin(), unexpected.tokens.end());
    if (static_cast<std::int64_t>(unexpected.layers.size()) != high - low)
      extra.pick.layers.emplace(unexpected.layers.begin(), unexpected.layers.end());
    CandidateSteps bodies = search.bodies();
    bodies[i].push_back(extra);
    Ids shown;
    for (const auto& [position, votes] : unexpected.votes) shown.push_back(most_voted(votes));
    search.attempt(ids == own ? FaultClass::stale_block : FaultClass::wrong_block_id,
                   "request " + unexpected.request + " was written to blocks " + list_text(shown) + " of " +
                       unexpected.memory + " after " + symbol_of(search, i) + ", where nothing was meant",
                   std::move(bodies));
  }
}

/// A write of the request that continues behind its last block.
void generate_longer(HypothesisSearch& search, const UnexpectedSource& unexpected) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op != Operation::write || a.request != unexpected.request || memory_of(a.to) != unexpected.memory || a.pick.tokens)
      continue;
    const auto own = table_at(search, i, false);
    const auto request = search.request_at(i, a.request);
    const std::int64_t end = *unexpected.tokens.rbegin() + 1;
    if (!own || end <= request->first_token + request->tokens) continue;
    Action body = a;
    body.to_blocks = with_blocks(*own, unexpected.votes);
    body.pick.tokens.emplace();
    for (std::int64_t t = request->first_token; t < end; ++t) body.pick.tokens->push_back(t);
    search.attempt(FaultClass::wrong_block_id,
                   std::to_string(end - request->first_token) + " tokens instead of " + std::to_string(request->tokens) +
                       ", to blocks " + list_text(*body.to_blocks) + " instead of " + list_text(*own) + " of " +
                       unexpected.memory + " in " + symbol_of(search, i),
                   i, body);
  }
}

}  // namespace

void generate_unexpected(HypothesisSearch& search) {
  for (const UnexpectedSource& unexpected : unexpected_sources(search)) {
    generate_write(search, unexpected);
    generate_longer(search, unexpected);
  }
}

}  // namespace kvcts::scenario
