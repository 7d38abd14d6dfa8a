#include "scene/machine/recorder.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "layout/checked.hpp"
#include "scene/truth/walk.hpp"

namespace kvcts::script {

using layout::Axis;
using layout::Component;
using nlohmann::json;
using layout::checked::floor_div;

namespace {

std::string key_text(const std::map<std::string, std::string>& key) {
  std::string out;
  for (const auto& [field, value] : key) out += field + "=" + value + ";";
  return out;
}

bool includes(const json& fields, const json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    const auto found = fields.find(name);
    if (found == fields.end() || *found != value) return false;
  }
  return true;
}

std::vector<std::uint8_t> pattern_of(const std::string& value) {
  if (value == "zero") return {0};
  if (value == "poison" || value.empty()) return {};
  std::vector<std::uint8_t> out;
  std::string digits = value.starts_with("0x") ? value.substr(2) : value;
  std::erase(digits, ' ');
  if (digits.empty() || digits.size() % 2 != 0 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    throw std::runtime_error("fill: expected poison, zero or bytes in hexadecimal, found '" + value + "'");
  }
  for (std::size_t i = 0; i < digits.size(); i += 2) out.push_back(static_cast<std::uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return out;
}

}  // namespace

Recorder::Recorder(const Script& script, const Arena& arena, Tape& tape, Locators& locators) : Recorder(script, arena, tape, locators, Progress{}) {
  tape_.backings = arena.backings();
  tape_.own = tape_.backings.size();
  for (const auto& [name, request] : script.requests) {
    RequestNow& now = now_.requests[name];
    now.tokens = request.tokens, now.first_token = request.first_token, now.generation = request.generation;
    for (const auto& [memory, ids] : request.blocks) {
      Table& table = now.tables[memory];
      table.ids = ids;
      if (const auto at = request.positions.find(memory); at != request.positions.end()) table.positions = at->second;
    }
  }
}

Recorder::Recorder(const Script& script, const Arena& arena, Tape& tape, Locators& locators, Progress progress)
    : script_(script), arena_(arena), tape_(tape), locators_(locators), now_(std::move(progress)) {
  for (const Step& step : script.steps) {
    if (step.intended.op != "register") continue;
    for (const Backing& backing : arena.backings()) {
      if (backing.memory == step.intended.memory.substr(0, step.intended.memory.find('/'))) needs_registration_.insert(backing.ordinal);
    }
  }
}

void Recorder::run(const Sequence& sequence) {
  for (const Play& play : sequence) {
    if (!act(play)) return;
  }
  finish();
}

void Recorder::finish() {
  tape_.ops.push_back({Op::Kind::check, -1, -1, 0, 0, 0, tape_.checks.size()});
  tape_.checks.push_back("");
}

void Recorder::event(const Play& play, json fields) {
  fields["step"] = play.step;
  fields["op"] = play.action.op;
  if (!play.action.request.empty()) fields["request"] = play.action.request;
  tape_.events.push_back(std::move(fields));
}

void Recorder::end(const std::string& kind, const Play& play, const std::string& text) {
  Ending& e = tape_.ending;
  e.kind = kind, e.step = play.step, e.text = text;
  e.in = play.action.in, e.about = play.action.about, e.signal = play.action.signal;
  e.expects = play.action.expects, e.found = play.action.found;
  tape_.ops.push_back({Op::Kind::check, -1, -1, 0, 0, 0, tape_.checks.size()});
  tape_.checks.push_back("");
}

int Recorder::temporary(std::int64_t bytes) {
  Backing backing;
  backing.name = "(temporary)";
  backing.side = "staging";
  backing.ordinal = static_cast<int>(tape_.backings.size());
  backing.bytes = bytes;
  tape_.backings.push_back(backing);
  return backing.ordinal;
}

bool Recorder::stopped_by(const Play& play, const std::vector<Violation>& violations, bool transfer) {
  if (violations.empty()) return false;
  const Violation& first = violations.front();
  std::int64_t offset = 0;
  const std::string where = arena_.name_of({first.backing, first.offset}, offset);
  const std::string text = std::string(first.write ? "write" : "read") + " of " + std::to_string(first.bytes) + " bytes at " + where + " + " +
                           std::to_string(offset) + ": " + first.what;
  event(play, {{"violation", first.what}, {"backing", first.backing}, {"offset", first.offset}, {"bytes", first.bytes}, {"write", first.write},
               {"count", violations.size()}, {"text", text}});
  if (play.action.otherwise == "go on") return false;
  if (first.what == "outside") end(transfer ? "raised" : "crashed", play, text);
  return true;
}

bool Recorder::act(const Play& play) {
  const Action& a = play.action;
  if (play.part == Play::Part::capture) {
    Captured& taken = now_.captured[play.step];
    if (play.takes_table) taken.tables = now_.requests;
    if (play.takes_bytes && (a.op == "move")) {
      taken.runs = runs_of_move(a);
      std::int64_t bits = 0;
      for (const Run& run : taken.runs) bits += (run.n + 7) / 8 * 8 + 8;
      taken.backing = temporary(bits / 8);
      std::int64_t at = 0;
      std::vector<Run> in;
      for (Run& run : taken.runs) {
        const std::int64_t lead = run.src - floor_div(run.src, 8) * 8;
        in.push_back({run.src_backing, taken.backing, run.src, at + lead, run.n});
        run.src_backing = taken.backing, run.src = at + lead;
        at += (run.n + lead + 7) / 8 * 8;
      }
      if (!stopped_by(play, post(in, true), true)) emit(in);
    }
    return tape_.ending.kind == "completed";
  }
  std::map<std::string, RequestNow> later;
  const bool old_tables = play.part == Play::Part::deliver && play.takes_table;
  if (old_tables) {
    later = now_.requests;
    now_.requests = now_.captured[play.step].tables;
  }

  if (a.op == "nothing") {
  } else if (picks_beyond(play)) {
  } else if (a.op == "write") {
    write(play);
  } else if (a.op == "move") {
    move(play);
  } else if (a.op == "copy") {
    const Place from = arena_.place(a.from.at(0).of), to = arena_.place(a.to.at(0).of);
    std::vector<Run> runs;
    for (std::int64_t i = 0; i < a.count; ++i) {
      runs.push_back({from.backing, to.backing, (from.offset + a.from_offset + i * a.from_step) * 8, (to.offset + a.to_offset + i * a.to_step) * 8,
                      a.bytes * 8});
    }
    const auto against = post(runs, a.splits);
    const bool stopped = stopped_by(play, against, true);
    event(play, {{"moved", !stopped}, {"bytes_moved", stopped ? 0 : a.count * a.bytes}});
    if (against.empty() || a.otherwise == "go on") emit(runs);
  } else if (a.op == "fill") {
    fill(play);
  } else if (a.op == "read") {
    read(play);
  } else if (a.op == "register" || a.op == "unregister") {
    registration(play);
  } else if (a.op == "put") {
    put(play);
  } else if (a.op == "get") {
    get(play);
  } else if (a.op == "assign") {
    RequestNow& now = request(a.request);
    for (const auto& [memory, ids] : a.blocks) now.tables[memory].ids = ids;
    if (a.generation) now.generation = *a.generation;
    if (a.tokens) now.tokens = *a.tokens;
    event(play, json::object());
  } else if (a.op == "signal") {
    now_.signals.emplace_back(a.event, a.fields);
    event(play, {{"event", a.event}, {"fields", a.fields}});
  } else if (a.op == "wait") {
    const bool there = std::any_of(now_.signals.begin(), now_.signals.end(), [&](const auto& s) { return s.first == a.event && includes(s.second, a.fields); });
    event(play, {{"event", a.event}, {"fields", a.fields}, {"there", there}});
    if (!there) end("hung", play, "waits for '" + a.event + "' " + (a.fields.empty() ? "" : "with " + a.fields.dump() + ", ") + "which never comes");
  } else if (a.op == "complete") {
    event(play, {{"fields", a.fields}});
  } else if (a.op == "fail") {
    event(play, {{"text", a.text}});
  } else if (a.op == "require" || a.op == "unpack") {
    require(play);
  } else if (a.op == "refuse") {
    end("refused", play, a.text);
  } else if (a.op == "raise") {
    end("raised", play, a.text);
  } else if (a.op == "crash") {
    end("crashed", play, a.text);
  } else if (a.op == "hang") {
    end("hung", play, a.text);
  } else if (a.op == "check") {
    tape_.ops.push_back({Op::Kind::check, -1, -1, 0, 0, 0, tape_.checks.size()});
    tape_.checks.push_back(play.step);
  } else {
    throw std::runtime_error("step '" + play.step + "': unknown operation '" + a.op + "'");
  }

  if (old_tables) now_.requests = std::move(later);
  return tape_.ending.kind == "completed";
}

bool Recorder::picks_beyond(const Play& play) {
  const Action& a = play.action;
  std::string about;
  const auto check = [&](const std::vector<View>& views, const Selection& pick, bool write) -> std::optional<std::string> {
    const auto beyond = [&](Axis axis, const char* name, const Picks& picks) -> std::optional<std::string> {
      if (!picks) return std::nullopt;
      std::optional<std::int64_t> lo, hi;
      for (const View& view : views) {
        for (const PlaneLocator& plane : locator(view).planes()) {
          if (!in_parts(plane.plane().component, a.parts)) continue;
          const layout::Box& box = plane.domain();
          lo = std::min(lo.value_or(box.lo[axis]), box.lo[axis]), hi = std::max(hi.value_or(box.hi[axis]), box.hi[axis]);
        }
      }
      for (const std::int64_t i : *picks) {
        if (lo && i >= *lo && i < *hi) continue;
        about = axis == Axis::layer ? "layers" : axis == Axis::head ? "heads" : axis == Axis::kv ? "kv" : "";
        return std::string(write ? "writes " : "reads ") + name + " " + std::to_string(i) + ", which '" + views.front().of + "' does not have" +
               (lo ? " (" + std::to_string(*lo) + ".." + std::to_string(*hi - 1) + ")" : "");
      }
      return std::nullopt;
    };
    if (views.empty()) return std::nullopt;
    for (const auto& found : {beyond(Axis::layer, "layer", pick.layers), beyond(Axis::kv, "kv", pick.kv), beyond(Axis::head, "head", pick.heads), beyond(Axis::channel, "channel", pick.channels)}) {
      if (found) return found;
    }
    return std::nullopt;
  };
  auto found = check(a.from, a.pick, false);
  if (!found) found = check(a.to, destinations(a), true);
  if (!found) return false;
  event(play, {{"beyond", *found}});
  if (a.otherwise == "go on") return false;
  end(a.op == "move" || a.op == "put" || a.op == "get" ? "raised" : "crashed", play, *found);
  tape_.ending.about = about;
  return true;
}

bool Recorder::require(const Play& play) {
  const Action& a = play.action;
  std::string text = a.text;
  bool good = true;
  if (a.op == "unpack") {
    good = a.expects.size() == a.found.size();
    if (text.empty()) {
      text = std::string(a.expects.size() > a.found.size() ? "not enough" : "too many") + " values to unpack (expected " +
             std::to_string(a.expects.size()) + ", got " + std::to_string(a.found.size()) + ")";
    }
  } else {
    good = a.expects == a.found;
    if (!good && text.empty()) text = (a.about.empty() ? "" : a.about + ": ") + "expected " + a.expects.dump() + ", found " + a.found.dump();
    for (const auto& [fact, least] : a.needs.items()) {
      const auto has = a.has.find(fact);
      const bool enough = has != a.has.end() && (least.is_number() && has->is_number() ? has->get<double>() >= least.get<double>() : *has == least);
      if (enough) continue;
      good = false;
      if (a.text.empty()) text = "needs " + fact + " " + least.dump() + ", has " + (has == a.has.end() ? "none" : has->dump());
    }
  }
  event(play, {{"about", a.op == "unpack" ? "dims" : a.about}, {"expects", a.expects}, {"found", a.found}, {"needs", a.needs}, {"has", a.has},
               {"good", good}});
  if (good || a.otherwise == "go on") return true;
  end(a.otherwise == "refuse" ? "refused" : a.otherwise == "crash" ? "crashed" : "raised", play, text);
  if (a.op == "unpack") tape_.ending.about = "dims";
  return false;
}

void Recorder::write(const Play& play) {
  const Action& a = play.action;
  RequestNow& now = request(a.request);
  std::vector<Violation> against;
  const std::size_t ops = tape_.ops.size(), rows_before = tape_.rows.size();
  for (const View& view : a.to) {
    const ViewLocator& to = locator(view);
    for (const Row& row : rows(to, now, table_of(now, to, a.to_blocks), a.pick, a.parts)) {
      const layout::Box& box = row.plane->domain();
      if (const auto whole = stretch(row); whole && !a.pick.channels && inside(whole->backing, floor_div(whole->bit, 8), (whole->width + 7) / 8)) {
        tape_.rows.push_back({row.component, row.plane->plane().dtype, false, a.content, a.generation.value_or(now.generation), row.kv, row.layer, row.token, row.head,
                              box.lo[Axis::channel], box.hi[Axis::channel] - box.lo[Axis::channel], whole->backing, whole->bit, layout::bits(row.plane->plane().dtype)});
        continue;
      }
      RowOp op;
      for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
        if (a.pick.channels && std::find(a.pick.channels->begin(), a.pick.channels->end(), c) == a.pick.channels->end()) continue;
        auto at = spot(row, c);
        if (!at) continue;
        const std::int64_t offset = floor_div(at->bit, 8);
        if (!inside(at->backing, offset, (at->width + 7) / 8)) {
          against.push_back({"outside", at->backing, offset, (at->width + 7) / 8, true});
          continue;
        }
        const bool high = at->width == 4 && row.plane->plane().high_nibble_first;
        if (high) at->bit ^= 4;  // the tape applies the order itself
        if (op.count > 0 && op.first + op.count == c && (op.count == 1 || op.bit + op.count * op.stride == at->bit)) {
          if (op.count == 1) op.stride = at->bit - op.bit;
          ++op.count;
          continue;
        }
        if (op.count > 0) tape_.rows.push_back(op);
        op = {row.component, row.plane->plane().dtype, high, a.content, a.generation.value_or(now.generation), row.kv, row.layer, row.token, row.head,
              c, 1, at->backing, at->bit, 0};
      }
      if (op.count > 0) tape_.rows.push_back(op);
    }
  }
  for (std::size_t i = rows_before; i < tape_.rows.size(); ++i) {
    tape_.ops.push_back({Op::Kind::row, -1, tape_.rows[i].backing, 0, 0, 0, i});
  }
  event(play, {{"generation", a.generation.value_or(now.generation)}});
  if (stopped_by(play, against, false)) {
    const bool checked = tape_.ending.kind != "completed";
    tape_.ops.resize(ops);
    if (checked) tape_.ops.push_back({Op::Kind::check, -1, -1, 0, 0, 0, tape_.checks.size() - 1});
  }
}

