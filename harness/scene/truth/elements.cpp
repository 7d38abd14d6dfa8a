#include <algorithm>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "case/text.hpp"
#include "scene/truth/reference_model.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Component;
using nlohmann::json;
using text::fail;

namespace {

Coordinate coordinate_of(const Stop& stop) {
  return {stop.component, stop.kv, stop.layer, stop.token, stop.head, stop.channel};
}

std::string to_string(const Coordinate& at) {
  return fmt::format("{} kv {} layer {} token {} head {} channel {}", layout::name(at.component), at.kv, at.layer, at.token,
                     at.head, at.channel);
}

/// The picks of a destination, each with its source.
struct Mapping {
  Picks wanted;
  std::map<std::int64_t, std::int64_t> from;
  std::int64_t source(std::int64_t destination) const {
    const auto found = from.find(destination);
    return found == from.end() ? destination : found->second;
  }
};

Mapping mapping_of(const Picks& pick, const Picks& pick_to, const char* axis) {
  Mapping out{pick_to ? pick_to : pick, {}};
  if (!pick || !pick_to) return out;
  if (pick->size() != pick_to->size())
    fail(fmt::format("takes {} {} to {}; expected as many places as picks", pick->size(), axis, pick_to->size()));
  for (std::size_t i = 0; i < pick->size(); ++i)
    out.from.insert_or_assign((*pick_to)[i], (*pick)[i]);  // of two at one place, the last
  return out;
}

}  // namespace

// ---- elements by coordinate ----------------------------------------------------------------------------------------

namespace {

/// In an ascending list; -1: not in it.
std::int64_t position(const std::vector<std::int64_t>& values, std::int64_t value) {
  const std::int64_t ahead = value - values.front();
  if (values.back() - values.front() + 1 == static_cast<std::int64_t>(values.size())) return ahead;
  const auto at = std::ranges::lower_bound(values, value);
  return at == values.end() || *at != value ? -1 : at - values.begin();
}

}  // namespace

Elements::Elements(const std::vector<Stop>& stops) {
  std::array<bool, 3> any{};
  for (const Stop& stop : stops) {
    const auto c = static_cast<std::size_t>(stop.component);
    Box& box = boxes_[c];
    const Coordinate at = coordinate_of(stop);
    const auto widen = [&](std::int64_t Coordinate::* axis) {
      box.lo.*axis = any[c] ? std::min(box.lo.*axis, at.*axis) : at.*axis;
      box.hi.*axis = any[c] ? std::max(box.hi.*axis, at.*axis + 1) : at.*axis + 1;
    };
    for (auto axis : {&Coordinate::kv, &Coordinate::layer, &Coordinate::token, &Coordinate::head, &Coordinate::channel})
      widen(axis);
    box.lo.component = box.hi.component = stop.component;
    if (!any[c] || box.layers.back() != at.layer) box.layers.push_back(at.layer);
    if (!any[c] || box.tokens.back() != at.token) box.tokens.push_back(at.token);
    any[c] = true;
  }
  constexpr double limit = 1 << 27;
  double all = 0;
  for (Box& box : boxes_) {
    box.begin = static_cast<std::size_t>(all);
    for (auto* values : {&box.layers, &box.tokens}) {
      std::ranges::sort(*values);
      values->erase(std::unique(values->begin(), values->end()), values->end());
    }
    double size = static_cast<double>(box.layers.size()) * static_cast<double>(box.tokens.size());
    for (auto axis : {&Coordinate::kv, &Coordinate::head, &Coordinate::channel})
      size *= static_cast<double>(box.hi.*axis - box.lo.*axis);
    all += size;
    if (all > limit) fail("takes more than 2^27 elements at once; pick some layers, tokens or heads");
  }
  codes_.resize(static_cast<std::size_t>(all));
}

std::size_t Elements::index(const Coordinate& at) const {
  const Box& box = boxes_[static_cast<std::size_t>(at.component)];
  std::int64_t i = at.kv - box.lo.kv;
  i = i * static_cast<std::int64_t>(box.layers.size()) + position(box.layers, at.layer);
  i = i * static_cast<std::int64_t>(box.tokens.size()) + position(box.tokens, at.token);
  i = i * (box.hi.head - box.lo.head) + at.head - box.lo.head;
  i = i * (box.hi.channel - box.lo.channel) + at.channel - box.lo.channel;
  return box.begin + static_cast<std::size_t>(i);
}

