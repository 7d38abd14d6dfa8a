#include "run/checker/reuse.hpp"

#include <algorithm>
#include <utility>

#include "kernels/generate.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

Reuse::Reuse(const ResolvedCase& resolved) : case_(resolved) {
  const auto taken = [&] {
    return std::ranges::any_of(case_.groups, [&](const Group& group) {
      return std::ranges::any_of(group.requests, [&](const Request& r) { return r.generation == generation_; });
    });
  };
  while (taken()) ++generation_;
}

/// Every request that holds it was given away.
bool Reuse::is_free(const Group& group, std::int64_t block, const Given& given) {
  bool held = false;
  for (const Request& request : group.requests) {
    if (std::ranges::find(request.producer_blocks, block) == request.producer_blocks.end()) continue;
    if (!given.contains(request.generation)) return false;
    held = true;
  }
  return held;
}

/// What is free now and was not with `earlier`.
void Reuse::write(const RegionRef& region, std::span<std::uint8_t> file, const Given& earlier) const {
  const Group& group = case_.groups.at(static_cast<std::size_t>(region.group));
  auto blocks = oracle::content(group, Side::producer, true);
  std::erase_if(blocks, [&](const kernels::BlockContent& one) {
    return !is_free(group, one.block, given_) || is_free(group, one.block, earlier);
  });
  if (blocks.empty()) return;
  for (auto& one : blocks) one.generation = generation_;
  const auto shape = oracle::file_shape(case_, region.bytes);
  const auto allocation = file.subspan(static_cast<std::size_t>(shape.base), static_cast<std::size_t>(shape.bytes));
  for (const layout::Plane& plane : rank_of(case_, region).truth.planes)
    if (plane.allocation == region.allocation && has_axis(plane, layout::Axis::block))  // else it is the whole cache's
      kernels::generate(allocation, plane, blocks, oracle::tag_key(case_, pass_), generation_);
}

void Reuse::give(int pass, Files files, const std::string& request, const std::string& word) {
  pass_ = pass;
  files_ = std::move(files);
  if (before_.empty())
    for (const auto file : files_) before_.emplace_back(file.begin(), file.end());
  const Given earlier = given_;
  for (const Group& group : case_.groups)
    for (const Request& one : group.requests)
      if (one.transfer && (request.empty() || request == "r" + std::to_string(one.generation)))
        given_.emplace(one.generation, word);
  const auto sources = regions(case_, Side::producer);
  for (std::size_t i = 0; i < files_.size(); ++i) write(sources[i], files_[i], earlier);
}

void Reuse::end() {
  const auto sources = regions(case_, Side::producer);
  std::vector<std::uint8_t> given;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    given = before_[i];
    write(sources[i], given, {});
    for (std::size_t b = 0; b < given.size(); ++b)
      if (files_[i][b] == given[b]) files_[i][b] = before_[i][b];
  }
  before_.clear();
}

ResolvedCase Reuse::transferred_late(std::uint32_t but) const {
  ResolvedCase out = case_;
  for (Group& group : out.groups)
    for (Request& request : group.requests)
      if (request.transfer && request.generation != but && given_.contains(request.generation))
        request.generation = generation_;
  return out;
}

}  // namespace kvcts::checker
