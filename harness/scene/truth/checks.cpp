#include <algorithm>
#include <stdexcept>

#include "scene/truth/reference_model.hpp"

namespace kvcts::scenario {

using nlohmann::json;

void ReferenceModel::registration() {
  const Action& a = *action_;
  if (a.maps && *a.maps != a.to_offset) {
    throw std::runtime_error("a registration that begins elsewhere cannot be meant; say 'maps' under 'actually'");
  }
  for (const Span& span : spans(a.memory, a.to_offset, a.bytes, 1, 0)) {
    auto& ranges = ranges_[span.buffer];
    if (a.op == Operation::register_range) {
      ranges.push_back({span.begin, span.begin + span.bytes});
    } else {
      if (std::erase_if(ranges, [&](const Range& r) { return r.begin == span.begin; }) == 0) {
        throw std::runtime_error("takes back a registration of '" + a.memory + "' from byte " + std::to_string(a.to_offset) +
                                 " on: expected one that begins there, found none");
      }
    }
    event({{"memory", a.memory}, {"backing", span.buffer}, {"begin", span.begin}, {"bytes", span.bytes}});
  }
}

std::optional<ReferenceModel::Access> ReferenceModel::against(int buffer, std::int64_t offset, std::int64_t bytes,
                                                              bool write) const {
  const bool splits = action_->splits;
  for (const std::int64_t edge : space_.buffers()[static_cast<std::size_t>(buffer)].boundaries) {
    if (!splits && offset < edge && offset + bytes > edge)
      return Access{"straddles a mapping", buffer, offset, bytes, write};
  }
  if (!registered_only_.contains(buffer)) return std::nullopt;
  const auto known = ranges_.find(buffer);
  std::int64_t at = offset;
  bool first = true;
  while (at < offset + bytes) {
    std::int64_t reach = at;
    if (known != ranges_.end()) {
      for (const Range& r : known->second) {
        if (r.begin <= at && r.end > at) reach = std::max(reach, r.end);
      }
    }
    if (reach == at) return Access{"not registered", buffer, at, offset + bytes - at, write};
    if (!first && !splits) return Access{"straddles a registration", buffer, offset, bytes, write};
    at = reach;
    first = false;
  }
  return std::nullopt;
}

bool ReferenceModel::stopped(const std::vector<Access>& accesses) {
  if (accesses.empty()) return false;
  const Access& first = accesses.front();
  event({{"violation", first.what},
         {"backing", first.buffer},
         {"offset", first.offset},
         {"bytes", first.bytes},
         {"write", first.write},
         {"count", accesses.size()}});
  return action_->otherwise != "go on";
}

void ReferenceModel::checkpoint(const std::string& step) { truth_.checks.push_back({step, images_, what_may_be_any(), {}}); }

std::map<int, ByteRanges> ReferenceModel::what_may_be_any() const {
  std::map<int, ByteRanges> out = any_;
  for (const auto& [buffer, bytes] : unused_)
    for (const auto& [begin, end] : bytes) add_range(out[buffer], begin, end);
  return out;
}

std::map<int, ByteRanges> ReferenceModel::checked_bytes() {
  const Action& a = *action_;
  std::map<int, ByteRanges> out;
  if (!a.request.empty()) {
    std::vector<View> views = a.to.empty() ? a.from : a.to;
    if (views.empty()) {
      if (a.memory.empty()) throw std::runtime_error("a check of a request names a memory");
      const std::string memory = a.memory.substr(0, a.memory.find('/'));
      const auto declared = scenario_.memories.find(memory);
      if (declared == scenario_.memories.end()) throw std::runtime_error("there is no memory '" + memory + "'");
      views.push_back(declared->second.view);
      views.back().of = memory;
      views.back().offset = 0;  // the address space has it
    }
    for (const Stop& stop : stops(views, a.to_blocks, a.pick))
      add_range(out[stop.buffer], stop.bit / 8, (stop.bit + stop.width + 7) / 8);
    return out;
  }
  const bool all = a.bytes <= 0 && a.to_offset <= 0;
  if (all)
    for (const Buffer& b : space_.buffers())  // the guards always matter
      if (a.memory.empty() || b.memory == a.memory) add_range(out[b.ordinal], 0, b.bytes);
  if (out.empty())
    for (const Span& span : all ? spans(a.memory, 0, 0, 1, 0) : spans(a.memory, a.to_offset, a.bytes, a.count, a.to_step))
      add_range(out[span.buffer], span.begin, span.begin + span.bytes);
  return out;
}

void ReferenceModel::keep_unchanged(Checkpoint& here, const std::map<int, ByteRanges>& named) const {
  for (const auto& [buffer, spans] : named) {
    const auto b = static_cast<std::size_t>(buffer);
    const SymbolImage before = truth_.checks.empty() ? SymbolImage{} : truth_.checks.back().images[b];
    // Bytes in pages that neither image has are untouched in both.
    std::set<std::int64_t> pages;
    for (const SymbolImage* image : {&static_cast<const SymbolImage&>(here.images[b]), &before})
      for (const auto& [number, ids] : image->pages()) pages.insert(number);
    for (const std::int64_t number : pages)
      for (const auto& [begin, end] : spans)
        for (std::int64_t i = std::max(begin, number * SymbolImage::page);
             i < std::min(end, (number + 1) * SymbolImage::page); ++i)
          if (here.images[b].at(i) != before.at(i)) here.images[b].set(i, before.at(i));
  }
}

void ReferenceModel::check() {
  const Action& a = *action_;
  std::map<int, ByteRanges> named = checked_bytes();
  if (a.is == "any") {
    for (const auto& [buffer, spans] : named)
      for (const auto& [begin, end] : spans) add_range(any_[buffer], begin, end);
    checkpoint(step_->name);
    truth_.checks.back().memory = a.memory;
    return;
  }
  Checkpoint here{step_->name, images_, what_may_be_any(), a.memory};
  if (a.is == "unchanged") keep_unchanged(here, named);
  if (!a.request.empty() || a.bytes > 0 || a.to_offset > 0) {
    // Only the named bytes are compared here.
    for (const Buffer& b : space_.buffers()) {
      std::int64_t from = -b.guard_below;
      auto& any = here.any[b.ordinal];
      for (const auto& [begin, end] : named[b.ordinal]) {
        add_range(any, from, begin);
        from = end;
      }
      add_range(any, from, b.bytes + b.guard_above);
    }
  }
  truth_.checks.push_back(std::move(here));
}

}  // namespace kvcts::scenario
