#include "scene/truth/reference_model.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "case/text.hpp"

namespace kvcts::scenario {

using layout::Axis;
using nlohmann::json;
using text::fail;

namespace {

struct AxisPicks {
  Axis axis;
  const char* name;
  const Picks* picks;
};

// Bytes in hexadecimal, as a fill repeats them.
std::vector<std::uint8_t> bytes_of(const std::string& value) {
  std::string digits;
  for (char c : value.starts_with("0x") ? value.substr(2) : value) {
    if (c != ' ') digits += c;
  }
  std::vector<std::uint8_t> out;
  if (digits.empty()) digits = "?";
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const std::string pair = digits.substr(i, 2);
    std::size_t used = 0;
    int byte = -1;
    try {
      byte = std::stoi(pair, &used, 16);
    } catch (const std::exception&) {
    }
    if (used != 2) fail("expected poison, zero or bytes in hexadecimal, found '" + value + "'");
    out.push_back(static_cast<std::uint8_t>(byte));
  }
  return out;
}

bool has_all(const json& fields, const json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    if (!fields.contains(name) || fields.at(name) != value) return false;
  }
  return true;
}

}  // namespace

Truth truth_of(const Scenario& scenario, const AddressSpace& space, SymbolTable& symbols) {
  return ReferenceModel(scenario, space, symbols).truth_of();
}

ReferenceModel::ReferenceModel(const Scenario& scenario, const AddressSpace& space, SymbolTable& symbols)
    : scenario_(scenario), space_(space), symbols_(symbols), images_(space.buffers().size()) {
  for (const auto& [name, request] : scenario.requests) {
    RequestNow now{request.tokens, request.first_token, request.generation, {}};
    for (const auto& [memory, ids] : request.blocks) now.tables[memory].ids = ids;
    for (const auto& [memory, positions] : request.positions) {
      now.tables[memory].positions = positions;
      now.tables[memory].windows = true;
    }
    requests_.emplace(name, std::move(now));
  }
  for (const Step& step : scenario.steps) {
    if (step.intended.op != Operation::register_range) continue;
    const std::string memory = step.intended.memory.substr(0, step.intended.memory.find('/'));
    for (const Buffer& buffer : space.buffers()) {
      if (buffer.memory == memory) registered_only_.insert(buffer.ordinal);
    }
  }
}

Truth ReferenceModel::truth_of() {
  for (const Step& step : scenario_.steps) {
    try {
      if (!act(step)) break;
    } catch (const std::exception& e) {
      fail("step '" + step.name + "': " + e.what());
    }
  }
  checkpoint("");
  return std::move(truth_);
}

// One switch: what each operation does, in a line or in a function of its own.
bool ReferenceModel::act(const Step& step) {
  step_ = &step;
  action_ = &step.intended;
  parts_ = action_->parts;
  const Action& a = *action_;
  switch (a.op) {
    case Operation::nothing:
      break;
    case Operation::write:
      write();
      break;
    case Operation::fill:
      fill();
      break;
    case Operation::move:
      move();
      break;
    case Operation::copy:
      copy();
      break;
    case Operation::read:
      read();
      break;
    case Operation::put:
      put();
      break;
    case Operation::get:
      get();
      break;
    case Operation::register_range:
    case Operation::unregister_range:
      registration();
      break;
    case Operation::assign:
      assign();
      break;
    case Operation::signal:
      signals_.emplace_back(a.event, a.fields);
      event({{"event", a.event}, {"fields", a.fields}});
      break;
    case Operation::wait: {
      const bool there = std::any_of(signals_.begin(), signals_.end(),
                                     [&](const auto& s) { return s.first == a.event && has_all(s.second, a.fields); });
      event({{"event", a.event}, {"fields", a.fields}, {"there", there}});
      if (!there) end("hung", "waits for '" + a.event + "', which never comes");
      break;
    }
    case Operation::complete:
      event({{"fields", a.fields}});
      break;
    case Operation::fail:
      event({{"text", a.text}});
      break;
    case Operation::require:
    case Operation::unpack:
      demand();
      break;
    case Operation::refuse:
      end("refused", a.text);
      break;
    case Operation::raise:
      end("raised", a.text);
      break;
    case Operation::crash:
      end("crashed", a.text);
      break;
    case Operation::hang:
      end("hung", a.text);
      break;
    case Operation::check:
      check();
      break;
  }
  return truth_.ending.kind == "completed";
}

