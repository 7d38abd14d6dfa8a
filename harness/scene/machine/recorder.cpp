#include "scene/machine/recorder.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "layout/checked.hpp"
#include "scene/truth/walk.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Component;
using layout::checked::floor_div;
using nlohmann::json;

namespace {

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
  for (std::size_t i = 0; i < digits.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return out;
}

}  // namespace

Recorder::Recorder(const Scenario& scenario, const AddressSpace& space, CopyProgram& program, Locators& locators)
    : Recorder(scenario, space, program, locators, RecorderProgress{}) {
  program_.buffers = space.buffers();
  program_.own = program_.buffers.size();
  for (const auto& [name, request] : scenario.requests) {
    RequestNow& now = now_.requests[name];
    now.tokens = request.tokens, now.first_token = request.first_token, now.generation = request.generation;
    for (const auto& [memory, ids] : request.blocks) {
      Table& table = now.tables[memory];
      table.ids = ids;
      if (const auto at = request.positions.find(memory); at != request.positions.end()) table.positions = at->second;
    }
  }
}

Recorder::Recorder(const Scenario& scenario, const AddressSpace& space, CopyProgram& program, Locators& locators,
                   RecorderProgress progress)
    : scenario_(scenario), space_(space), program_(program), locators_(locators), now_(std::move(progress)) {
  for (const Step& step : scenario.steps) {
    if (step.intended.op != Operation::register_range) continue;
    for (const Buffer& buffer : space.buffers()) {
      if (buffer.memory == step.intended.memory.substr(0, step.intended.memory.find('/')))
        needs_registration_.insert(buffer.ordinal);
    }
  }
}

void Recorder::run(const Sequence& sequence) {
  for (const StepExecution& execution : sequence) {
    if (!act(execution)) return;
  }
  finish();
}

void Recorder::finish() {
  program_.ops.push_back({ProgramOp::Kind::check, -1, -1, 0, 0, 0, program_.checks.size()});
  program_.checks.push_back("");
}

void Recorder::event(const StepExecution& execution, json fields) {
  fields["step"] = execution.step;
  fields["op"] = execution.action.op;
  if (!execution.action.request.empty()) fields["request"] = execution.action.request;
  program_.events.push_back(std::move(fields));
}

void Recorder::end(const std::string& kind, const StepExecution& execution, const std::string& text) {
  SequenceEnding& e = program_.ending;
  e.kind = kind, e.step = execution.step, e.text = text;
  e.in = execution.action.in, e.about = execution.action.about, e.signal = execution.action.signal;
  e.expects = execution.action.expects, e.found = execution.action.found;
  program_.ops.push_back({ProgramOp::Kind::check, -1, -1, 0, 0, 0, program_.checks.size()});
  program_.checks.push_back("");
}

int Recorder::temporary(std::int64_t bytes) {
  Buffer buffer;
  buffer.name = "(temporary)";
  buffer.side = "staging";
  buffer.ordinal = static_cast<int>(program_.buffers.size());
  buffer.bytes = bytes;
  program_.buffers.push_back(buffer);
  return buffer.ordinal;
}

bool Recorder::stopped_by(const StepExecution& execution, const std::vector<Violation>& violations, bool transfer) {
  if (violations.empty()) return false;
  const Violation& first = violations.front();
  std::int64_t offset = 0;
  const std::string where = space_.symbol_of({first.buffer, first.offset}, offset);
  const std::string text = std::string(first.write ? "write" : "read") + " of " + std::to_string(first.bytes) +
                           " bytes at " + where + " + " + std::to_string(offset) + ": " + first.what;
  event(execution, {{"violation", first.what},
                    {"backing", first.buffer},
                    {"offset", first.offset},
                    {"bytes", first.bytes},
                    {"write", first.write},
                    {"count", violations.size()},
                    {"text", text}});
  if (execution.action.otherwise == "go on") return false;
  if (first.what == "outside") end(transfer ? "raised" : "crashed", execution, text);
  return true;
}

