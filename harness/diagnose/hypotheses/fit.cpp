// Which addresses were used? The bytes answer: where an element came from, or where it went, is a linear function of its
// coordinates in nearly every fault of a map. Steps and bases are read off pairs of elements that differ along one axis; one
// view expresses them all.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <unordered_map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Component;

namespace {

constexpr double many_numbers = 0.9;  ///< what a map with more than two wrong ones costs more

struct Sample {
  layout::Coord at;       ///< coordinate with block and slot
  BufferAddress address;  ///< where its code was read or written
};

struct Steps {
  std::array<std::optional<std::int64_t>, layout::axis_count> bytes;
};

std::string key_of(const layout::Coord& c) { return std::string(reinterpret_cast<const char*>(c.v.data()), sizeof c.v); }

// The step of an axis that most pairs of neighbours agree on.
Steps steps_of(const std::vector<Sample>& samples) {
  std::unordered_map<std::string, const Sample*> by_coord;
  for (const Sample& s : samples) by_coord.emplace(key_of(s.at), &s);
  Steps out;
  for (const Axis axis : layout::all_axes) {
    std::map<std::int64_t, int> votes;
    for (const Sample& s : samples) {
      for (const std::int64_t distance : {1, 2, 3, 4, 5, 6, 7}) {
        layout::Coord next = s.at;
        next[axis] += distance;
        const auto found = by_coord.find(key_of(next));
        if (found == by_coord.end() || found->second->address.buffer != s.address.buffer) continue;
        const std::int64_t delta = found->second->address.offset - s.address.offset;
        if (delta % distance == 0) ++votes[delta / distance];
        break;
      }
    }
    if (votes.empty()) continue;
    out.bytes[static_cast<std::size_t>(axis)] = most_voted(votes);
  }
  return out;
}

// A view with these steps and bases; planes with one code per address (no 4-bit codes, no axis of several modes).
std::optional<layout::Cache> fitted(const layout::Cache& declared, const std::vector<BufferAddress>& starts,
                                    const std::vector<Sample>& samples, Component of) {
  layout::Cache out = declared;
  const Steps steps = steps_of(samples);
  bool changed = false;
  for (layout::Plane& plane : out.planes) {
    if (plane.component != of || layout::bits(plane.dtype) < 8) continue;
    for (layout::Mode& mode : plane.modes) {
      const auto step = steps.bytes[static_cast<std::size_t>(mode.axis)];
      const auto same = std::ranges::count_if(plane.modes, [&](const auto& m) { return m.axis == mode.axis; });
      if (!step || same != 1 || mode.extent == 1) continue;
      const std::int64_t stride = *step * 8 * mode.step;
      changed = changed || mode.stride != stride;
      mode.stride = stride;
    }
    const layout::Box box = layout::domain(plane);
    std::map<std::int64_t, int> bases;
    const BufferAddress start = starts.at(static_cast<std::size_t>(plane.allocation));
    for (const Sample& s : samples) {
      if (s.address.buffer != start.buffer) continue;
      bool inside = true;
      std::int64_t sum = 0;
      for (const Axis axis : layout::all_axes) {
        if (axis != Axis::block && (s.at[axis] < box.lo[axis] || s.at[axis] >= box.hi[axis])) inside = false;
      }
      if (!inside) continue;
      for (const layout::Mode& mode : plane.modes)
        sum += (s.at[mode.axis] - plane.origin[mode.axis]) / mode.step * mode.stride;
      ++bases[(s.address.offset - start.offset) * 8 - sum];
    }
    if (bases.empty()) continue;
    const std::int64_t base = most_voted(bases);
    changed = changed || base != plane.offset;
    plane.offset = base;
  }
  if (!changed) return std::nullopt;
  if (of != Component::data) return out;
  // Scales inside rows of data move with them.
  const auto is_data = [](const layout::Plane& p) { return p.component == Component::data; };
  const auto was = std::ranges::find_if(declared.planes, is_data);
  const auto now = std::ranges::find_if(out.planes, is_data);
  for (layout::Plane& plane : out.planes) {
    if (is_data(plane) || was == declared.planes.end() || plane.allocation != was->allocation) continue;
    for (layout::Mode& mode : plane.modes) {
      const auto old =
          std::ranges::find_if(was->modes, [&](const auto& m) { return m.axis == mode.axis && m.stride == mode.stride; });
      if (old == was->modes.end() || mode.axis == Axis::channel) continue;
      mode.stride = now->modes[static_cast<std::size_t>(old - was->modes.begin())].stride;
    }
    plane.offset += now->offset - was->offset;
  }
  return out;
}

// Whether the axes of a plane are in another order, by their strides.
bool order_changed(const layout::Cache& declared, const layout::Cache& now) {
  for (std::size_t p = 0; p < declared.planes.size(); ++p) {
    std::vector<std::pair<std::int64_t, Axis>> was, is;
    for (const auto& m : declared.planes[p].modes) {
      if (m.extent > 1) was.emplace_back(-m.stride, m.axis);
    }
    for (const auto& m : now.planes[p].modes) {
      if (m.extent > 1) is.emplace_back(-m.stride, m.axis);
    }
    std::ranges::sort(was), std::ranges::sort(is);
    for (std::size_t i = 0; i < was.size() && i < is.size(); ++i) {
      if (was[i].second != is[i].second) return true;
    }
  }
  return false;
}

// Another base by a few whole blocks: every id is off by one, or by two.
bool whole_blocks(const layout::Cache& declared, const layout::Cache& now) {
  for (std::size_t p = 0; p < declared.planes.size(); ++p) {
    const std::int64_t shift = now.planes[p].offset - declared.planes[p].offset;
    if (shift == 0) continue;
    const auto& modes = declared.planes[p].modes;
    const auto block =
        std::ranges::find_if(modes, [](const layout::Mode& m) { return m.axis == Axis::block && m.extent > 1; });
    if (block == modes.end() || shift % block->stride != 0 || std::abs(shift / block->stride) * 2 > block->extent)
      return false;
  }
  return true;
}

// The name of a fit, from what differs from the declared planes.
FaultClass class_of(const layout::Cache& declared, const layout::Cache& now, std::string& words, std::size_t& numbers) {
  std::set<Axis> axes;
  bool base = false, wraps = false, still = false;  // all of an axis at one place
  std::string list;
  for (std::size_t i = 0; i < declared.planes.size(); ++i) {
    const auto &p = declared.planes[i], &q = now.planes[i];
    for (std::size_t m = 0; m < p.modes.size(); ++m) {
      if (p.modes[m].stride == q.modes[m].stride || p.modes[m].extent == 1) continue;
      still = still || q.modes[m].stride == 0;
      if (axes.insert(p.modes[m].axis).second) {
        list += (list.empty() ? "" : ", ") + std::string(layout::name(p.modes[m].axis)) + " " +
                std::to_string(q.modes[m].stride / 8) + " instead of " + std::to_string(p.modes[m].stride / 8);
      }
    }
    if (p.offset != q.offset) {
      base = true;
      wraps = (q.offset - p.offset) % (std::int64_t{8} << 31) == 0;
    }
  }
  numbers = axes.size() + (base ? 1 : 0);
  words = axes.empty() ? "another base" : "steps of bytes: " + list + (base ? ", and another base" : "");
  if (axes.empty())
    return wraps                         ? FaultClass::int32_overflow
           : whole_blocks(declared, now) ? FaultClass::wrong_block_id
                                         : FaultClass::wrong_stride;
  if (still) return FaultClass::wrong_stride;
  const bool kv = axes.contains(Axis::kv), reordered = order_changed(declared, now);
  if (axes.size() == 1) return kv && reordered ? FaultClass::kv_split_vs_interleaved : FaultClass::wrong_stride;
  // K and V found elsewhere, with matching blocks (or rows).
  if (kv && axes.size() <= 2 && !axes.contains(Axis::channel)) return FaultClass::kv_split_vs_interleaved;
  return reordered ? FaultClass::axis_permuted : FaultClass::wrong_stride;
}

// One view of a step, and the addresses that its elements had.
class ViewFit {
 public:
  ViewFit(HypothesisSearch& search, std::size_t step, bool at_source, std::size_t v, const ScenarioRequest& request)
      : search_(search), step_(step), at_source_(at_source), v_(v), request_(request) {}