void ReferenceModel::event(json fields) {
  fields["step"] = step_->name;
  fields["op"] = action_->op;
  if (!action_->request.empty()) fields["request"] = action_->request;
  truth_.events.push_back(std::move(fields));
}

void ReferenceModel::end(const std::string& kind, const std::string& text) {
  const Action& a = *action_;
  truth_.ending = {kind,     step_->name, a.in,   text, a.op == Operation::unpack ? "dims" : a.about,
                   a.signal, a.expects,   a.found};
}

// A requirement is met when found equals expected, and every needed fact has at least its minimum.
void ReferenceModel::demand() {
  const Action& a = *action_;
  std::string text = a.text;
  bool met = true;
  const auto miss = [&](const std::string& why) {
    if (met && a.text.empty()) text = why;
    met = false;
  };
  if (a.op == Operation::unpack) {
    if (a.expects.size() != a.found.size()) miss(fmt::format("expected {}, got {}", a.expects.size(), a.found.size()));
  } else {
    if (a.expects != a.found) miss(fmt::format("expected {}, found {}", a.expects.dump(), a.found.dump()));
    for (const auto& [fact, least] : a.needs.items()) {
      const json has = a.has.contains(fact) ? a.has.at(fact) : json();
      const bool enough =
          least.is_number() && has.is_number() ? has.get<double>() >= least.get<double>() : !has.is_null() && has == least;
      if (!enough) miss(fmt::format("needs {} {}, has {}", fact, least.dump(), has.is_null() ? "none" : has.dump()));
    }
  }
  event({{"about", a.op == Operation::unpack ? "dims" : a.about},
         {"expects", a.expects},
         {"found", a.found},
         {"needs", a.needs},
         {"has", a.has},
         {"good", met}});
  if (met || a.otherwise == "go on") return;
  end(a.otherwise == "refuse" ? "refused" : a.otherwise == "crash" ? "crashed" : "raised", text);
}

void ReferenceModel::assign() {
  RequestNow& now = request();
  for (const auto& [memory, ids] : action_->blocks) now.tables[memory].ids = ids;
  if (action_->generation) now.generation = *action_->generation;
  if (action_->tokens) now.tokens = *action_->tokens;
  event(json::object());
}

// ---- what a step takes ---------------------------------------------------------------------------------------------

const ViewWalk& ReferenceModel::walk(const View& view) {
  // Everything that a walk depends on; the other fields of a view are in its cache text.
  const std::string key =
      fmt::format("{}\n{}\n{} {} {} {} {} {} {}", view.of, view.cache, view.offset, view.scale_offset, view.align,
                  view.arithmetic.bits, view.arithmetic.is_signed, view.arithmetic.unit, view.arithmetic.of);
  auto& slot = walks_[key];
  if (!slot) slot = std::make_unique<ViewWalk>(view, space_);
  return *slot;
}

ReferenceModel::RequestNow& ReferenceModel::request() {
  const auto found = requests_.find(action_->request);
  if (found == requests_.end()) fail("there is no request '" + action_->request + "'");
  return found->second;
}