const SymbolicCode* Elements::find(const Coordinate& at) const {
  const Box& box = boxes_[static_cast<std::size_t>(at.component)];
  for (auto axis : {&Coordinate::kv, &Coordinate::layer, &Coordinate::token, &Coordinate::head, &Coordinate::channel}) {
    if (at.*axis < box.lo.*axis || at.*axis >= box.hi.*axis) return nullptr;
  }
  if (position(box.layers, at.layer) < 0 || position(box.tokens, at.token) < 0) return nullptr;
  const SymbolicCode& code = codes_[index(at)];
  return code.width > 0 ? &code : nullptr;
}

// The first view that holds an element has it.
Elements ReferenceModel::gather(const std::vector<Stop>& stops) {
  Elements out(stops);
  for (const Stop& stop : stops) {
    SymbolicCode& code = out.slot(coordinate_of(stop));
    if (code.width == 0) code = code_at(stop);
  }
  return out;
}

bool ReferenceModel::place(const std::vector<Placed>& codes) {
  const auto bytes = [](const SymbolicCode& code) { return (code.width + 7) / 8; };
  std::vector<Access> accesses;
  std::vector<bool> good(codes.size(), true);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const Placed& p = codes[i];
    for (const auto& access :
         {p.code.buffer < 0 ? std::nullopt : against(p.code.buffer, p.code.offset, bytes(p.code), false),
          p.buffer < 0 ? std::nullopt : against(p.buffer, p.bit / 8, bytes(p.code), true)}) {
      if (!access) continue;
      accesses.push_back(*access);
      good[i] = false;
    }
  }
  if (stopped(accesses)) return false;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (good[i] && codes[i].buffer >= 0) put_code(codes[i].buffer, codes[i].bit, codes[i].code);
  }
  return true;
}

void ReferenceModel::move() {
  const Action& a = *action_;
  const Mapping kv = mapping_of(a.pick.kv, a.pick_to.kv, "kv"),
                layers = mapping_of(a.pick.layers, a.pick_to.layers, "layers");
  const Mapping tokens = mapping_of(a.pick.tokens, a.pick_to.tokens, "tokens"),
                heads = mapping_of(a.pick.heads, a.pick_to.heads, "heads");
  const Mapping channels = mapping_of(a.pick.channels, a.pick_to.channels, "channels");
  expect_picks(a.from, a.pick);
  StepSelection pick = a.pick;
  pick.channels.reset();  // whole rows, so that alignment sees where they begin
  const Elements from = gather(stops(a.from, a.from_blocks, pick));

  std::vector<Placed> codes;
  std::int64_t bits = 0;
  const StepSelection there{layers.wanted, kv.wanted, tokens.wanted, heads.wanted, channels.wanted};
  for (const Stop& to : stops(a.to, a.to_blocks, there)) {
    const Coordinate at{to.component,
                        kv.source(to.kv),
                        layers.source(to.layer),
                        to.whole ? to.token : tokens.source(to.token),
                        heads.source(to.head),
                        channels.source(to.channel)};
    const SymbolicCode* code = from.find(at);
    if (!code) continue;
    if (code->width != to.width) {
      fail(fmt::format("moves codes of {} bits into codes of {} bits ({}); views of both ends need one width", code->width,
                       to.width, to_string(at)));
    }
    codes.push_back({to.buffer, to.bit, *code});
    bits += to.width;
  }
  const bool moved = place(codes);
  if (moved) free_unused_slots();
  event({{"bytes", moved ? bits / 8 : 0}, {"moved", moved}});
}

std::vector<Stop> ReferenceModel::unused_slots(const View& view) {
  const ViewWalk& at = walk(view);
  StepSelection pick = action_->pick_to;
  for (const auto axis : {&StepSelection::layers, &StepSelection::kv, &StepSelection::heads, &StepSelection::channels})
    if (!(pick.*axis)) pick.*axis = action_->pick.*axis;
  const Picks taken = pick.tokens ? pick.tokens : action_->pick.tokens;
  pick.tokens.reset();
  ViewPart take = wanted(at, action_->to_blocks, pick);
  if (taken && std::find(taken->begin(), taken->end(), take.end - 1) == taken->end()) return {};
  // Up to the end of the block, of the larger one of both ends.
  std::int64_t block = at.block_size();
  for (const View& source : action_->from) block = std::max(block, walk(source).block_size());
  const std::int64_t tokens = take.end - take.begin;
  take.begin = take.end, take.end += (block - tokens % block) % block;
  std::vector<Stop> out;
  at.each(take, [&](const Stop& stop) {
    if (!stop.whole) out.push_back(stop);
  });
  return out;
}