void Recorder::move(const Play& play) {
  const Action& a = play.action;
  std::vector<Run> runs;
  const bool captured = play.part == Play::Part::deliver && play.takes_bytes;
  if (captured) {
    runs = now_.captured[play.step].runs;
  } else {
    runs = runs_of_move(a);
  }
  std::int64_t bits = 0;
  for (const Run& run : runs) bits += run.n;
  const auto against = post(runs, a.splits);
  const bool stopped = stopped_by(play, against, true);
  event(play, {{"bytes_moved", stopped ? 0 : bits / 8}, {"moved", !stopped}});
  if (stopped && tape_.ending.kind != "completed") return;
  if (!stopped) emit_at_once(std::move(runs));
}

void Recorder::fill(const Play& play) {
  const Action& a = play.action;
  std::vector<Run> runs;
  if (!a.request.empty() || a.to_blocks) {
    RequestNow blocks;
    if (!a.request.empty()) blocks = request(a.request);
    for (const View& view : a.to) {
      const ViewLocator& to = locator(view);
      Table table = table_of(blocks, to, a.to_blocks);
      Selection pick = a.pick;
      if (a.request.empty()) blocks.tokens = static_cast<std::int64_t>(table.ids.size()) * to.block_size();
      for (const Row& row : rows(to, blocks, table, pick, a.parts)) {
        const layout::Box& box = row.plane->domain();
        for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
          if (a.pick.channels && std::find(a.pick.channels->begin(), a.pick.channels->end(), c) == a.pick.channels->end()) continue;
          if (const auto at = spot(row, c)) add_bits(runs, *at, *at, false);
        }
      }
    }
  } else {
    const Place to = arena_.place(a.to.at(0).of);
    for (std::int64_t i = 0; i < a.count; ++i) {
      const std::int64_t at = (to.offset + a.to_offset + i * a.to_step) * 8;
      runs.push_back({-1, to.backing, at, at, a.bytes * 8});
    }
  }
  for (Run& run : runs) run.src_backing = -1;
  const std::vector<std::uint8_t> pattern = pattern_of(a.value);
  std::vector<Violation> against;
  for (const Run& run : runs) {
    const std::int64_t offset = floor_div(run.dst, 8), bytes = (run.n + 7) / 8;
    if (!inside(run.dst_backing, offset, bytes)) against.push_back({"outside", run.dst_backing, offset, bytes, true});
  }
  event(play, json::object());
  if (stopped_by(play, against, false)) return;
  tape_.patterns.push_back(pattern);
  for (const Run& run : runs) {
    const std::int64_t offset = floor_div(run.dst, 8), bytes = (run.n + 7) / 8;
    if (!inside(run.dst_backing, offset, bytes)) continue;
    if (run.dst % 8 == 0 && run.n % 8 == 0) {
      tape_.ops.push_back({Op::Kind::pattern, -1, run.dst_backing, 0, offset, bytes, tape_.patterns.size() - 1});
      continue;
    }
    for (std::int64_t bit = run.dst; bit < run.dst + run.n; bit += 4) {
      const std::int64_t byte = floor_div(bit, 8), half = bit == byte * 8 ? 1 : 2;
      tape_.ops.push_back({Op::Kind::pattern, -1, run.dst_backing, half, byte, 1, tape_.patterns.size() - 1});
    }
  }
}