ViewPart ReferenceModel::wanted(const ViewWalk& view, const std::optional<std::vector<std::int64_t>>& instead,
                                const StepSelection& pick) {
  const RequestNow& now = request();
  ViewPart out{{}, now.first_token, now.first_token + now.tokens, pick, parts_};
  if (pick.tokens) {
    for (const std::int64_t token : *pick.tokens) {
      if (token < out.begin || token >= out.end) {
        fail(
            fmt::format("picks token {}, but request '{}' has tokens {} to {} (what the code did with a wrong one belongs "
                        "under 'actually')",
                        token, action_->request, out.begin, out.end - 1));
      }
    }
  }
  if (!view.blocked()) return out;
  const auto found = now.tables.find(view.memory());
  if (found == now.tables.end() && !instead) {
    fail("request '" + action_->request + "' has no blocks in memory '" + view.memory() +
         "'; name them, or give the step its own list");
  }
  Table table = found == now.tables.end() ? Table{} : found->second;
  if (instead) table.ids = *instead;
  const std::int64_t n = view.block_size();
  std::int64_t position = 0;
  for (std::size_t i = 0; i < table.ids.size(); ++i) {
    position = i < table.positions.size() ? table.positions[i] : i == 0 ? 0 : position + 1;
    if (table.ids[i] == no_block) continue;
    if (!view.holds(Axis::block, table.ids[i], "all"))
      fail(fmt::format("memory '{}' has no block {}", view.memory(), table.ids[i]));
    out.blocks.push_back({table.ids[i], now.first_token + position * n});
  }
  const auto reach = static_cast<std::int64_t>(table.ids.size()) * n;
  const std::int64_t needed = pick.tokens && !pick.tokens->empty()
                                  ? *std::max_element(pick.tokens->begin(), pick.tokens->end()) + 1 - out.begin
                                  : now.tokens;
  if (!instead && !table.windows && needed > reach) {
    fail(fmt::format("request '{}' has {} blocks of {} in memory '{}', which is too few for {} tokens", action_->request,
                     table.ids.size(), n, view.memory(), needed));
  }
  return out;
}

void ReferenceModel::expect_picks(const std::vector<View>& views, const StepSelection& pick) {
  for (const AxisPicks& p : {AxisPicks{Axis::layer, "layer", &pick.layers},
                             {Axis::kv, "kv", &pick.kv},
                             {Axis::head, "head", &pick.heads},
                             {Axis::channel, "channel", &pick.channels}}) {
    if (!*p.picks) continue;
    for (const std::int64_t coordinate : **p.picks) {
      const bool held =
          std::any_of(views.begin(), views.end(), [&](const View& v) { return walk(v).holds(p.axis, coordinate, parts_); });
      if (held) continue;
      std::optional<std::int64_t> lo, hi;
      for (const View& view : views) {
        for (const layout::Plane& plane : walk(view).cache().planes) {
          if (!in_parts(plane.component, parts_)) continue;
          const layout::Box box = layout::domain(plane);
          lo = std::min(lo.value_or(box.lo[p.axis]), box.lo[p.axis]),
          hi = std::max(hi.value_or(box.hi[p.axis]), box.hi[p.axis]);
        }
      }
      const std::string expected = lo ? fmt::format(": expected {}..{}", *lo, *hi - 1) : "";
      fail(fmt::format(
          "picks {} {}, which '{}' does not hold{} (what the code did with a wrong one belongs under 'actually')", p.name,
          coordinate, views.empty() ? "" : views.front().of, expected));
    }
  }
}

std::vector<Stop> ReferenceModel::stops(const std::vector<View>& views,
                                        const std::optional<std::vector<std::int64_t>>& instead, const StepSelection& pick,
                                        bool unpicked) {
  expect_picks(views, pick);
  std::vector<Stop> out;
  for (const View& view : views) {
    const ViewWalk& at = walk(view);
    ViewPart take = wanted(at, instead, pick);
    if (unpicked) take.pick = {};
    at.each(take, [&](const Stop& stop) {
      if (stop.width >= 8 && stop.bit % 8 != 0)
        fail("a code of " + std::to_string(stop.width) + " bits lies across bytes of '" + view.of + "'");
      expect_inside(stop.buffer, stop.byte(), stop.bytes());
      out.push_back(stop);
    });
  }
  return out;
}

