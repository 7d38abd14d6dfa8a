#include "diagnose/what_happened.hpp"

#include <fmt/format.h>

#include <array>
#include <set>
#include <unordered_map>

#include "case/scenario_walk.hpp"
#include "diagnose/findings/findings.hpp"
#include "diagnose/findings/layout_boxes.hpp"
#include "diagnose/window.hpp"

namespace kvcts::scenario {

namespace {

using findings::ContentAxis;
using SourceKind = findings::ByteSource::Kind;

/// Requests by the generation of their content.
std::map<std::int64_t, std::string> requests_of(const Scenario& scenario) {
  std::map<std::int64_t, std::string> out;
  for (const auto& [name, request] : scenario.requests) {
    std::string& of = out[request.generation];
    of += (of.empty() ? "" : "/") + name;
  }
  each_action(scenario, [&](const Step&, const Action& action, bool) {
    if (action.op == Operation::assign && action.generation && !out.contains(*action.generation))
      out[*action.generation] = fmt::format("{} of generation {}", action.request, *action.generation);
  });
  return out;
}

/// The bytes of attributions with where else they lie.
class Tracer {
 public:
  Tracer(const AddressSpace& space, const SymbolTable& symbols, const Checkpoint& check, const Attributions& attributions)
      : space_(space), element_index_(check, space, symbols) {
    for (const Attribution& attribution : attributions.all)
      if (attribution.wrong && !is_output(attribution.buffer)) wrong_[attribution.buffer][attribution.offset] = &attribution;
  }

  SymbolExtent run_of(const Attribution& attribution) {
    SymbolExtent run{.first = attribution};
    if (attribution.wrong && !reads_wrong(attribution, run)) find(attribution, run);
    last_ = run;
    return run;
  }

 private:
  bool is_output(int buffer) const { return space_.buffers()[static_cast<std::size_t>(buffer)].side == "output"; }
  const std::string& memory(int buffer) const { return space_.buffers()[static_cast<std::size_t>(buffer)].memory; }

  /// A step only read what was wrong already.
  bool reads_wrong(const Attribution& attribution, SymbolExtent& run) const {
    if (!is_output(attribution.buffer) || attribution.must.kind != Symbol::Kind::tag) return false;
    for (const BufferAddress& place : element_index_.of(attribution.must)) {
      const auto there = wrong_.find(place.buffer);
      if (there == wrong_.end()) continue;
      const auto found = there->second.find(place.offset);
      if (found == there->second.end()) continue;
      const Attribution& read = *found->second;
      const bool untouched = read.untouched && attribution.is.kind == Symbol::Kind::poison &&
                             attribution.is.buffer == place.buffer && attribution.is.offset == place.offset;
      if (!untouched && (attribution.is != read.is || attribution.signature != read.signature)) continue;
      run.from = place, run.follows = true;
      return true;
    }
    return false;
  }

  /// Where its bytes lie, in another memory if they do.
  void find(const Attribution& attribution, SymbolExtent& run) const {
    if (attribution.is.kind == Symbol::Kind::poison) {
      run.from = {attribution.is.buffer, attribution.is.offset};
      return;
    }
    if (attribution.is.kind != Symbol::Kind::tag) return;
    int best = -1;
    for (const BufferAddress& place : element_index_.of(attribution.is)) {
      if (is_output(place.buffer) || place == BufferAddress{attribution.buffer, attribution.offset}) continue;
      const bool elsewhere = memory(place.buffer) != memory(attribution.buffer);
      const bool goes_on = last_.from.buffer == place.buffer && last_.first.buffer == attribution.buffer &&
                           place.offset - last_.from.offset == attribution.offset - last_.first.offset;
      const int rank = 2 * elsewhere + goes_on;
      if (rank <= best) continue;
      best = rank;
      run.from = place;
    }
  }

  const AddressSpace& space_;
  ElementIndex element_index_;
  std::unordered_map<int, std::unordered_map<std::int64_t, const Attribution*>> wrong_;  ///< but in outputs
  SymbolExtent last_;
};

class ExtentBuilder {
 public:
  /// `searched`: what is unknown was looked for byte by byte, and nothing had it; but not by codes of four bits.
  ExtentBuilder(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols, bool searched)
      : space_(space), symbols_(symbols), layout_index_(scenario, space), searched_(searched) {
    called_.requests = requests_of(scenario);
    for (const Buffer& b : space.buffers()) {
      called_.regions.push_back(b.name);
      const auto known = std::ranges::find(called_.memories, b.memory);
      memory_of_.push_back(static_cast<int>(known - called_.memories.begin()));
      if (known != called_.memories.end()) continue;
      if (b.side == "output") called_.first_output = std::min(called_.first_output, memory_of_.back());
      called_.memories.push_back(b.memory);
    }
    for (const auto& [name, memory] : scenario.memories) {
      const auto known = std::ranges::find(called_.memories, name);
      if (memory.view.cache.empty() || known == called_.memories.end()) continue;
      for (const layout::Plane& plane : cache_of(memory.view).planes) {
        called_.planes[static_cast<int>(known - called_.memories.begin())].push_back(findings::plane_of(plane));
        searched_ = searched_ && layout::bits(plane.dtype) >= 8;
      }
    }
  }