void Recorder::read(const Play& play) {
  const Action& a = play.action;
  const RequestNow& now = request(a.request);
  const OutputShape shape = output_shape(script_, a);
  const int out = arena_.output(a.output);
  std::vector<std::pair<const ViewLocator*, Table>> sources;
  for (const View& view : a.from) {
    const ViewLocator& at = locator(view);
    sources.emplace_back(&at, table_of(now, at, a.from_blocks));
  }
  std::vector<Run> runs;
  std::vector<std::pair<DecodeOp, std::int64_t>> decodes;
  std::vector<Violation> against;
  const auto code = [&](const std::vector<Row>& rows_found, std::int64_t channel) {
    for (const Row& row : rows_found) {
      if (const auto at = spot(row, channel)) {
        const std::int64_t offset = floor_div(at->bit, 8);
        if (!inside(at->backing, offset, (at->width + 7) / 8)) against.push_back({"outside", at->backing, offset, (at->width + 7) / 8, false});
        else return DecodeOp::Code{at->backing, at->bit, row.plane->plane().dtype};
      }
    }
    return DecodeOp::Code{};
  };
  // By coordinate in an output of more; by order where it has as many: one coordinate may be there twice.
  const auto places = [](const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& all) {
    std::vector<std::int64_t> at;
    for (const std::int64_t value : own) at.push_back(own == all ? static_cast<std::int64_t>(at.size()) : std::find(all.begin(), all.end(), value) - all.begin());
    return at;
  };
  const auto size = [](const std::vector<std::int64_t>& list) { return static_cast<std::int64_t>(list.size()); };
  for (const OutputSection& part : shape.sections) {
    // A read of a part leaves the rest of the output alone.
    const OutputSection whole_part = place_in_output(script_, play.step, a, part);
    const std::int64_t row_codes = size(part.channels) * part.width, row_bits = whole_part.row_bits();
    const bool in_order = !part.channels.empty() && std::adjacent_find(part.channels.begin(), part.channels.end(), [](auto c, auto next) { return next != c + 1; }) == part.channels.end();
    const auto kv_at = places(part.kv, whole_part.kv), layer_at = places(part.layers, whole_part.layers), token_at = places(part.tokens, whole_part.tokens);
    const auto head_at = places(part.heads, whole_part.heads), channel_at = places(part.channels, whole_part.channels);
    const auto row_at = [&](std::size_t k, std::size_t l, std::size_t t, std::size_t h) {
      return whole_part.begin * 8 + (((kv_at[k] * size(whole_part.layers) + layer_at[l]) * size(whole_part.tokens) + token_at[t]) * size(whole_part.heads) + head_at[h]) * row_bits;
    };
    for (std::size_t k = 0; k < part.kv.size(); ++k) {
      for (std::size_t l = 0; l < part.layers.size(); ++l) {
        for (std::size_t t = 0; t < part.tokens.size(); ++t) {
          for (std::size_t h = 0; h < part.heads.size(); ++h) {
            const std::int64_t kv = part.kv[k], layer = part.layers[l], token = part.tokens[t], head = part.heads[h];
            const std::int64_t begin = row_at(k, l, t, h);
            std::vector<Row> found, scales, globals;
            for (const auto& [source, table] : sources) {
              found = find_rows(*source, now, table, part.component, kv, layer, token, head);
              if (found.empty()) continue;
              if (a.decode && a.scales != "ignored") {
                scales = find_scales(*source, now, table, Component::scale, kv, layer, token, head);
                globals = find_scales(*source, now, table, Component::global_scale, kv, layer, token, head);
              }
              break;
            }
            // Where wide codes stand beside narrow ones, the scales are those of the narrow ones.
            std::int64_t groups = 0, width = 0;
            if (const auto whole = a.decode || found.empty() ? std::nullopt : stretch(found.front()); whole && in_order && whole->width == row_codes) {
              const layout::Box& box = found.front().plane->domain();
              if (box.lo[Axis::channel] == part.channels.front() && box.hi[Axis::channel] == part.channels.back() + 1) {
                add_bits(runs, *whole, {out, begin + channel_at.front() * part.width, whole->width}, false);
                continue;
              }
            }
            const auto narrow = [](const Row& row) { return layout::bits(row.plane->plane().dtype) <= 8; };
            const bool any_narrow = std::any_of(found.begin(), found.end(), narrow);
            for (const Row& row : scales) groups = std::max(groups, row.plane->domain().hi[Axis::channel]);
            for (const Row& row : found) {
              if (narrow(row) == any_narrow) width = std::max(width, row.plane->domain().hi[Axis::channel]);
            }
            for (std::size_t i = 0; i < part.channels.size() && !found.empty(); ++i) {
              const std::int64_t channel = part.channels[i];
              const std::int64_t to = begin + channel_at[i] * part.width;
              if (a.decode) {
                DecodeOp op;
                op.code = code(found, channel);
                if (op.code.backing < 0) continue;
                const bool scaled = !any_narrow || layout::bits(op.code.dtype) <= 8;
                if (scaled && groups > 0) op.scale = code(scales, channel * groups / width);
                if (scaled && !globals.empty()) op.global_scale = code(globals, globals.front().plane->domain().lo[Axis::channel]);
                op.power = a.scales == "twice" ? 2 : a.scales == "ignored" ? 0 : 1;
                decodes.emplace_back(op, to / 8);
                continue;
              }
              for (const Row& row : found) {
                if (const auto at = spot(row, channel)) {
                  add_bits(runs, *at, {out, to, at->width}, false);
                  break;
                }
              }
            }
          }
        }
      }
    }
  }
  for (const Run& run : runs) {
    const std::int64_t offset = floor_div(run.src, 8), bytes = (run.n + 7) / 8;
    if (!inside(run.src_backing, offset, bytes)) against.push_back({"outside", run.src_backing, offset, bytes, false});
  }
  event(play, {{"output", a.output}});
  if (stopped_by(play, against, false)) return;
  // A hypothesis may read more than there was room for.
  std::erase_if(runs, [&](const Run& run) {
    const std::int64_t bytes = (run.n + 7) / 8;
    return !inside(run.src_backing, floor_div(run.src, 8), bytes) || !inside(run.dst_backing, floor_div(run.dst, 8), bytes);
  });
  emit(runs);
  for (const auto& [op, to] : decodes) {
    if (!inside(out, to, 4)) continue;
    tape_.ops.push_back({Op::Kind::decode, -1, out, 0, to, 4, tape_.decodes.size()});
    tape_.decodes.push_back(op);
  }
}

