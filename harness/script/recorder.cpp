#include "script/recorder.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>

namespace kvcts::script {

using layout::Axis;
using layout::Component;
using nlohmann::json;

namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

std::string key_text(const std::map<std::string, std::string>& key) {
  std::string out;
  for (const auto& [field, value] : key) out += field + "=" + value + ";";
  return out;
}

// The order of the elements of a stored object: that in which `action` put them, or has them from one.
std::vector<Row> dense(std::vector<Row> rows, const Action& action) {
  const Selection &from = action.pick, &to = action.pick_to;
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    const auto key = [&](const Row& r) {
      return std::tuple(r.component, source_of(from.kv, to.kv, r.kv), source_of(from.layers, to.layers, r.layer), r.whole ? r.token : source_of(from.tokens, to.tokens, r.token),
                        source_of(from.heads, to.heads, r.head), r.plane->domain().lo[Axis::channel]);
    };
    return key(a) < key(b);
  });
  return rows;
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
  const Component component = a.parts == "scales" ? Component::scale : Component::data;
  std::vector<std::pair<const ViewLocator*, Table>> sources;
  for (const View& view : a.from) {
    const ViewLocator& at = locator(view);
    sources.emplace_back(&at, table_of(now, at, a.from_blocks));
  }
  std::vector<Run> runs;
  std::vector<std::pair<DecodeOp, std::int64_t>> decodes;
  std::vector<Violation> against;
  const std::int64_t row_codes = static_cast<std::int64_t>(shape.channels.size()) * shape.width;
  const bool in_order = !shape.channels.empty() && std::adjacent_find(shape.channels.begin(), shape.channels.end(), [](auto c, auto next) { return next != c + 1; }) == shape.channels.end();
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
  // A read of a part leaves the rest of the output alone.
  const OutputShape whole_shape = whole_output(script_, play.step, a);
  const auto places = [](const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& all) {
    std::vector<std::int64_t> at;
    for (const std::int64_t value : own) at.push_back(std::find(all.begin(), all.end(), value) - all.begin());
    return at;
  };
  const auto kv_at = places(shape.kv, whole_shape.kv), layer_at = places(shape.layers, whole_shape.layers), token_at = places(shape.tokens, whole_shape.tokens);
  const auto head_at = places(shape.heads, whole_shape.heads), channel_at = places(shape.channels, whole_shape.channels);
  const std::int64_t row_bits = (static_cast<std::int64_t>(whole_shape.channels.size()) * shape.width + 7) / 8 * 8;
  const auto size = [](const std::vector<std::int64_t>& list) { return static_cast<std::int64_t>(list.size()); };
  for (std::size_t k = 0; k < shape.kv.size(); ++k) {
    for (std::size_t l = 0; l < shape.layers.size(); ++l) {
      for (std::size_t t = 0; t < shape.tokens.size(); ++t) {
        for (std::size_t h = 0; h < shape.heads.size(); ++h) {
          const std::int64_t kv = shape.kv[k], layer = shape.layers[l], token = shape.tokens[t], head = shape.heads[h];
          const std::int64_t begin = (((kv_at[k] * size(whole_shape.layers) + layer_at[l]) * size(whole_shape.tokens) + token_at[t]) * size(whole_shape.heads) + head_at[h]) * row_bits;
          std::vector<Row> found, scales, globals;
          for (const auto& [source, table] : sources) {
            found = find_rows(*source, now, table, component, kv, layer, token, head);
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
            if (box.lo[Axis::channel] == shape.channels.front() && box.hi[Axis::channel] == shape.channels.back() + 1) {
              add_bits(runs, *whole, {out, begin + channel_at.front() * shape.width, whole->width}, false);
              continue;
            }
          }
          const auto narrow = [](const Row& row) { return layout::bits(row.plane->plane().dtype) <= 8; };
          const bool any_narrow = std::any_of(found.begin(), found.end(), narrow);
          for (const Row& row : scales) groups = std::max(groups, row.plane->domain().hi[Axis::channel]);
          for (const Row& row : found) {
            if (narrow(row) == any_narrow) width = std::max(width, row.plane->domain().hi[Axis::channel]);
          }
          for (std::size_t i = 0; i < shape.channels.size() && !found.empty(); ++i) {
            const std::int64_t channel = shape.channels[i];
            const std::int64_t to = begin + channel_at[i] * shape.width;
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

void Recorder::put(const Play& play) {
  const Action& a = play.action;
  const RequestNow& now = request(a.request);
  std::vector<Run> runs;
  auto& shelf = now_.stores[a.store];
  const std::string key = key_text(a.key);
  const bool there = shelf.contains(key);
  event(play, {{"store", a.store}, {"key", a.key}, {"there", there}});
  if (there && a.on_exists == "keep") return;
  const int blob = temporary(0);
  std::int64_t at = 0;
  for (const View& view : a.from) {
    const ViewLocator& from = locator(view);
    for (const Row& row : dense(rows(from, now, table_of(now, from, a.from_blocks), a.pick, a.parts), a)) {
      const layout::Box& box = row.plane->domain();
      if (const auto whole = stretch(row); whole && !a.pick.channels) {
        add_bits(runs, *whole, {blob, at, whole->width}, false);
        at += whole->width;
        continue;
      }
      for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
        if (a.pick.channels && std::find(a.pick.channels->begin(), a.pick.channels->end(), c) == a.pick.channels->end()) continue;
        if (const auto from_spot = spot(row, c)) {
          add_bits(runs, *from_spot, {blob, at, from_spot->width}, false);
          at += from_spot->width;
        }
      }
    }
  }
  tape_.backings[static_cast<std::size_t>(blob)].bytes = (at + 7) / 8;
  if (stopped_by(play, post(runs, a.splits), true)) return;
  event(play, {{"bytes_moved", (at + 7) / 8}});
  emit(runs);
  shelf[key] = {blob, (at + 7) / 8};
}

void Recorder::get(const Play& play) {
  const Action& a = play.action;
  const RequestNow& now = request(a.request);
  const auto& shelf = now_.stores[a.store];
  const auto found = shelf.find(key_text(a.key));
  event(play, {{"store", a.store}, {"key", a.key}, {"hit", found != shelf.end()}});
  if (found == shelf.end()) return;
  std::vector<Run> runs;
  std::int64_t at = 0;
  const Selection there = destinations(a);
  for (const View& view : a.to) {
    const ViewLocator& to = locator(view);
    for (const Row& row : dense(rows(to, now, table_of(now, to, a.to_blocks), there, a.parts), a)) {
      const layout::Box& box = row.plane->domain();
      if (const auto whole = stretch(row); whole && !there.channels && at + whole->width <= found->second.bytes * 8) {
        add_bits(runs, {found->second.backing, at, whole->width}, *whole, false);
        at += whole->width;
        continue;
      }
      for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
        if (there.channels && std::find(there.channels->begin(), there.channels->end(), c) == there.channels->end()) continue;
        const auto to_spot = spot(row, c);
        if (!to_spot || at + to_spot->width > found->second.bytes * 8) continue;
        add_bits(runs, {found->second.backing, at, to_spot->width}, *to_spot, false);
        at += to_spot->width;
      }
    }
  }
  if (stopped_by(play, post(runs, a.splits), true)) return;
  event(play, {{"bytes_moved", (at + 7) / 8}, {"moved", true}});
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