  void add(const SymbolExtent& run) {
    // Where no content was meant a run may reach over several rows.
    const auto kind = run.first.must.kind;
    if (run.bytes == 1 || kind == Symbol::Kind::tag || kind == Symbol::Kind::number) return add_row(run);
    SymbolExtent row = run;
    for (std::int64_t done = 0; done < run.bytes; done += row.bytes) {
      row = run;
      row.first.offset += done;
      const auto element_run = layout_index_.at({row.first.buffer, row.first.offset});
      row.bytes = element_run ? std::min(element_run->run, run.bytes - done) : 1;
      if (run.is != hole) row.first.is = symbols_.at(run.is + static_cast<SymbolId>(done));
      if (run.first.is.kind == Symbol::Kind::poison) row.first.is.offset += done;
      if (row.from.buffer >= 0) row.from.offset += done;
      add_row(row);
    }
  }

  std::vector<Finding> result() const { return findings::what_happened(extents_, called_); }

 private:
  void add_row(const SymbolExtent& run) {
    const Attribution& attribution = run.first;
    findings::Extent extent;
    extent.memory = memory_of_[static_cast<std::size_t>(attribution.buffer)];
    extent.offset = attribution.offset, extent.bytes = run.bytes, extent.channels = run.channels;
    extent.wrong = attribution.wrong;
    extent.should = source_of(attribution.must, attribution);
    extent.bits = bits_of(attribution.must), extent.is_bits = bits_of(attribution.is);
    if (!attribution.wrong)
      extent.is = extent.should;
    else if (run.follows)
      extent.is.kind = SourceKind::follows,
      extent.is.text = space_.buffers()[static_cast<std::size_t>(run.from.buffer)].memory;
    else if (attribution.untouched)
      extent.is.kind = SourceKind::nothing;
    else
      extent.is = source_of(attribution.is, attribution);
    if (attribution.wrong && !run.follows) compare_scales(attribution, extent);
    extent.region = attribution.buffer;
    const bool brought = extent.is.kind == SourceKind::poison || extent.is.kind == SourceKind::element;
    if (attribution.wrong && brought) extent.from = run.from.buffer, extent.from_offset = run.from.offset;
    if (continues(attribution, extent)) {
      findings::Extent& last = extents_.back();
      last.channels = std::max(
          last.channels, extent.should.at[ContentAxis::channel] - last.should.at[ContentAxis::channel] + extent.channels);
      last.bytes += extent.bytes;
      return;
    }
    if (const auto found = layout_index_.at({attribution.buffer, attribution.offset})) {
      const Provenance* element_run = &found->element;
      extent.should.at[ContentAxis::block] = element_run->block, extent.should.at[ContentAxis::slot] = element_run->slot;
      if (extent.should.kind != SourceKind::element) {
        extent.should.at[ContentAxis::component] = element_run->component.empty()      ? 0
                                                   : element_run->component == "scale" ? 1
                                                                                       : 2;
        extent.should.at[ContentAxis::layer] = element_run->layer, extent.should.at[ContentAxis::kv] = element_run->kv;
        extent.should.at[ContentAxis::head] = element_run->head,
        extent.should.at[ContentAxis::channel] = element_run->channel;
        extent.bits = found->bits;
        for (BufferAddress before{attribution.buffer, attribution.offset - 1}; 8 * (extent.should.byte + 1) < extent.bits;
             --before.offset) {
          const auto other = layout_index_.at(before);
          if (!other || !(other->element == *element_run)) break;
          ++extent.should.byte;
        }
      }
      if (element_run->component == "global scale")
        for (const ContentAxis axis : findings::per_token) extent.should.at[axis] = findings::none;
    }
    buffer_ = attribution.buffer;
    extents_.push_back(std::move(extent));
  }

  static int bits_of(const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::tag ? layout::bits(symbol.dtype) : symbol.kind == Symbol::Kind::number ? 32 : 0;
  }