  void generate() {
    const auto samples = samples_seen();
    for (const Component component : {Component::data, Component::scale}) {
      const auto of = samples.find(component);
      if (of == samples.end() || of->second.size() < 4) continue;
      if (const auto now = fitted(declared_, starts_, of->second, component)) attempt(*now, component);
    }
  }

 private:
  const Action& action() const { return search_.action(step_); }

  std::optional<layout::Coord> coordinate(const ViewElement& e) const {
    const std::int64_t entry = e.token ? entry_of(request_, view_, *e.token) : -1;
    if (entry < 0 || entry >= static_cast<std::int64_t>(ids_.size())) return std::nullopt;
    layout::Coord c;
    c[Axis::layer] = e.layer, c[Axis::kv] = e.kv, c[Axis::head] = e.head, c[Axis::channel] = e.channel;
    c[Axis::block] = ids_[static_cast<std::size_t>(entry)];
    c[Axis::slot] = (*e.token - request_.first_token) % slots_;
    return c;
  }

  ViewElement destination_of(const ViewElement& e) const {
    const StepSelection &from = action().pick, &to = action().pick_to;
    ViewElement out = e;
    out.layer = picked_destination(from.layers, to.layers, e.layer), out.kv = picked_destination(from.kv, to.kv, e.kv);
    out.head = picked_destination(from.heads, to.heads, e.head);
    out.channel = picked_destination(from.channels, to.channels, e.channel);
    if (e.token) out.token = picked_destination(from.tokens, to.tokens, *e.token);
    return out;
  }