void ReferenceModel::free_unused_slots() {
  for (const View& view : action_->to) {
    auto memory = scenario_.memories.find(memory_of(view.of));
    while (memory != scenario_.memories.end() && !memory->second.view.of.empty())
      memory = scenario_.memories.find(memory_of(memory->second.view.of));
    if (memory == scenario_.memories.end() || memory->second.unused_slots != "free") continue;
    const std::vector<Stop> stops = unused_slots(view);
    if (stops.empty()) continue;
    std::map<int, std::map<std::int64_t, int>> bits;  // byte -> bits in unused slots
    for (const Stop& stop : stops)
      for (int i = 0; i < stop.bytes(); ++i) bits[stop.buffer][stop.byte() + i] += std::min(stop.width, 8);
    // Other requests may have tokens there: a shared prefix, with more of the block used.
    const ViewWalk& at = walk(view);
    for (const auto& [name, other] : requests_) {
      const auto table = other.tables.find(at.memory());
      if (table == other.tables.end()) continue;
      ViewPart used{{}, other.first_token, other.first_token + other.tokens, {}, "all"};
      std::int64_t position = 0;
      for (std::size_t i = 0; i < table->second.ids.size(); ++i) {
        position = i < table->second.positions.size() ? table->second.positions[i] : i == 0 ? 0 : position + 1;
        used.blocks.push_back({table->second.ids[i], other.first_token + position * at.block_size()});
      }
      at.each(used, [&](const Stop& stop) {
        if (const auto known = bits.find(stop.buffer); known != bits.end())
          for (int i = 0; i < stop.bytes(); ++i) known->second.erase(stop.byte() + i);
      });
    }
    for (const auto& [buffer, bytes] : bits)
      for (const auto& [offset, count] : bytes)
        if (count >= 8) add_range(unused_[buffer], offset, offset + 1);
  }
}

void ReferenceModel::copy() {
  const Action& a = *action_;
  if (a.from.size() != 1 || a.to.size() != 1) fail("copies from one place to one place");
  auto from = spans(a.from[0].of, a.from_offset, a.bytes, a.count, a.from_step);
  auto to = spans(a.to[0].of, a.to_offset, a.bytes, a.count, a.to_step);
  if (from.size() != to.size()) fail(fmt::format("copies {} allocations to {}", from.size(), to.size()));
  std::vector<Access> accesses;
  std::vector<bool> good(from.size(), true);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].bytes != to[i].bytes) fail(fmt::format("copies {} bytes to {}; say how many", from[i].bytes, to[i].bytes));
    keep_inside(from[i], to[i]);
    for (const auto& access : {against(from[i].buffer, from[i].begin, from[i].bytes, false),
                               against(to[i].buffer, to[i].begin, to[i].bytes, true)}) {
      if (!access) continue;
      accesses.push_back(*access);
      good[i] = false;
    }
  }
  const bool off = stopped(accesses);
  for (std::size_t i = 0; i < from.size() && !off; ++i) {
    if (good[i] && from[i].bytes > 0) copy_span(from[i], to[i]);
  }
  event({{"moved", !off}});
}

// A copy out of a log may leave its memory: afterwards only bytes inside at both ends are defined.
void ReferenceModel::keep_inside(Span& from, Span& to) {
  std::int64_t below = 0, above = 0;
  for (const Span* end : {&from, &to}) {
    const Buffer& b = space_.buffers()[static_cast<std::size_t>(end->buffer)];
    below = std::max(below, -end->begin), above = std::max(above, end->begin + end->bytes - b.bytes);
    if (end->begin >= 0 && end->begin + end->bytes <= b.bytes) continue;
    event({{"leaves", fmt::format("bytes {} to {} are outside of '{}', which has {}", end->begin,
                                  end->begin + end->bytes - 1, b.name, b.bytes)},
           {"before", end->begin < 0}});
  }
  below = std::min(below, from.bytes), above = std::min(above, from.bytes - below);
  for (Span* end : {&from, &to}) end->begin += below, end->bytes -= below + above;
}

// Read all of it before writing any of it.
void ReferenceModel::copy_span(const Span& from, const Span& to) {
  std::vector<SymbolId> ids;
  ids.reserve(static_cast<std::size_t>(from.bytes));
  for (std::int64_t i = 0; i < from.bytes; ++i) ids.push_back(id_at(from.buffer, from.begin + i));
  const auto unused = unused_.find(from.buffer);
  std::vector<bool> free(ids.size());
  for (std::size_t i = 0; i < ids.size() && unused != unused_.end(); ++i)
    free[i] = holds_byte(unused->second, from.begin + static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t at = to.begin + static_cast<std::int64_t>(i);
    put(to.buffer, at, ids[i]);
    if (free[i]) add_range(unused_[to.buffer], at, at + 1);
  }
}