void Recorder::registration(const Play& play) {
  const Action& a = play.action;
  const bool whole_memory = a.memory.find('/') == std::string::npos;
  std::vector<Place> places;
  std::vector<std::int64_t> sizes;
  for (const Backing& backing : arena_.backings()) {
    if (whole_memory && backing.memory == a.memory) places.push_back({backing.ordinal, 0}), sizes.push_back(backing.bytes);
  }
  if (places.empty() || places.size() == 1) {
    places = {arena_.place(a.memory)};
    sizes = {arena_.backings()[static_cast<std::size_t>(places[0].backing)].bytes - places[0].offset};
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t begin = places[i].offset + a.to_offset;
    const std::int64_t bytes = a.bytes > 0 ? a.bytes : sizes[i] - a.to_offset;
    auto& ranges = now_.registered[places[i].backing];
    if (a.op == "register") {
      ranges.push_back({begin, begin + bytes, a.maps ? places[i].offset + *a.maps : begin});
    } else {
      std::erase_if(ranges, [&](const Range& r) { return r.begin == begin; });
    }
    event(play, {{"memory", a.memory}, {"backing", places[i].backing}, {"begin", begin}, {"bytes", bytes}});
  }
}

std::vector<Stored> Recorder::stored(const Action& a) {
  const bool put = a.op == "put";
  const RequestNow& now = request(a.request);
  const Selection pick = put ? a.pick : destinations(a);
  // Views that hold the same element: the first is read, and all are written.
  struct Held {
    Row row;
    std::size_t view;
    std::array<std::int64_t, 5> key;
    std::int64_t channel;
  };
  std::vector<Held> rows_held;
  const auto& views = put ? a.from : a.to;
  for (std::size_t v = 0; v < views.size(); ++v) {
    const ViewLocator& view = locator(views[v]);
    for (const Row& row : rows(view, now, table_of(now, view, put ? a.from_blocks : a.to_blocks), pick, a.parts)) {
      const auto source = [&](const Picks& from, const Picks& to, std::int64_t coordinate) { return put ? coordinate : source_of(from, to, coordinate); };
      rows_held.push_back({row, v,
                           {static_cast<std::int64_t>(row.component), source(a.pick.kv, a.pick_to.kv, row.kv), source(a.pick.layers, a.pick_to.layers, row.layer),
                            row.whole ? row.token : source(a.pick.tokens, a.pick_to.tokens, row.token), source(a.pick.heads, a.pick_to.heads, row.head)},
                           row.plane->domain().lo[Axis::channel]});
    }
  }
  std::stable_sort(rows_held.begin(), rows_held.end(), [](const Held& x, const Held& y) { return std::tie(x.key, x.channel) < std::tie(y.key, y.channel); });

  std::vector<Stored> out;
  std::int64_t at = 0, before = 0;
  for (std::size_t i = 0; i < rows_held.size(); ++i) {
    const Held& held = rows_held[i];
    const bool again = i > 0 && rows_held[i - 1].view != held.view && rows_held[i - 1].key == held.key && rows_held[i - 1].channel == held.channel;
    if (again && put) continue;
    if (again) at = before;
    else before = at;
    const layout::Box& box = held.row.plane->domain();
    if (const auto whole = stretch(held.row); whole && !pick.channels) {
      out.push_back({held.key, held.channel, box.hi[Axis::channel] - box.lo[Axis::channel], *whole, at});
      at += whole->width;
      continue;
    }
    for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
      if (pick.channels && std::find(pick.channels->begin(), pick.channels->end(), c) == pick.channels->end()) continue;
      const auto one = spot(held.row, c);
      if (!one) continue;
      out.push_back({held.key, put ? c : source_of(a.pick.channels, a.pick_to.channels, c), 1, *one, at});
      at += one->width;
    }
  }
  return out;
}