  findings::ByteSource source_of(const Symbol& symbol, const Attribution& attribution) const {
    findings::ByteSource out;
    switch (symbol.kind) {
      case Symbol::Kind::tag:
      case Symbol::Kind::number:
        out.kind = SourceKind::element;
        out.byte = symbol.byte;
        out.times = symbol.power;
        out.at[ContentAxis::component] = static_cast<std::int64_t>(symbol.component);
        out.at[ContentAxis::request] = symbol.generation;
        out.at[ContentAxis::layer] = symbol.layer, out.at[ContentAxis::kv] = symbol.kv,
        out.at[ContentAxis::token] = symbol.token;
        out.at[ContentAxis::head] = symbol.head, out.at[ContentAxis::channel] = symbol.channel;
        if (symbol.component == layout::Component::global_scale)
          for (const ContentAxis axis : findings::per_token) out.at[axis] = findings::none;
        return out;
      case Symbol::Kind::constant:
        out.kind = SourceKind::constant, out.value = symbol.byte;
        return out;
      case Symbol::Kind::poison:
        out.kind = symbol.buffer == attribution.buffer && symbol.offset == attribution.offset ? SourceKind::nothing
                                                                                              : SourceKind::poison;
        if (const Buffer& b = space_.buffers()[static_cast<std::size_t>(symbol.buffer)];
            b.zeroed && symbol.offset >= 0 && symbol.offset < b.bytes) {
          out.kind = SourceKind::unknown, out.text = "of poison";  // that a step filled in
        } else if (out.kind == SourceKind::poison) {
          out.text = (symbol.offset < 0 || symbol.offset >= b.bytes ? "a guard of " : "") + b.memory;
        }
        return out;
      case Symbol::Kind::hole:
        out.kind = SourceKind::nothing;
        return out;
      case Symbol::Kind::nibbles:
      case Symbol::Kind::code:
        out.kind = SourceKind::mixed;
        return out;
      case Symbol::Kind::unknown:
        if (searched_) out.text = "that nothing here had";
        break;
    }
    return out;
  }

  /// A decoded number of the right element with a scale that is not its own.
  void compare_scales(const Attribution& attribution, findings::Extent& extent) const {
    const Symbol &must = attribution.must, &is = attribution.is;
    if (must.kind != Symbol::Kind::number || is.kind != Symbol::Kind::number || extent.is.at != extent.should.at) return;
    if (must.whole != is.whole) extent.is.kind = SourceKind::mixed;
    if (must.power != is.power || must.whole != is.whole) return;
    if (must.scale != is.scale) {
      extent.is.kind = SourceKind::mixed;
      extent.is.text = "its number with the scale of " + difference(must.scale, is.scale);
    } else if (must.global_scale != is.global_scale) {
      extent.is.kind = SourceKind::mixed;
      extent.is.text = "its number with another global scale";
    }
  }

  /// Whose scale it is, by what differs: "head 0", "token + 1".
  std::string difference(std::uint32_t should, std::uint32_t found) const {
    if (should == 0 || found == 0) return "nothing";
    const Symbol must = symbols_.at(should - 1), is = symbols_.at(found - 1);
    if (must.kind != Symbol::Kind::tag || is.kind != Symbol::Kind::tag) return "another element";
    std::string out;
    const auto add = [&](const std::string& words) { out += (out.empty() ? "" : ", ") + words; };
    if (is.kv != must.kv) add(is.kv == 0 ? "K" : "V");
    if (is.head != must.head) add(fmt::format("head {}", is.head));
    const auto relative = [&](const char* what, std::int64_t by) {
      if (by != 0) add(fmt::format("{} {} {}", what, by < 0 ? '-' : '+', std::abs(by)));
    };
    relative("layer", is.layer - must.layer);
    relative("token", is.token - must.token);
    relative("group", is.channel - must.channel);
    return out.empty() ? "another request" : out;
  }