// ---- numbers -------------------------------------------------------------------------------------------------------

namespace {

/// Whether the bytes are those of one element's code, in their order.
bool is_element(const SymbolTable& symbols, const SymbolicCode& code) {
  const Symbol symbol = symbols.at(code.bytes[0]);
  if (symbol.kind != Symbol::Kind::tag || symbol.dtype != code.dtype || symbol.byte != 0) return false;
  for (int i = 1; i < code.width / 8; ++i) {
    if (code.bytes[static_cast<std::size_t>(i)] != code.bytes[0] + static_cast<SymbolId>(i)) return false;
  }
  return true;
}

}  // namespace

SymbolId ReferenceModel::reference(const SymbolicCode& code) {
  if (code.width >= 8 && is_element(symbols_, code)) return code.bytes[0] + 1;
  Symbol symbol{.kind = Symbol::Kind::code,
                .dtype = code.dtype,
                .pieces = {hole, hole, hole, hole},
                .halves = static_cast<std::uint8_t>(code.high ? 1 : 0)};
  for (int i = 0; i < std::max(code.width / 8, 1); ++i)
    symbol.pieces[static_cast<std::size_t>(i)] = code.bytes[static_cast<std::size_t>(i)];
  return symbols_.intern(symbol) + 1;
}

Symbol ReferenceModel::number_of(const Coordinate& at, const SymbolicCode& code, const SymbolicCode* scale,
                                 const SymbolicCode* global_scale) {
  Symbol symbol;
  if (is_element(symbols_, code)) {
    symbol = symbols_.at(code.bytes[0]);
    if (code.width == 4 && code.high) ++symbol.channel;
  } else {
    symbol = {.component = at.component,
              .dtype = code.dtype,
              .kv = at.kv,
              .layer = at.layer,
              .token = at.token,
              .head = at.head,
              .channel = at.channel,
              .whole = reference(code)};
  }
  symbol.kind = Symbol::Kind::number;
  symbol.high_nibble_first = false;
  if (scale) symbol.scale = reference(*scale);
  if (global_scale) symbol.global_scale = reference(*global_scale);
  symbol.power = !scale && !global_scale ? 0 : action_->scales == "twice" ? 2 : 1;
  return symbol;
}

namespace {

/// How the groups of scales cover the channels of one of K and V.
struct Groups {
  std::int64_t channels{0}, narrow_channels{0}, groups{0};
};

/// The scale of a coordinate. Scales that do not depend on an axis have one value there; one scale per block, or per few
/// tokens, is stored at the first of them.
const SymbolicCode* scale_at(const Elements& from, Coordinate at, std::int64_t first_token, std::int64_t block_size) {
  const Elements::Box& box = from.box(at.component);
  if (box.empty()) return nullptr;
  for (auto axis : {&Coordinate::kv, &Coordinate::layer, &Coordinate::token, &Coordinate::head}) {
    if (box.hi.*axis - box.lo.*axis == 1) at.*axis = box.lo.*axis;
  }
  if (at.component == Component::global_scale) at.channel = box.lo.channel;
  if (const SymbolicCode* code = from.find(at)) return code;
  const std::int64_t begin = first_token + (at.token - first_token) / block_size * block_size;
  while (--at.token >= begin) {
    if (const SymbolicCode* code = from.find(at)) return code;
  }
  return nullptr;
}

}  // namespace