bool Recorder::act(const StepExecution& execution) {
  const Action& a = execution.action;
  if (execution.part == StepExecution::Part::capture) {
    Captured& taken = now_.captured[execution.step];
    if (execution.takes_table) taken.tables = now_.requests;
    if (execution.takes_bytes && (a.op == Operation::move)) {
      taken.runs = runs_of_move(a);
      std::int64_t bits = 0;
      for (const BitRun& run : taken.runs) bits += (run.n + 7) / 8 * 8 + 8;
      taken.buffer = temporary(bits / 8);
      std::int64_t at = 0;
      std::vector<BitRun> in;
      for (BitRun& run : taken.runs) {
        const std::int64_t lead = run.src - floor_div(run.src, 8) * 8;
        in.push_back({run.src_buffer, taken.buffer, run.src, at + lead, run.n});
        run.src_buffer = taken.buffer, run.src = at + lead;
        at += (run.n + lead + 7) / 8 * 8;
      }
      if (!stopped_by(execution, post(in, true), true)) emit(in);
    }
    return program_.ending.kind == "completed";
  }
  std::map<std::string, RequestNow> later;
  const bool old_tables = execution.part == StepExecution::Part::deliver && execution.takes_table;
  if (old_tables) {
    later = now_.requests;
    now_.requests = now_.captured[execution.step].tables;
  }

  if (!picks_beyond(execution)) carry_out(execution);
  if (old_tables) now_.requests = std::move(later);
  return program_.ending.kind == "completed";
}

// One switch: what each operation does, in a line or in a function of its own.
void Recorder::carry_out(const StepExecution& execution) {
  const Action& a = execution.action;
  switch (a.op) {
    case Operation::nothing:
      break;
    case Operation::write:
      write(execution);
      break;
    case Operation::move:
      move(execution);
      break;
    case Operation::copy:
      copy(execution);
      break;
    case Operation::fill:
      fill(execution);
      break;
    case Operation::read:
      read(execution);
      break;
    case Operation::register_range:
    case Operation::unregister_range:
      registration(execution);
      break;
    case Operation::put:
      put(execution);
      break;
    case Operation::get:
      get(execution);
      break;
    case Operation::assign:
      assign(execution);
      break;
    case Operation::signal:
      now_.signals.emplace_back(a.event, a.fields);
      event(execution, {{"event", a.event}, {"fields", a.fields}});
      break;
    case Operation::wait:
      wait(execution);
      break;
    case Operation::complete:
      event(execution, {{"fields", a.fields}});
      break;
    case Operation::fail:
      event(execution, {{"text", a.text}});
      break;
    case Operation::require:
    case Operation::unpack:
      require(execution);
      break;
    case Operation::refuse:
      end("refused", execution, a.text);
      break;
    case Operation::raise:
      end("raised", execution, a.text);
      break;
    case Operation::crash:
      end("crashed", execution, a.text);
      break;
    case Operation::hang:
      end("hung", execution, a.text);
      break;
    case Operation::check:
      program_.ops.push_back({ProgramOp::Kind::check, -1, -1, 0, 0, 0, program_.checks.size()});
      program_.checks.push_back(execution.step);
      break;
  }
}

void Recorder::copy(const StepExecution& execution) {
  const Action& a = execution.action;
  const BufferAddress from = space_.address(a.from.at(0).of), to = space_.address(a.to.at(0).of);
  std::vector<BitRun> runs;
  for (std::int64_t i = 0; i < a.count; ++i)
    runs.push_back({from.buffer, to.buffer, (from.offset + a.from_offset + i * a.from_step) * 8,
                    (to.offset + a.to_offset + i * a.to_step) * 8, a.bytes * 8});
  const auto against = post(runs, a.splits);
  const bool stopped = stopped_by(execution, against, true);
  event(execution, {{"moved", !stopped}, {"bytes_moved", stopped ? 0 : a.count * a.bytes}});
  if (against.empty() || a.otherwise == "go on") emit(runs);
}