void ReferenceModel::expect_inside(int buffer, std::int64_t offset, std::int64_t bytes) const {
  const Buffer& b = space_.buffers()[static_cast<std::size_t>(buffer)];
  if (offset >= 0 && offset + bytes <= b.bytes) return;
  fail(fmt::format("bytes {} to {} are outside of '{}', which has {}", offset, offset + bytes - 1, b.name, b.bytes));
}

std::vector<ReferenceModel::Span> ReferenceModel::spans(const std::string& name, std::int64_t offset, std::int64_t bytes,
                                                        std::int64_t count, std::int64_t step) const {
  std::vector<Span> out;
  if (bytes == 0 && name.find('/') == std::string::npos) {
    for (const Buffer& b : space_.buffers()) {
      if (b.memory == name) out.push_back({b.ordinal, offset, b.bytes - offset});
    }
    if (!out.empty()) return out;
  }
  const BufferAddress place = space_.address(name);
  if (bytes == 0) {
    // Only as far as the name determines the place.
    const Buffer& b = space_.buffers()[static_cast<std::size_t>(place.buffer)];
    std::int64_t end = place.offset + offset, inside = 0;
    while (end < b.bytes && space_.symbol_of({place.buffer, end}, inside) == name)
      end = space_.name_end({place.buffer, end});
    return {{place.buffer, place.offset + offset, end - place.offset - offset}};
  }
  for (std::int64_t i = 0; i < count; ++i) out.push_back({place.buffer, place.offset + offset + i * step, bytes});
  return out;
}

// ---- codes and bytes -----------------------------------------------------------------------------------------------

SymbolId ReferenceModel::id_at(int buffer, std::int64_t offset) {
  const SymbolId id = images_[static_cast<std::size_t>(buffer)].at(offset);
  return id != hole ? id : fresh_id(space_.buffers()[static_cast<std::size_t>(buffer)], offset, symbols_);
}

SymbolicCode ReferenceModel::code_at(const Stop& stop) {
  SymbolicCode code{.width = stop.width, .dtype = stop.dtype, .buffer = stop.buffer, .offset = stop.bit / 8};
  if (stop.width == 4) {
    const Nibble half = symbols_.nibble(id_at(stop.buffer, stop.bit / 8), stop.bit % 8 != 0);
    code.bytes[0] = half.byte;
    code.high = half.high;
    return code;
  }
  for (int i = 0; i < stop.width / 8; ++i) code.bytes[static_cast<std::size_t>(i)] = id_at(stop.buffer, stop.bit / 8 + i);
  return code;
}

SymbolicCode ReferenceModel::content_of(const Stop& stop, std::uint32_t generation) {
  Symbol symbol{.kind = Symbol::Kind::tag,
                .component = stop.component,
                .dtype = stop.dtype,
                .codes = action_->content == "codes",
                .values = action_->content == "values",
                .generation = generation,
                .kv = stop.kv,
                .layer = stop.layer,
                .token = stop.token,
                .head = stop.head,
                .channel = stop.channel};
  SymbolicCode code{.width = stop.width, .dtype = stop.dtype};
  if (stop.width == 4) {
    const Nibble half = symbols_.nibble(symbol);
    code.bytes[0] = half.byte;
    code.high = half.high;
    return code;
  }
  for (; symbol.byte < stop.width / 8; ++symbol.byte) code.bytes[symbol.byte] = symbols_.intern(symbol);
  return code;
}

void ReferenceModel::put(int buffer, std::int64_t offset, SymbolId id) {
  images_[static_cast<std::size_t>(buffer)].set(offset, id);
  if (const auto unused = unused_.find(buffer); unused != unused_.end()) remove_byte(unused->second, offset);
}

void ReferenceModel::put_code(int buffer, std::int64_t bit, const SymbolicCode& code) {
  if (code.width == 4) {
    const bool high = bit % 8 != 0;
    const Nibble other = symbols_.nibble(id_at(buffer, bit / 8), !high), half{code.bytes[0], code.high};
    put(buffer, bit / 8, high ? symbols_.join(other, half) : symbols_.join(half, other));
    return;
  }
  for (int i = 0; i < code.width / 8; ++i) put(buffer, bit / 8 + i, code.bytes[static_cast<std::size_t>(i)]);
}