std::vector<Stored> Recorder::stored_in(const std::string& step, const Action& action, std::int64_t& bits, bool& part) {
  const auto end_of = [](const std::vector<Stored>& codes) { return codes.empty() ? 0 : codes.back().at + codes.back().spot.width; };
  std::vector<Stored> own = stored(action);
  bits = end_of(own), part = false;
  const auto meant = std::find_if(script_.steps.begin(), script_.steps.end(), [&](const Step& s) { return s.name == step; });
  if (meant == script_.steps.end() || meant->intended.op != action.op || meant->intended == action) return own;
  const std::vector<Stored> whole = stored(meant->intended);
  if (end_of(whole) <= bits) return own;
  std::map<std::array<std::int64_t, 5>, std::vector<const Stored*>> places;
  for (const Stored& codes : whole) places[codes.row].push_back(&codes);
  std::vector<Stored> placed = own;
  for (Stored& codes : placed) {
    const auto found = places.find(codes.row);
    if (found == places.end()) return own;
    const auto in = std::find_if(found->second.begin(), found->second.end(), [&](const Stored* w) {
      return codes.channel >= w->channel && codes.channel + codes.count <= w->channel + w->count && codes.spot.width * w->count == w->spot.width * codes.count;
    });
    if (in == found->second.end()) return own;
    codes.at = (*in)->at + (codes.channel - (*in)->channel) * (codes.spot.width / codes.count);
  }
  bits = end_of(whole), part = true;
  return placed;
}

