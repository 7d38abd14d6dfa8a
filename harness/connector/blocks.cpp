#include "connector/blocks.hpp"

#include <algorithm>
#include <cstdlib>

#include "connector/planner.hpp"

namespace kvcts::connector {

namespace {

std::int64_t itemsize(const layout::TensorView& tensor) { return std::max(1, layout::bits(tensor.dtype) / 8); }

/// Bytes of the dims from `first` on if they fill one stretch, in any order; otherwise 0.
std::int64_t dense_bytes(const layout::TensorView& tensor, std::size_t first) {
  std::vector<layout::Dim> dims(tensor.dims.begin() + static_cast<std::ptrdiff_t>(first), tensor.dims.end());
  std::sort(dims.begin(), dims.end(), [](const auto& a, const auto& b) { return a.stride < b.stride; });
  std::int64_t bytes = tensor.dims.back().axes == "*" ? 1 : itemsize(tensor);
  for (const auto& dim : dims) {
    if (dim.extent > 1 && dim.stride != bytes) return 0;
    bytes *= dim.extent;
  }
  return bytes;
}

/// Axes of a tensor from outermost to innermost, without blocks: the meaning of an engine's NHD or HND setting.
std::string inner_axes(const layout::TensorView& tensor) {
  std::vector<layout::Dim> dims = tensor.dims;
  std::stable_sort(dims.begin(), dims.end(), [](const auto& a, const auto& b) { return a.stride > b.stride; });
  std::string out;
  for (const auto& dim : dims) out += dim.axes == "B" ? "" : dim.axes;
  return out;
}

}  // namespace

Blocks::Blocks(const nlohmann::json& options) {
  for (const auto& [key, value] : options.items()) {
    if (key == "refuse") {
      for (const auto& rule : value) {
        const auto text = rule.get<std::string>();
        if (text != "order" && text != "blocks" && text != "ranks")
          throw std::runtime_error("connector option refuse: expected order, blocks or ranks, found '" + text + "'");
        refuse_.insert(text);
      }
    } else if (key == "at") {
      at_ = value.get<std::map<std::string, std::string>>();
    } else if (key == "heads_apart") {
      heads_apart_ = value.get<bool>();
    } else {
      throw std::runtime_error("connector option: expected refuse, heads_apart or at, found '" + key + "'");
    }
  }
}

std::string Blocks::at(const std::string& rule) const {
  const auto found = at_.find(rule);
  return found == at_.end() ? "" : " (" + found->second + ")";
}

std::vector<Blocks::Region> Blocks::regions_of(const RankCache& rank, int first_allocation) const {
  std::vector<Region> out;
  for (const auto& tensor : rank.claim.tensors) {
    const std::int64_t stride = tensor.dims.at(0).stride;
    if (const std::int64_t bytes = dense_bytes(tensor, 1); bytes > 0) {
      out.push_back({first_allocation + tensor.allocation, tensor.offset, stride, bytes});
      continue;
    }
    const std::int64_t bytes = tensor.dims.size() > 2 ? dense_bytes(tensor, 2) : 0;
    if (bytes == 0)
      throw Raised("AssertionError",
                   tensor.name + " cannot be cut into stretches of bytes, not even head by head" + at("stretch"));
    for (std::int64_t i = 0; i < tensor.dims[1].extent; ++i)
      out.push_back({first_allocation + tensor.allocation, tensor.offset + i * tensor.dims[1].stride, stride, bytes});
  }
  return out;
}

void Blocks::register_caches(const ResolvedCase& view, Side side) {
  for (const auto& group : view.groups) {
    for (const auto& rank : (side == Side::producer ? group.producer : group.consumer).ranks) {
      regions_of(rank, 0);
      for (const auto& tensor : rank.claim.tensors) {
        if (!refuse_.contains("blocks") || tensor.dims.at(0).extent == rank.geometry.blocks) continue;
        throw Raised("AssertionError", "All kv cache tensors must have the same number of blocks: " + tensor.name +
                                           " begins with a dim of " + std::to_string(tensor.dims[0].extent) +
                                           ", the pool has " + std::to_string(rank.geometry.blocks) + at("blocks"));
      }
    }
  }
}

void Blocks::check_pair(const Group& group) const {
  const auto &p = group.producer.ranks, &c = group.consumer.ranks;
  const auto &mine = p.at(0).claim.tensors, &theirs = c.at(0).claim.tensors;
  for (std::size_t i = 0; refuse_.contains("order") && i < std::min(mine.size(), theirs.size()); ++i) {
    const std::string a = inner_axes(mine[i]), b = inner_axes(theirs[i]);
    if (a != b)
      throw Refusal("the producer's blocks are " + a + ", the consumer's " + b + ", and both sides must have one layout" +
                    at("order"));
  }
  if (p.size() == c.size()) return;
  if (refuse_.contains("ranks"))
    throw Refusal("producer has " + std::to_string(p.size()) + " ranks, consumer " + std::to_string(c.size()) + at("ranks"));
  if (std::max(p.size(), c.size()) % std::min(p.size(), c.size()) != 0)
    throw Refusal(std::to_string(p.size()) + " and " + std::to_string(c.size()) +
                  " ranks: one must be a multiple of the other" + at("ranks"));
  const bool split = p.at(0).geometry.heads != c.at(0).geometry.heads;
  const std::string inner = inner_axes(mine.at(0));
  if (heads_apart_ && split && inner.find('H') > inner.find('N') && p.at(0).geometry.block_size > 1)
    throw Refusal("unequal numbers of ranks split a block by heads, but in " + inner + " heads are not separate: use HND" +
                  at("heads"));
}

Plan Blocks::plan(const ResolvedCase& view, process::Progress progress) {
  Plan plan;
  int producer_first = 0, consumer_first = 0;
  for (const auto& group : view.groups) {
    check_pair(group);
    const auto &producers = group.producer.ranks, &consumers = group.consumer.ranks;
    std::vector<std::vector<Region>> from, to;
    for (const auto& rank : producers)
      from.push_back(regions_of(rank, producer_first)), producer_first += static_cast<int>(rank.claim.allocations.size());
    for (const auto& rank : consumers)
      to.push_back(regions_of(rank, consumer_first)), consumer_first += static_cast<int>(rank.claim.allocations.size());
    const std::size_t most = std::max(from.size(), to.size());
    for (std::size_t pair = 0; pair < most; ++pair) {
      // The side with more ranks names the pair; its piece is the pair's share of the other side's block.
      const std::size_t p = pair * from.size() / most, c = pair * to.size() / most;
      if (from[p].size() != to[c].size())
        throw Refusal("producer registered " + std::to_string(from[p].size()) + " regions, consumer " +
                      std::to_string(to[c].size()) + at("regions"));
      for (std::size_t i = 0; i < from[p].size(); ++i) {
        const Region &s = from[p][i], &t = to[c][i];
        const std::int64_t piece = std::min(s.length, t.length),
                           share = static_cast<std::int64_t>(pair % (most / std::min(from.size(), to.size())));
        const bool replicas = from.size() != to.size() && s.length == t.length;
        if (replicas && from.size() > to.size() && share != 0) continue;
        const std::int64_t wanted = replicas || from.size() == to.size()
                                        ? piece
                                        : piece * static_cast<std::int64_t>(most / std::min(from.size(), to.size()));
        if (std::max(s.length, t.length) != wanted)
          throw Refusal("region " + std::to_string(i) + ": a block of " + std::to_string(s.length) + " bytes here and " +
                        std::to_string(t.length) + " there do not fit " + std::to_string(from.size()) + " and " +
                        std::to_string(to.size()) + " ranks" + at("length"));
        for (const auto& request : group.requests) {
          for (std::size_t b = 0; b < std::min(request.producer_blocks.size(), request.consumer_blocks.size()); ++b) {
            plan.copies.push_back(
                {s.allocation, s.offset + request.producer_blocks[b] * s.stride + (s.length > piece ? share * piece : 0),
                 t.allocation, t.offset + request.consumer_blocks[b] * t.stride + (t.length > piece ? share * piece : 0),
                 piece});
          }
        }
      }
      progress.set(pair + 1, most);
    }
  }
  join(plan.copies);
  plan.note = "whole blocks as bytes";
  return plan;
}

}  // namespace kvcts::connector