void Recorder::assign(const StepExecution& execution) {
  const Action& a = execution.action;
  RequestNow& now = request(a.request);
  for (const auto& [memory, ids] : a.blocks) now.tables[memory].ids = ids;
  if (a.generation) now.generation = *a.generation;
  if (a.tokens) now.tokens = *a.tokens;
  event(execution, json::object());
}

void Recorder::wait(const StepExecution& execution) {
  const Action& a = execution.action;
  const bool there = std::any_of(now_.signals.begin(), now_.signals.end(),
                                 [&](const auto& s) { return s.first == a.event && includes(s.second, a.fields); });
  event(execution, {{"event", a.event}, {"fields", a.fields}, {"there", there}});
  if (there) return;
  std::string text =
      "waits for '" + a.event + "' " + (a.fields.empty() ? "" : "with " + a.fields.dump() + ", ") + "which never comes";
  for (const auto& [name, fields] : now_.signals)
    if (name == a.event) text += "; '" + name + "' came with " + fields.dump();
  end("hung", execution, text);
}

bool Recorder::picks_beyond(const StepExecution& execution) {
  const Action& a = execution.action;
  std::string about;
  const auto check = [&](const std::vector<View>& views, const StepSelection& pick,
                         bool write) -> std::optional<std::string> {
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
        return std::string(write ? "writes " : "reads ") + name + " " + std::to_string(i) + ", which '" + views.front().of +
               "' does not have" + (lo ? " (" + std::to_string(*lo) + ".." + std::to_string(*hi - 1) + ")" : "");
      }
      return std::nullopt;
    };
    if (views.empty()) return std::nullopt;
    for (const auto& found : {beyond(Axis::layer, "layer", pick.layers), beyond(Axis::kv, "kv", pick.kv),
                              beyond(Axis::head, "head", pick.heads), beyond(Axis::channel, "channel", pick.channels)}) {
      if (found) return found;
    }
    return std::nullopt;
  };
  auto found = check(a.from, a.pick, false);
  if (!found) found = check(a.to, destinations(a), true);
  if (!found) return false;
  event(execution, {{"beyond", *found}});
  if (a.otherwise == "go on") return false;
  end(a.op == Operation::move || a.op == Operation::put || a.op == Operation::get ? "raised" : "crashed", execution, *found);
  program_.ending.about = about;
  return true;
}

bool Recorder::require(const StepExecution& execution) {
  const Action& a = execution.action;
  std::string text = a.text;
  bool good = true;
  if (a.op == Operation::unpack) {
    good = a.expects.size() == a.found.size();
    if (text.empty()) {
      text = std::string(a.expects.size() > a.found.size() ? "not enough" : "too many") + " values to unpack (expected " +
             std::to_string(a.expects.size()) + ", got " + std::to_string(a.found.size()) + ")";
    }
  } else {
    good = a.expects == a.found;
    if (!good && text.empty())
      text = (a.about.empty() ? "" : a.about + ": ") + "expected " + a.expects.dump() + ", found " + a.found.dump();
    for (const auto& [fact, least] : a.needs.items()) {
      const auto has = a.has.find(fact);
      const bool enough =
          has != a.has.end() &&
          (least.is_number() && has->is_number() ? has->get<double>() >= least.get<double>() : *has == least);
      if (enough) continue;
      good = false;
      if (a.text.empty())
        text = "needs " + fact + " " + least.dump() + ", has " + (has == a.has.end() ? "none" : has->dump());
    }
  }
  event(execution, {{"about", a.op == Operation::unpack ? "dims" : a.about},
                    {"expects", a.expects},
                    {"found", a.found},
                    {"needs", a.needs},
                    {"has", a.has},
                    {"good", good}});
  if (good || a.otherwise == "go on") return true;
  end(a.otherwise == "refuse" ? "refused" : a.otherwise == "crash" ? "crashed" : "raised", execution, text);
  if (a.op == Operation::unpack) program_.ending.about = "dims";
  return false;
}

