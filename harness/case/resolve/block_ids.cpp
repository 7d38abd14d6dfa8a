#include "case/resolve/block_ids.hpp"

#include <algorithm>
#include <iterator>

#include "case/spec.hpp"
#include "case/text.hpp"

namespace kvcts {

using text::fail;

namespace {

constexpr std::int64_t listed_pool = 1 << 20, longest_list = 1 << 22;

}  // namespace

BlockIds::BlockIds(const std::string& rule, bool producer, std::int64_t blocks, std::uint64_t seed,
                   std::set<std::int64_t> taken)
    : rule_(rule),
      producer_(producer),
      shuffled_(rule == "shuffled" || rule == (producer ? "gather" : "scatter")),
      blocks_(blocks),
      state_(seed),
      taken_(std::move(taken)) {
  if (std::find(block_id_rules.begin(), block_id_rules.end(), rule) == block_id_rules.end())
    fail("ids: expected shuffled, identity, reversed, gather, scatter, gaps or edges, found '" + rule + "'");
  std::erase_if(taken_, [&](std::int64_t id) { return id < 0 || id >= blocks; });
  if (blocks <= listed_pool) list();
}

std::vector<std::int64_t> BlockIds::take(std::int64_t count, const char* side) {
  if (count > left()) {
    fail(std::string(side) + ": requests need " + std::to_string(count) + " more blocks but only " + std::to_string(left()) +
         " are free; raise geometry.blocks or lower tokens");
  }
  if (count > longest_list)
    fail(std::string(side) + ": a request of " + std::to_string(count) + " blocks: expected at most " +
         std::to_string(longest_list) + "; lower tokens or raise block_size");
  std::vector<std::int64_t> out;
  for (; count > 0; --count) out.push_back(next());
  return out;
}

void BlockIds::list() {
  std::vector<std::int64_t> all;
  for (std::int64_t place = 0; place < blocks_; ++place) all.push_back(ordered(place));
  // std::shuffle differs between libraries; ids are part of a case, so the draw is explicit.
  for (std::size_t i = all.size(); shuffled_ && i > 1; --i) std::swap(all[i - 1], all[static_cast<std::size_t>(draw() % i)]);
  std::copy_if(all.begin(), all.end(), std::back_inserter(free_), [&](auto id) { return !taken_.contains(id); });
  // Lost indices hit block 0: keep it in use.
  if (shuffled_ && free_.size() > 1) {
    auto zero = std::find(free_.begin(), free_.end(), 0);
    if (zero != free_.end()) std::iter_swap(free_.begin() + 1, zero);
  }
}

std::int64_t BlockIds::ordered(std::int64_t place) const {
  if (rule_ == "reversed") return blocks_ - 1 - place;
  if (rule_ == "edges") return (place % 2 == 0) == producer_ ? blocks_ - 1 - place / 2 : place / 2;
  if (rule_ != "gaps") return place;
  const std::int64_t first = producer_ ? (blocks_ + 1) / 2 : blocks_ / 2;  // so many even, or odd, ids
  return place < first ? 2 * place + (producer_ ? 0 : 1) : 2 * (place - first) + (producer_ ? 1 : 0);
}

std::uint64_t BlockIds::draw() {
  state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
  return state_ >> 33;
}

std::int64_t BlockIds::next() {
  if (blocks_ <= listed_pool) return free_[static_cast<std::size_t>(given_++)];
  for (;;) {
    std::int64_t id = 0;
    if (!shuffled_)
      id = ordered(cursor_++);
    else if (given_ != 1 || taken_.contains(0) || drawn_.contains(0))
      id = static_cast<std::int64_t>((draw() << 31 | draw()) % static_cast<std::uint64_t>(blocks_));
    if (taken_.contains(id) || !drawn_.insert(id).second) continue;
    ++given_;
    return id;
  }
}

}  // namespace kvcts