  std::map<Component, std::vector<Sample>> samples_seen() {
    std::map<Component, std::vector<Sample>> out;
    const auto here = [&](int buffer) {
      return std::ranges::find(starts_, buffer, &BufferAddress::buffer) != starts_.end();
    };
    for (const ObservedMove& s : search_.observed_moves(step_)) {
      if (!s.from) continue;
      auto& some = out[s.from->component];
      if (some.size() == 20000) continue;
      if (at_source_ && s.at) {
        // What should be c here is elsewhere in the source.
        const auto c = coordinate(s.asked);
        if (c && s.source && here(s.source->buffer)) some.push_back({*c, *s.source});
      } else if (!at_source_ && here(s.attribution->buffer)) {
        if (const auto c = coordinate(destination_of(*s.from)))
          some.push_back({*c, {s.attribution->buffer, s.attribution->offset}});
      }
    }
    return out;
  }

  // A base counted in elements of another width, in memory that holds both.
  bool other_width(const layout::Cache& now) const {
    const auto& memories = search_.scenario().memories;
    const auto memory = memories.find(memory_of(view_));
    if (memory == memories.end() || now.planes.empty()) return false;
    const std::int64_t base = memory->second.view.offset,
                       moved = base + (now.planes.front().offset - declared_.planes.front().offset) / 8;
    const bool ratio =
        base != 0 && moved != base && (moved * 2 == base || moved * 4 == base || moved == base * 2 || moved == base * 4);
    return ratio && std::ranges::any_of(memories, [&](const auto& other) {
             const layout::Cache there = cache_of(other.second.view);
             return other.second.view.of == memory->second.view.of && !there.planes.empty() &&
                    layout::bits(there.planes.front().dtype) != layout::bits(declared_.planes.front().dtype);
           });
  }

  void attempt(const layout::Cache& now, Component component) {
    std::string words;
    std::size_t numbers = 0;
    FaultClass fault_class = class_of(declared_, now, words, numbers);
    if (other_width(now))
      fault_class = FaultClass::dtype_reinterpreted, words = "a base counted in elements of another width";
    if (component == Component::scale) fault_class = FaultClass::scale_misplaced, words = "scales with " + words;
    // Where something plainer fits, a map with more than two wrong numbers is the same in other words.
    if (numbers > 2 && !search_.exact().empty()) return;
    search_.penalty(numbers > 2 ? many_numbers : 0);
    Action body = action();
    (at_source_ ? body.from : body.to)[v_].cache = layout::to_text(now);
    search_.attempt(fault_class, symbol_of(search_, step_) + ": " + (at_source_ ? "read with " : "written with ") + words,
                    step_, body);
    attempt_everywhere(layout::to_text(now), fault_class, words);
  }

  // The same belief in every step that touches the memory, or in those that do the same with it.
  void attempt_everywhere(const std::string& now, FaultClass fault_class, const std::string& words) {
    CandidateSteps all = search_.bodies(), alike = search_.bodies();
    for (std::size_t k = 0; k < all.size(); ++k) {
      for (std::size_t n = 0; n < all[k].size(); ++n) {
        for (const bool source : {true, false}) {
          auto &views = source ? all[k][n].from : all[k][n].to, &same = source ? alike[k][n].from : alike[k][n].to;
          for (std::size_t view = 0; view < views.size(); ++view) {
            if (views[view].of != view_.of || views[view].cache != view_.cache) continue;
            views[view].cache = now;
            if (all[k][n].op == action().op && source == at_source_) same[view].cache = now;
          }
        }
      }
    }
    const std::string memory = memory_of(view_);
    search_.attempt(fault_class, "wherever " + memory + " is used: " + words, std::move(all));
    search_.attempt(fault_class, "wherever " + memory + " is " + (at_source_ ? "read: " : "written: ") + words,
                    std::move(alike));
  }

  HypothesisSearch& search_;
  std::size_t step_;
  bool at_source_;
  std::size_t v_;
  const ScenarioRequest& request_;
  const View& view_ = (at_source_ ? action().from : action().to)[v_];
  layout::Cache declared_ = cache_of(view_);
  std::vector<BufferAddress> starts_ = search_.evidence().space.addresses(view_, declared_);
  std::int64_t slots_ = slots_of(view_);
  Ids ids_ = table_at(search_, step_, at_source_, v_).value_or(Ids{});
};

}  // namespace

void generate_fits(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op != Operation::move && a.op != Operation::read && a.op != Operation::write && a.op != Operation::get &&
        a.op != Operation::put)
      continue;
    const auto request = search.request_at(i, a.request);
    if (!request) continue;
    for (const bool at_source : {true, false}) {
      for (std::size_t v = 0; v < (at_source ? a.from : a.to).size(); ++v)
        ViewFit(search, i, at_source, v, *request).generate();
    }
  }
}

}  // namespace kvcts::scenario