void ReferenceModel::read() {
  const Action& a = *action_;
  if (a.decode) parts_ = "all";
  const std::int64_t first_token = request().first_token;
  const OutputShape shape = output_shape(a, {first_token, request().tokens});
  const int out = space_.output(a.output);
  if (out < 0) fail("there is no output '" + a.output + "'");
  const auto all = stops(a.from, a.from_blocks, a.pick, a.decode);
  const Elements from = gather(all);
  std::int64_t block_size = 1;
  for (const View& view : a.from) block_size = std::max(block_size, walk(view).block_size());
  std::map<std::int64_t, Groups> by_kv;
  for (const Stop& stop : all) {
    Groups& g = by_kv[stop.kv];
    if (stop.component == Component::scale) g.groups = std::max(g.groups, stop.channel + 1);
    if (stop.component != Component::data) continue;
    g.channels = std::max(g.channels, stop.channel + 1);
    if (stop.width <= 8) g.narrow_channels = std::max(g.narrow_channels, stop.channel + 1);
  }

  const auto element = [&](const Coordinate& at, std::int64_t bit) {
    const SymbolicCode* code = from.find(at);
    if (!code) return;
    if (!a.decode) {
      put_code(out, bit, *code);
      return;
    }
    const SymbolicCode *scale = nullptr, *global_scale = nullptr;
    // Next to wide codes, scales belong to the narrow ones.
    const Groups& g = by_kv[at.kv];
    if (a.scales != "ignored" && (code->width <= 8 || g.narrow_channels == 0)) {
      Coordinate of = at;
      of.component = Component::global_scale;
      global_scale = scale_at(from, of, first_token, block_size);
      of.component = Component::scale;
      const std::int64_t groups = g.groups > 0 ? g.groups : from.box(Component::scale).hi.channel;
      of.channel = at.channel * groups / std::max<std::int64_t>(g.narrow_channels > 0 ? g.narrow_channels : g.channels, 1);
      scale = scale_at(from, of, first_token, block_size);
    }
    Symbol symbol = number_of(at, *code, scale, global_scale);
    for (; symbol.byte < 4; ++symbol.byte) put(out, bit / 8 + symbol.byte, symbols_.intern(symbol));
  };
  for (const OutputSection& section : shape.sections) {
    std::int64_t row = section.begin * 8;
    for (const std::int64_t kv : section.kv) {
      for (const std::int64_t layer : section.layers) {
        for (const std::int64_t token : section.tokens) {
          for (const std::int64_t head : section.heads) {
            for (std::size_t i = 0; i < section.channels.size(); ++i) {
              element({section.component, kv, layer, token, head, section.channels[i]},
                      row + static_cast<std::int64_t>(i) * section.width);
            }
            row += section.row_bits();
          }
        }
      }
    }
  }
  event({{"output", a.output}});
}

// ---- stored objects ------------------------------------------------------------------------------------------------

void ReferenceModel::put() {
  const Action& a = *action_;
  const auto key = std::pair{a.store, a.key};
  const bool there = stored_.contains(key);
  event({{"store", a.store}, {"key", a.key}, {"there", there}});
  if (there && a.on_exists == "keep") return;
  std::vector<Placed> taken;
  std::vector<SymbolicCode> object;
  gather(stops(a.from, a.from_blocks, a.pick)).each([&](const Coordinate&, const SymbolicCode& code) {
    taken.push_back({-1, 0, code});
    object.push_back(code);
  });
  if (place(taken)) stored_[key] = std::move(object);
}

void ReferenceModel::get() {
  const Action& a = *action_;
  const auto found = stored_.find({a.store, a.key});
  event({{"store", a.store}, {"key", a.key}, {"hit", found != stored_.end()}});
  if (found == stored_.end()) return;
  const Mapping kv = mapping_of(a.pick.kv, a.pick_to.kv, "kv"),
                layers = mapping_of(a.pick.layers, a.pick_to.layers, "layers");
  const Mapping tokens = mapping_of(a.pick.tokens, a.pick_to.tokens, "tokens"),
                heads = mapping_of(a.pick.heads, a.pick_to.heads, "heads");
  const Mapping channels = mapping_of(a.pick.channels, a.pick_to.channels, "channels");
  std::vector<Stop> to = stops(a.to, a.to_blocks, {layers.wanted, kv.wanted, tokens.wanted, heads.wanted, channels.wanted});
  // Which code of the object goes there: objects keep the order of the put.
  const auto object_of = [&](const Stop& s) {
    return Coordinate{
        s.component,          kv.source(s.kv),           layers.source(s.layer), s.whole ? s.token : tokens.source(s.token),
        heads.source(s.head), channels.source(s.channel)};
  };
  std::stable_sort(to.begin(), to.end(), [&](const Stop& x, const Stop& y) { return object_of(x) < object_of(y); });
  const std::vector<SymbolicCode>& object = found->second;
  std::vector<Placed> codes;
  std::size_t next = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    // Views that hold the same element get the same code.
    const bool again = i > 0 && object_of(to[i]) == object_of(to[i - 1]);
    if (!again) ++next;
    if (next > object.size() || object[next - 1].width != to[i].width) {
      fail(fmt::format("the object holds {} codes, but not the requested one ({})", object.size(),
                       to_string(coordinate_of(to[i]))));
    }
    SymbolicCode code = object[next - 1];
    code.buffer = -1;
    codes.push_back({to[i].buffer, to[i].bit, code});
  }
  if (next != object.size()) fail(fmt::format("the object holds {} codes, but {} are requested", object.size(), next));
  if (place(codes)) free_unused_slots();
}

}  // namespace kvcts::scenario
