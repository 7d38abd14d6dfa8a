#include "diagnose/incremental_replay.hpp"

#include <algorithm>
#include <set>

namespace kvcts::scenario {

using nlohmann::json;

namespace {

bool reorders(const std::vector<Action>& body) {
  return std::any_of(body.begin(), body.end(), [](const Action& a) { return !a.after.empty() || !a.before.empty(); });
}

bool reaches_somebody(const json& event) {
  if (event.contains("violation")) return true;
  static const std::set<Operation> ops{Operation::complete, Operation::fail, Operation::get};
  return event.contains("op") && ops.contains(event["op"].get<Operation>());
}

// Only these change what later steps depend on; a late step also leaves what it captured.
bool leaves_traces(const Play& play) {
  static const std::set<Operation> ops{Operation::assign, Operation::register_range, Operation::unregister_range,
                                       Operation::put, Operation::signal};
  return play.part == Play::Part::capture || ops.contains(play.action.op);
}

struct Harvest {
  std::int64_t moved{0};
  std::vector<json> said;
};

Harvest harvest(const std::vector<json>& events, std::size_t from) {
  Harvest out;
  for (std::size_t i = from; i < events.size(); ++i) {
    if (const auto moved = events[i].find("bytes_moved"); moved != events[i].end()) out.moved += moved->get<std::int64_t>();
    if (reaches_somebody(events[i])) out.said.push_back(events[i]);
  }
  return out;
}

}  // namespace

IncrementalReplay::IncrementalReplay(const Scenario& scenario, const AddressSpace& space, Locators& locators, Bodies base,
                                     std::string until, std::uint64_t seed, int pass)
    : scenario_(scenario),
      space_(space),
      locators_(locators),
      base_(std::move(base)),
      until_(std::move(until)),
      seed_(seed),
      pass_(pass) {
  for (const auto& body : base_) reordered_ = reordered_ || reorders(body);
  plays_ = cut(sequence_of(scenario, base_));
  if (!reordered_) {
    std::size_t at = 0;
    for (std::size_t step = 0; step < base_.size(); ++step) {
      first_.push_back(std::min(at, plays_.size()));
      at += std::max<std::size_t>(1, base_[step].size());
    }
    first_.push_back(plays_.size());
  }
  Recorder recorder(scenario, space, tape_, locators);
  Bytes bytes(tape_.buffers, seed, pass);
  const auto on_check = [&](std::size_t) { at_checks_.push_back(bytes); };
  bool going = true;
  for (std::size_t k = 0; k < plays_.size() && going; ++k) {
    Segment segment{
        tape_.ops.size(), 0, tape_.buffers.size(), 0, tape_.checks.size(), 0, 0, {}, recorder.progress(), {}, bytes};
    const std::size_t events = tape_.events.size();
    going = recorder.act(plays_[k]);
    bytes.grow(tape_.buffers, seed, pass);
    scenario::play(tape_, segment.ops_begin, tape_.ops.size(), bytes, seed, pass, on_check);
    Harvest got = harvest(tape_.events, events);
    segment.moved = got.moved, segment.said = std::move(got.said);
    segment.ops_end = tape_.ops.size(), segment.buffers_end = tape_.buffers.size(), segment.checks_end = tape_.checks.size();
    segment.after = recorder.progress();
    unchanged_.moved += segment.moved;
    unchanged_.said.insert(unchanged_.said.end(), segment.said.begin(), segment.said.end());
    segments_.push_back(std::move(segment));
  }
  if (going) {
    recorder.finish();
    at_checks_.push_back(bytes);
  }
  unchanged_.ending = tape_.ending;
  unchanged_.checks = tape_.checks;
  unchanged_.first_check = tape_.checks.size();
}

std::size_t IncrementalReplay::ops_before(const std::string& step) const {
  for (std::size_t k = 0; k < segments_.size(); ++k) {
    if (plays_[k].step == step && plays_[k].part != Play::Part::deliver) return segments_[k].ops_begin;
  }
  return tape_.ops.size();
}

Sequence IncrementalReplay::cut(Sequence sequence) const {
  if (until_.empty()) return sequence;
  const auto last = std::find_if(sequence.begin(), sequence.end(),
                                 [&](const Play& play) { return play.step == until_ && play.part != Play::Part::capture; });
  sequence.erase(last, sequence.end());
  return sequence;
}

std::vector<const Play*> IncrementalReplay::order(const Bodies& bodies, Sequence& own) const {
  std::vector<const Play*> out;
  std::vector<std::size_t> changed;
  bool moved = reordered_;
  for (std::size_t step = 0; step < base_.size(); ++step) {
    if (bodies.at(step) == base_[step]) continue;
    changed.push_back(step);
    moved = moved || reorders(bodies[step]);
  }
  if (moved) {
    own = cut(sequence_of(scenario_, bodies));
    for (const Play& play : own) out.push_back(&play);
    for (std::size_t k = 0; k < out.size() && k < plays_.size() && *out[k] == plays_[k]; ++k) out[k] = &plays_[k];
    return out;
  }
  std::size_t count = 0;
  for (const std::size_t step : changed) count += std::max<std::size_t>(1, bodies[step].size());
  own.reserve(count);
  auto next = changed.begin();
  for (std::size_t step = 0; step < base_.size(); ++step) {
    if (first_[step] >= plays_.size() && !until_.empty()) break;  // beyond the given end
    if (next == changed.end() || *next != step) {
      for (std::size_t k = first_[step]; k < first_[step + 1]; ++k) out.push_back(&plays_[k]);
      continue;
    }
    ++next;
    for (const Action& action : bodies[step]) out.push_back(&own.emplace_back(Play{scenario_.steps[step].name, action}));
    if (!bodies[step].empty()) continue;
    Play& nothing = own.emplace_back(Play{scenario_.steps[step].name, {}});
    nothing.action.op = Operation::nothing;
    out.push_back(&nothing);
  }
  return out;
}

Rehearsed IncrementalReplay::play(const Bodies& bodies, const OnCheck& on_check) {
  Sequence own;
  const std::vector<const Play*> plays = order(bodies, own);
  std::size_t k = 0;
  Rehearsed out;
  const auto take = [&](const Segment& segment) {
    out.moved += segment.moved;
    out.said.insert(out.said.end(), segment.said.begin(), segment.said.end());
  };
  const auto is_base = [&](std::size_t at) { return at < segments_.size() && plays[at] == &plays_[at]; };
  while (k < plays.size() && is_base(k)) take(segments_[k++]);
  if (k == segments_.size() && (k == plays.size() || tape_.ending.kind != "completed")) return unchanged_;

  Tape tape;
  tape.own = tape_.own;
  const std::size_t checks = k < segments_.size() ? segments_[k].checks_begin
                             : segments_.empty()  ? 0
                                                  : segments_.back().checks_end;
  tape.checks.assign(tape_.checks.begin(), tape_.checks.begin() + static_cast<std::ptrdiff_t>(checks));
  out.first_check = checks;
  const auto buffers_at = [&](std::size_t at) {
    const std::size_t n = at < segments_.size() ? segments_[at].buffers_begin
                          : segments_.empty()   ? tape_.own
                                                : segments_.back().buffers_end;
    return static_cast<std::ptrdiff_t>(n);
  };
  const auto progress_at = [&](std::size_t at) {
    return at < segments_.size() ? segments_[at].before : segments_.back().after;
  };
  tape.buffers.assign(tape_.buffers.begin(), tape_.buffers.begin() + buffers_at(k));
  Bytes bytes = k < segments_.size() ? segments_[k].bytes : at_checks_.back();
  bytes.grow(tape.buffers, seed_, pass_);

  bool asked = true, same = true, going = true;
  const auto played = [&](const Tape& what, std::size_t begin, std::size_t end) {
    out.ops += static_cast<std::int64_t>(end - begin);
    scenario::play(what, begin, end, bytes, seed_, pass_,
                   [&](std::size_t check) { asked = asked && on_check(check, bytes); });
  };
  std::optional<Recorder> recorder;
  for (; k < plays.size() && going && asked; ++k) {
    if (same && is_base(k)) {
      const Segment& segment = segments_[k];
      recorder.reset();
      tape.buffers.insert(tape.buffers.end(), tape_.buffers.begin() + static_cast<std::ptrdiff_t>(tape.buffers.size()),
                          tape_.buffers.begin() + static_cast<std::ptrdiff_t>(segment.buffers_end));
      bytes.grow(tape.buffers, seed_, pass_);
      played(tape_, segment.ops_begin, segment.ops_end);
      take(segment);
      tape.checks.assign(tape_.checks.begin(), tape_.checks.begin() + static_cast<std::ptrdiff_t>(segment.checks_end));
      if (k + 1 == segments_.size() && tape_.ending.kind != "completed") going = false, tape.ending = tape_.ending;
      continue;
    }
    if (!recorder) recorder.emplace(scenario_, space_, tape, locators_, progress_at(k));
    const std::size_t ops = tape.ops.size(), events = tape.events.size();
    going = recorder->act(*plays[k]);
    bytes.grow(tape.buffers, seed_, pass_);
    played(tape, ops, tape.ops.size());
    Harvest got = harvest(tape.events, events);
    out.moved += got.moved;
    out.said.insert(out.said.end(), got.said.begin(), got.said.end());
    // Whether the rest can be reused.
    const bool counted = k < segments_.size() && tape.buffers.size() == segments_[k].buffers_end &&
                         tape.checks.size() == segments_[k].checks_end;
    const bool quiet = same && k < plays_.size() && !leaves_traces(*plays[k]) && !leaves_traces(plays_[k]);
    same = going && counted && (quiet || recorder->progress() == segments_[k].after);
  }
  if (going && asked) {
    on_check(tape.checks.size(), bytes);
    tape.checks.emplace_back("");
  }
  out.ending = tape.ending;
  out.checks = std::move(tape.checks);
  return out;
}

Tape IncrementalReplay::tape(const Bodies& bodies) {
  return record(scenario_, space_, cut(sequence_of(scenario_, bodies)), locators_);
}

}  // namespace kvcts::scenario