void Recorder::write(const StepExecution& execution) {
  const Action& a = execution.action;
  RequestNow& now = request(a.request);
  std::vector<Violation> against;
  const std::size_t ops = program_.ops.size(), rows_before = program_.rows.size();
  const std::uint32_t generation = a.generation.value_or(now.generation);
  const auto codes = [&](const CodeRow& row, std::int64_t first, std::int64_t count, int buffer, std::int64_t bit) {
    return RowOp{row.component, row.plane->plane().dtype,
                 false,         a.content,
                 generation,    row.kv,
                 row.layer,     row.token,
                 row.head,      first,
                 count,         buffer,
                 bit,           0};
  };
  for (const View& view : a.to) {
    const ViewLocator& to = locator(view);
    for (const CodeRow& row : rows(to, now, table_of(now, to, a.to_blocks), a.pick, a.parts)) {
      const layout::Box& box = row.plane->domain();
      if (const auto whole = contiguous_bits(row);
          whole && !a.pick.channels && inside(whole->buffer, floor_div(whole->bit, 8), (whole->width + 7) / 8)) {
        program_.rows.push_back(
            codes(row, box.lo[Axis::channel], box.hi[Axis::channel] - box.lo[Axis::channel], whole->buffer, whole->bit));
        program_.rows.back().stride = layout::bits(row.plane->plane().dtype);
        continue;
      }
      RowOp op;
      for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
        if (a.pick.channels && std::find(a.pick.channels->begin(), a.pick.channels->end(), c) == a.pick.channels->end())
          continue;
        auto at = bits_at(row, c);
        if (!at) continue;
        const std::int64_t offset = floor_div(at->bit, 8);
        if (!inside(at->buffer, offset, (at->width + 7) / 8)) {
          against.push_back({"outside", at->buffer, offset, (at->width + 7) / 8, true});
          continue;
        }
        const bool high = at->width == 4 && row.plane->plane().high_nibble_first;
        if (high) at->bit ^= 4;  // the program applies the order itself
        if (op.count > 0 && op.first + op.count == c && (op.count == 1 || op.bit + op.count * op.stride == at->bit)) {
          if (op.count == 1) op.stride = at->bit - op.bit;
          ++op.count;
          continue;
        }
        if (op.count > 0) program_.rows.push_back(op);
        op = codes(row, c, 1, at->buffer, at->bit);
        op.high_nibble_first = high;
      }
      if (op.count > 0) program_.rows.push_back(op);
    }
  }
  for (std::size_t i = rows_before; i < program_.rows.size(); ++i)
    program_.ops.push_back({ProgramOp::Kind::row, -1, program_.rows[i].buffer, 0, 0, 0, i});
  event(execution, {{"generation", generation}});
  if (stopped_by(execution, against, false)) {
    const bool checked = program_.ending.kind != "completed";
    program_.ops.resize(ops);
    if (checked) program_.ops.push_back({ProgramOp::Kind::check, -1, -1, 0, 0, 0, program_.checks.size() - 1});
  }
}

void Recorder::move(const StepExecution& execution) {
  const Action& a = execution.action;
  std::vector<BitRun> runs;
  const bool captured = execution.part == StepExecution::Part::deliver && execution.takes_bytes;
  if (captured) {
    runs = now_.captured[execution.step].runs;
  } else {
    runs = runs_of_move(a);
  }
  std::int64_t bits = 0;
  for (const BitRun& run : runs) bits += run.n;
  const auto against = post(runs, a.splits);
  const bool stopped = stopped_by(execution, against, true);
  event(execution, {{"bytes_moved", stopped ? 0 : bits / 8}, {"moved", !stopped}});
  if (stopped && program_.ending.kind != "completed") return;
  if (!stopped) emit_at_once(std::move(runs));
}