  /// The next byte of the same row, on both sides.
  bool continues(const Attribution& attribution, const findings::Extent& next) const {
    if (extents_.empty() || buffer_ != attribution.buffer) return false;
    const findings::Extent& last = extents_.back();
    if (last.offset + last.bytes != next.offset || last.wrong != next.wrong || next.should.kind != SourceKind::element)
      return false;
    if (last.from != next.from || (next.from >= 0 && next.from_offset != last.from_offset + last.bytes)) return false;
    // A global scale has bytes and no channels.
    const auto has_channels = [](const findings::ByteSource& symbol) {
      return symbol.at[ContentAxis::channel] != findings::none;
    };
    if (has_channels(next.should) != has_channels(next.is)) return false;
    return advances(last.should, next.should, last) && advances(last.is, next.is, last);
  }
  static bool advances(const findings::ByteSource& from, const findings::ByteSource& to, const findings::Extent& run) {
    if (from.kind != to.kind || from.value != to.value || from.times != to.times || from.text != to.text) return false;
    if (to.kind != SourceKind::element) return true;
    for (const ContentAxis axis : {ContentAxis::component, ContentAxis::request, ContentAxis::layer, ContentAxis::kv,
                                   ContentAxis::token, ContentAxis::head})
      if (from.at[axis] != to.at[axis]) return false;
    const std::int64_t ahead = to.at[ContentAxis::channel] - from.at[ContentAxis::channel];
    return ahead >= 0 && ahead <= run.channels && (ahead > 0 || to.byte != from.byte);
  }

  const AddressSpace& space_;
  const SymbolTable& symbols_;
  LayoutIndex layout_index_;
  bool searched_;
  findings::Labels called_;
  std::vector<int> memory_of_;
  std::vector<findings::Extent> extents_;
  int buffer_{-1};
};

}  // namespace

bool name_declared(const Scenario& scenario, SymbolTable& symbols) {
  constexpr double most = 4 << 20;    // names
  constexpr std::int64_t beyond = 2;  // blocks
  std::set<std::pair<std::string, std::uint32_t>> contents;
  for (const auto& [name, request] : scenario.requests) contents.emplace(name, request.generation);
  each_action(scenario, [&](const Step&, const Action& action, bool) {
    if (action.generation && scenario.requests.contains(action.request))
      contents.emplace(action.request, *action.generation);
  });
  std::set<std::array<std::int64_t, 10>> planes;  // alike in several memories
  std::int64_t slots = 1;
  for (const auto& [name, memory] : scenario.memories) {
    for (const layout::Plane& plane : cache_of(memory.view).planes) {
      using L = layout::Axis;
      const layout::Box box = layout::domain(plane);
      slots = std::max(slots, box.hi[L::slot]);
      planes.insert({static_cast<std::int64_t>(plane.component), static_cast<std::int64_t>(plane.dtype), box.lo[L::layer],
                     box.hi[L::layer], box.lo[L::kv], box.hi[L::kv], box.lo[L::head], box.hi[L::head], box.lo[L::channel],
                     box.hi[L::channel]});
    }
  }
  double count = 0;
  for (const auto& p : planes) {
    const auto dtype = static_cast<layout::Dtype>(p[1]);
    if (layout::bits(dtype) < 8) continue;
    for (const auto& [request, generation] : contents) {
      const ScenarioRequest& of = scenario.requests.at(request);
      const std::int64_t tokens = (of.tokens + slots - 1) / slots * slots + beyond * slots;
      Symbol symbol{.kind = Symbol::Kind::tag,
                    .component = static_cast<layout::Component>(p[0]),
                    .dtype = dtype,
                    .generation = generation};
      count += static_cast<double>(tokens) * static_cast<double>((p[3] - p[2]) * (p[5] - p[4]) * (p[7] - p[6])) *
               static_cast<double>((p[9] - p[8]) * layout::bits(dtype) / 8);
      if (count > most) return false;
      for (symbol.token = of.first_token; symbol.token < of.first_token + tokens; ++symbol.token)
        for (symbol.layer = p[2]; symbol.layer < p[3]; ++symbol.layer)
          for (symbol.kv = p[4]; symbol.kv < p[5]; ++symbol.kv)
            for (symbol.head = p[6]; symbol.head < p[7]; ++symbol.head)
              for (symbol.channel = p[8]; symbol.channel < p[9]; ++symbol.channel)
                for (symbol.byte = 0; symbol.byte < layout::bits(dtype) / 8; ++symbol.byte) symbols.intern(symbol);
    }
  }
  return true;
}

std::vector<Finding> what_happened(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols,
                                   const Checkpoint& check, const Attributions& attributions) {
  ExtentBuilder extents(scenario, space, symbols, true);
  Tracer tracer(space, symbols, check, attributions);
  for (const Attribution& attribution : attributions.all) extents.add(tracer.run_of(attribution));
  return extents.result();
}

std::vector<Finding> what_happened(const Scenario& scenario, const AddressSpace& space, const SymbolTable& symbols,
                                   const std::vector<SymbolExtent>& runs) {
  ExtentBuilder extents(scenario, space, symbols, false);
  for (const SymbolExtent& run : runs) extents.add(run);
  return extents.result();
}

}  // namespace kvcts::scenario