void Recorder::put(const Play& play) {
  const Action& a = play.action;
  auto& shelf = now_.stores[a.store];
  const std::string key = key_text(a.key);
  std::int64_t bits = 0;
  bool part = false;
  const std::vector<Stored> codes = stored_in(play.step, a, bits, part);
  // Parts of one object that one step puts one after another fill it.
  const auto known = shelf.find(key);
  const bool more = part && known != shelf.end() && known->second.step == play.step && !known->second.parts.empty() && known->second.bytes == (bits + 7) / 8;
  const bool there = known != shelf.end() && !more;
  event(play, {{"store", a.store}, {"key", a.key}, {"there", there}});
  if (there && a.on_exists == "keep") return;
  Blob blob = more ? known->second : Blob{temporary((bits + 7) / 8), (bits + 7) / 8, play.step, {}};
  std::vector<Run> runs;
  std::int64_t moved = 0;
  for (const Stored& c : codes) {
    add_bits(runs, c.spot, {blob.backing, c.at, c.spot.width}, false);
    if (part) blob.parts.emplace_back(c.at, c.at + c.spot.width);
    moved += c.spot.width;
  }
  if (stopped_by(play, post(runs, a.splits), true)) return;
  event(play, {{"bytes_moved", (moved + 7) / 8}});
  emit(runs);
  std::sort(blob.parts.begin(), blob.parts.end());
  shelf[key] = std::move(blob);
}

