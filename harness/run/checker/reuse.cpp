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

void Reuse::write(const RegionRef& region, std::span<std::uint8_t> file) const {
  const Group& group = case_.groups.at(static_cast<std::size_t>(region.group));
  auto blocks = oracle::content(group, Side::producer, true);
  std::erase_if(blocks, [&](const kernels::BlockContent& one) {
    return std::ranges::any_of(group.requests, [&](const Request& r) {
      return !r.transfer && std::ranges::find(r.producer_blocks, one.block) != r.producer_blocks.end();
    });
  });
  if (blocks.empty()) return;
  for (auto& one : blocks) one.generation = generation_;
  const auto shape = oracle::file_shape(case_, region.bytes);
  const auto allocation = file.subspan(static_cast<std::size_t>(shape.base), static_cast<std::size_t>(shape.bytes));
  for (const layout::Plane& plane : rank_of(case_, region).truth.planes)
    if (plane.allocation == region.allocation && has_axis(plane, layout::Axis::block))  // else it is the whole cache's
      kernels::generate(allocation, plane, blocks, oracle::tag_key(case_, pass_), generation_);
}

void Reuse::begin(int pass, Files files) {
  pass_ = pass;
  files_ = std::move(files);
  before_.clear();
  const auto sources = regions(case_, Side::producer);
  for (std::size_t i = 0; i < files_.size(); ++i) {
    before_.emplace_back(files_[i].begin(), files_[i].end());
    write(sources[i], files_[i]);
  }
  began_ = true;
}

void Reuse::end() {
  const auto sources = regions(case_, Side::producer);
  std::vector<std::uint8_t> given;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    given = before_[i];
    write(sources[i], given);
    for (std::size_t b = 0; b < given.size(); ++b)
      if (files_[i][b] == given[b]) files_[i][b] = before_[i][b];
  }
  before_.clear();
}

ResolvedCase Reuse::transferred_late() const {
  ResolvedCase out = case_;
  for (Group& group : out.groups)
    for (Request& request : group.requests)
      if (request.transfer) request.generation = generation_;
  return out;
}

}  // namespace kvcts::checker