void ReferenceModel::write() {
  const std::uint32_t generation = action_->generation.value_or(request().generation);
  for (const Stop& stop : stops(action_->to, action_->to_blocks, action_->pick))
    put_code(stop.buffer, stop.bit, content_of(stop, generation));
  event({{"generation", generation}});
}

ViewPart ReferenceModel::whole_blocks(const ViewWalk& view) const {
  const Action& a = *action_;
  ViewPart out{{}, 0, static_cast<std::int64_t>(a.to_blocks->size()) * view.block_size(), a.pick, parts_};
  for (const std::int64_t id : *a.to_blocks) {
    out.blocks.push_back({id, static_cast<std::int64_t>(out.blocks.size()) * view.block_size()});
    if (id != no_block && !view.holds(Axis::block, id, "all"))
      fail(fmt::format("memory '{}' has no block {}", view.memory(), id));
  }
  return out;
}

// Patterns restart with each range, and with each row of channels.
void ReferenceModel::fill() {
  const Action& a = *action_;
  const std::vector<std::uint8_t> pattern = a.value == "zero"                        ? std::vector<std::uint8_t>{0}
                                            : a.value == "poison" || a.value.empty() ? std::vector<std::uint8_t>{}
                                                                                     : bytes_of(a.value);
  const auto constant = [&](std::uint8_t byte) { return symbols_.intern({.kind = Symbol::Kind::constant, .byte = byte}); };
  const auto symbol_of = [&](int buffer, std::int64_t offset, std::size_t index) {
    if (!pattern.empty()) return constant(pattern[index % pattern.size()]);
    return symbols_.intern({.kind = Symbol::Kind::poison, .buffer = buffer, .offset = offset});
  };
  if (a.request.empty() && !a.to_blocks) {
    for (const View& view : a.to) {
      for (const Span& span : spans(view.of, a.to_offset, a.bytes, a.count, a.to_step)) {
        expect_inside(span.buffer, span.begin, span.bytes);
        for (std::int64_t i = 0; i < span.bytes; ++i) {
          put(span.buffer, span.begin + i, symbol_of(span.buffer, span.begin + i, static_cast<std::size_t>(i)));
        }
      }
    }
    event(json::object());
    return;
  }
  const auto one = [&](const Stop& stop, std::int64_t first_channel) {
    const std::int64_t at = (stop.channel - first_channel) * stop.width;
    if (stop.width == 4) {
      const bool high = stop.bit % 8 != 0;
      const Nibble half = symbols_.nibble(symbol_of(stop.buffer, stop.bit / 8, static_cast<std::size_t>(at / 8)), high);
      put_code(stop.buffer, stop.bit, {.width = 4, .dtype = stop.dtype, .bytes = {half.byte, 0, 0, 0}, .high = half.high});
      return;
    }
    for (int i = 0; i < stop.width / 8; ++i) {
      put(stop.buffer, stop.bit / 8 + i, symbol_of(stop.buffer, stop.bit / 8 + i, static_cast<std::size_t>(at / 8 + i)));
    }
  };
  for (const View& view : a.to) {
    const ViewWalk& at = walk(view);
    const ViewPart take = a.request.empty() ? whole_blocks(at) : wanted(at, a.to_blocks, a.pick);
    std::map<std::pair<int, int>, std::int64_t> first;  // channel of a row's begin, by what the planes of a view differ in
    const auto key = [](const Stop& s) { return std::pair{static_cast<int>(s.component), s.width}; };
    at.each(take, [&](const Stop& stop) {
      auto& least = first.try_emplace(key(stop), stop.channel).first->second;
      least = std::min(least, stop.channel);
    });
    at.each(take, [&](const Stop& stop) {
      expect_inside(stop.buffer, stop.byte(), stop.bytes());
      one(stop, first.at(key(stop)));
    });
  }
  event(json::object());
}

}  // namespace kvcts::scenario