void Recorder::get(const Play& play) {
  const Action& a = play.action;
  const auto& shelf = now_.stores[a.store];
  const auto found = shelf.find(key_text(a.key));
  event(play, {{"store", a.store}, {"key", a.key}, {"hit", found != shelf.end()}});
  if (found == shelf.end()) return;
  const Blob& blob = found->second;
  std::int64_t bits = 0, moved = 0;
  bool part = false;
  std::vector<Run> runs;
  // What the object does not have is not written.
  const auto has = [&](std::int64_t begin, std::int64_t end) {
    if (end > blob.bytes * 8) return false;
    if (blob.parts.empty()) return true;
    const auto after = std::upper_bound(blob.parts.begin(), blob.parts.end(), std::pair(begin, INT64_MAX));
    return after != blob.parts.begin() && std::prev(after)->second >= end;
  };
  for (const Stored& c : stored_in(play.step, a, bits, part)) {
    if (has(c.at, c.at + c.spot.width)) {
      add_bits(runs, {blob.backing, c.at, c.spot.width}, c.spot, false);
      moved += c.spot.width;
      continue;
    }
    const auto width = static_cast<int>(c.spot.width / c.count);
    for (std::int64_t i = 0; i < c.count; ++i) {
      if (!has(c.at + i * width, c.at + (i + 1) * width)) continue;
      add_bits(runs, {blob.backing, c.at + i * width, width}, {c.spot.backing, c.spot.bit + i * width, width}, false);
      moved += width;
    }
  }
  if (stopped_by(play, post(runs, a.splits), true)) return;
  event(play, {{"bytes_moved", (moved + 7) / 8}, {"moved", true}});
  emit(runs);
}

Tape record(const Script& script, const Arena& arena, const Sequence& sequence) {
  Locators locators(arena);
  return record(script, arena, sequence, locators);
}

Tape record(const Script& script, const Arena& arena, const Sequence& sequence, Locators& locators) {
  Tape tape;
  Recorder(script, arena, tape, locators).run(sequence);
  return tape;
}

}  // namespace kvcts::script
