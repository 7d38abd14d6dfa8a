#include "diagnose/hypotheses/copy_list.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvcts::scenario {

std::vector<ListedCopy> copies_of(HypothesisSearch& search, std::size_t step) {
  const SearchEvidence& e = search.evidence();
  const CopyProgram program =
      record(search.scenario(), e.space, {StepExecution{search.scenario().steps[step].name, search.action(step)}},
             search.locators());
  std::vector<ListedCopy> out;
  for (const ProgramOp& op : program.ops) {
    if (op.kind == ProgramOp::Kind::check) continue;
    if (op.kind == ProgramOp::Kind::pattern && op.src == 0 && op.dst_buffer < static_cast<int>(program.own)) {
      out.push_back({{-1, op.dst}, {op.dst_buffer, op.dst}, op.n});
      continue;
    }
    if (op.kind != ProgramOp::Kind::copy || op.src_buffer >= static_cast<int>(program.own) ||
        op.dst_buffer >= static_cast<int>(program.own))
      return {};
    out.push_back({{op.src_buffer, op.src}, {op.dst_buffer, op.dst}, op.n});
  }
  return out;
}

std::vector<ListedCopy> join_contiguous(const std::vector<ListedCopy>& list) {
  std::vector<std::size_t> order(list.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(list[i].to.buffer, list[i].to.offset); });
  std::vector<std::pair<std::size_t, ListedCopy>> found;
  for (const std::size_t i : order) {
    const auto follows = [&](const BufferAddress& before, const BufferAddress& here) {
      return before.buffer == here.buffer && before.offset + found.back().second.bytes == here.offset;
    };
    if (!found.empty() && follows(found.back().second.to, list[i].to) && follows(found.back().second.from, list[i].from)) {
      found.back().first = std::min(found.back().first, i);
      found.back().second.bytes += list[i].bytes;
    } else {
      found.emplace_back(i, list[i]);
    }
  }
  std::ranges::sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<ListedCopy> out;
  for (const auto& [first, copy] : found) out.push_back(copy);
  return out;
}

std::vector<Action> written_out(const HypothesisSearch& search, std::size_t step, const std::vector<ListedCopy>& list) {
  std::vector<Action> out;
  for (const ListedCopy& copy : list) {
    Action a;
    a.op = copy.from.buffer < 0 ? Operation::fill : Operation::copy;
    a.splits = search.action(step).splits, a.otherwise = search.action(step).otherwise;
    a.value = search.action(step).value;
    a.to.resize(1);
    if (copy.from.buffer >= 0) {
      a.from.resize(1);
      a.from[0].of = search.evidence().space.buffers()[static_cast<std::size_t>(copy.from.buffer)].name,
      a.from_offset = copy.from.offset;
    }
    a.to[0].of = search.evidence().space.buffers()[static_cast<std::size_t>(copy.to.buffer)].name,
    a.to_offset = copy.to.offset;
    a.bytes = copy.bytes;
    out.push_back(std::move(a));
  }
  return out;
}

}  // namespace kvcts::scenario