void Recorder::fill(const StepExecution& execution) {
  const Action& a = execution.action;
  std::vector<BitRun> runs;
  if (!a.request.empty() || a.to_blocks) {
    RequestNow blocks;
    if (!a.request.empty()) blocks = request(a.request);
    for (const View& view : a.to) {
      const ViewLocator& to = locator(view);
      Table table = table_of(blocks, to, a.to_blocks);
      StepSelection pick = a.pick;
      if (a.request.empty()) blocks.tokens = static_cast<std::int64_t>(table.ids.size()) * to.block_size();
      for (const CodeRow& row : rows(to, blocks, table, pick, a.parts)) {
        const layout::Box& box = row.plane->domain();
        for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
          if (a.pick.channels && std::find(a.pick.channels->begin(), a.pick.channels->end(), c) == a.pick.channels->end())
            continue;
          if (const auto at = bits_at(row, c)) add_bits(runs, *at, *at, false);
        }
      }
    }
  } else {
    const BufferAddress to = space_.address(a.to.at(0).of);
    for (std::int64_t i = 0; i < a.count; ++i) {
      const std::int64_t at = (to.offset + a.to_offset + i * a.to_step) * 8;
      runs.push_back({-1, to.buffer, at, at, a.bytes * 8});
    }
  }
  for (BitRun& run : runs) run.src_buffer = -1;
  const std::vector<std::uint8_t> pattern = pattern_of(a.value);
  std::vector<Violation> against;
  for (const BitRun& run : runs) {
    const std::int64_t offset = floor_div(run.dst, 8), bytes = (run.n + 7) / 8;
    if (!inside(run.dst_buffer, offset, bytes)) against.push_back({"outside", run.dst_buffer, offset, bytes, true});
  }
  event(execution, json::object());
  if (stopped_by(execution, against, false)) return;
  program_.patterns.push_back(pattern);
  for (const BitRun& run : runs) {
    const std::int64_t offset = floor_div(run.dst, 8), bytes = (run.n + 7) / 8;
    if (!inside(run.dst_buffer, offset, bytes)) continue;
    if (run.dst % 8 == 0 && run.n % 8 == 0) {
      program_.ops.push_back({ProgramOp::Kind::pattern, -1, run.dst_buffer, 0, offset, bytes, program_.patterns.size() - 1});
      continue;
    }
    for (std::int64_t bit = run.dst; bit < run.dst + run.n; bit += 4) {
      const std::int64_t byte = floor_div(bit, 8), half = bit == byte * 8 ? 1 : 2;
      program_.ops.push_back({ProgramOp::Kind::pattern, -1, run.dst_buffer, half, byte, 1, program_.patterns.size() - 1});
    }
  }
}

void Recorder::registration(const StepExecution& execution) {
  const Action& a = execution.action;
  const bool whole_memory = a.memory.find('/') == std::string::npos;
  std::vector<BufferAddress> places;
  std::vector<std::int64_t> sizes;
  for (const Buffer& buffer : space_.buffers()) {
    if (whole_memory && buffer.memory == a.memory) places.push_back({buffer.ordinal, 0}), sizes.push_back(buffer.bytes);
  }
  if (places.empty() || places.size() == 1) {
    places = {space_.address(a.memory)};
    sizes = {space_.bytes_of(a.memory)};
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t begin = places[i].offset + a.to_offset;
    const std::int64_t bytes = a.bytes > 0 ? a.bytes : sizes[i] - a.to_offset;
    auto& ranges = now_.registered[places[i].buffer];
    if (a.op == Operation::register_range) {
      ranges.push_back({begin, begin + bytes, a.maps ? places[i].offset + *a.maps : begin});
    } else {
      std::erase_if(ranges, [&](const Range& r) { return r.begin == begin; });
    }
    event(execution, {{"memory", a.memory}, {"backing", places[i].buffer}, {"begin", begin}, {"bytes", bytes}});
  }
}

CopyProgram record(const Scenario& scenario, const AddressSpace& space, const Sequence& sequence) {
  Locators locators(space);
  return record(scenario, space, sequence, locators);
}

CopyProgram record(const Scenario& scenario, const AddressSpace& space, const Sequence& sequence, Locators& locators) {
  CopyProgram program;
  Recorder(scenario, space, program, locators).run(sequence);
  return program;
}

}  // namespace kvcts::scenario
