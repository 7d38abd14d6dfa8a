#include "diagnose/incremental_replay.hpp"

#include <algorithm>
#include <set>

namespace kvcts::scenario {

using nlohmann::json;

namespace {

bool reorders(const std::vector<Action>& body) {
  return std::ranges::any_of(body, [](const Action& a) { return !a.after.empty() || !a.before.empty(); });
}

bool reaches_somebody(const json& event) {
  if (event.contains("violation")) return true;
  static const std::set<Operation> ops{Operation::complete, Operation::fail, Operation::get};
  return event.contains("op") && ops.contains(event["op"].get<Operation>());
}

// Only these change what later steps depend on; a late step also leaves what it captured.
bool leaves_traces(const StepExecution& execution) {
  static const std::set<Operation> ops{Operation::assign, Operation::register_range, Operation::unregister_range,
                                       Operation::put, Operation::signal};
  return execution.part == StepExecution::Part::capture || ops.contains(execution.action.op);
}

template <class T>
auto nth(const std::vector<T>& all, std::size_t n) {
  return all.begin() + static_cast<std::ptrdiff_t>(n);
}

struct Harvest {
  std::int64_t moved{0};
  std::vector<json> visible_events;
};

Harvest harvest(const std::vector<json>& events, std::size_t from) {
  Harvest out;
  for (std::size_t i = from; i < events.size(); ++i) {
    if (const auto moved = events[i].find("bytes_moved"); moved != events[i].end()) out.moved += moved->get<std::int64_t>();
    if (reaches_somebody(events[i])) out.visible_events.push_back(events[i]);
  }
  return out;
}

}  // namespace

IncrementalReplay::IncrementalReplay(const Scenario& scenario, const AddressSpace& space, Locators& locators,
                                     CandidateSteps base, std::string until, std::uint64_t seed, int pass)
    : scenario_(scenario),
      space_(space),
      locators_(locators),
      base_(std::move(base)),
      until_(std::move(until)),
      seed_(seed),
      pass_(pass) {
  for (const auto& body : base_) reordered_ = reordered_ || reorders(body);
  executions_ = cut(sequence_of(scenario, base_));
  if (!reordered_) {
    std::size_t at = 0;
    for (std::size_t step = 0; step < base_.size(); ++step) {
      first_.push_back(std::min(at, executions_.size()));
      at += std::max<std::size_t>(1, base_[step].size());
    }
    first_.push_back(executions_.size());
  }
  Recorder recorder(scenario, space, program_, locators);
  Bytes bytes(program_.buffers, seed, pass);
  const auto on_check = [&](std::size_t) { at_checks_.push_back(bytes); };
  bool going = true;
  for (std::size_t k = 0; k < executions_.size() && going; ++k) {
    Segment segment{program_.ops.size(),
                    0,
                    program_.buffers.size(),
                    0,
                    program_.checks.size(),
                    0,
                    0,
                    {},
                    recorder.progress(),
                    {},
                    bytes};
    const std::size_t events = program_.events.size();
    going = recorder.act(executions_[k]);
    bytes.grow(program_.buffers, seed, pass);
    scenario::execute(program_, segment.ops_begin, program_.ops.size(), bytes, seed, pass, on_check);
    Harvest got = harvest(program_.events, events);
    segment.moved = got.moved, segment.visible_events = std::move(got.visible_events);
    segment.ops_end = program_.ops.size(), segment.buffers_end = program_.buffers.size(),
    segment.checks_end = program_.checks.size();
    segment.after = recorder.progress();
    unchanged_.moved += segment.moved;
    unchanged_.visible_events.insert(unchanged_.visible_events.end(), segment.visible_events.begin(),
                                     segment.visible_events.end());
    segments_.push_back(std::move(segment));
  }
  if (going) {
    recorder.finish();
    at_checks_.push_back(bytes);
  }
  unchanged_.ending = program_.ending;
  unchanged_.checks = program_.checks;
  unchanged_.first_check = program_.checks.size();
}

std::size_t IncrementalReplay::ops_before(const std::string& step) const {
  for (std::size_t k = 0; k < segments_.size(); ++k) {
    if (executions_[k].step == step && executions_[k].part != StepExecution::Part::deliver) return segments_[k].ops_begin;
  }
  return program_.ops.size();
}

Sequence IncrementalReplay::cut(Sequence sequence) const {
  if (until_.empty()) return sequence;
  const auto last = std::ranges::find_if(sequence, [&](const StepExecution& execution) {
    return execution.step == until_ && execution.part != StepExecution::Part::capture;
  });
  sequence.erase(last, sequence.end());
  return sequence;
}

std::vector<const StepExecution*> IncrementalReplay::order(const CandidateSteps& bodies, Sequence& own) const {
  std::vector<const StepExecution*> out;
  std::vector<std::size_t> changed;
  bool moved = reordered_;
  for (std::size_t step = 0; step < base_.size(); ++step) {
    if (bodies.at(step) == base_[step]) continue;
    changed.push_back(step);
    moved = moved || reorders(bodies[step]);
  }
  if (moved) {
    own = cut(sequence_of(scenario_, bodies));
    for (const StepExecution& execution : own) out.push_back(&execution);
    for (std::size_t k = 0; k < out.size() && k < executions_.size() && *out[k] == executions_[k]; ++k)
      out[k] = &executions_[k];
    return out;
  }
  std::size_t count = 0;
  for (const std::size_t step : changed) count += std::max<std::size_t>(1, bodies[step].size());
  own.reserve(count);
  auto next = changed.begin();
  for (std::size_t step = 0; step < base_.size(); ++step) {
    if (first_[step] >= executions_.size() && !until_.empty()) break;  // beyond the given end
    if (next == changed.end() || *next != step) {
      for (std::size_t k = first_[step]; k < first_[step + 1]; ++k) out.push_back(&executions_[k]);
      continue;
    }
    ++next;
    for (const Action& action : bodies[step])
      out.push_back(&own.emplace_back(StepExecution{scenario_.steps[step].name, action}));
    if (!bodies[step].empty()) continue;
    StepExecution& nothing = own.emplace_back(StepExecution{scenario_.steps[step].name, {}});
    nothing.action.op = Operation::nothing;
    out.push_back(&nothing);
  }
  return out;
}

CopyProgram IncrementalReplay::unchanged_until(std::size_t k) const {
  const bool inside = k < segments_.size();
  CopyProgram out;
  out.own = program_.own;
  const std::size_t checks = inside ? segments_[k].checks_begin : segments_.empty() ? 0 : segments_.back().checks_end;
  out.checks.assign(program_.checks.begin(), nth(program_.checks, checks));
  const std::size_t buffers = inside              ? segments_[k].buffers_begin
                              : segments_.empty() ? program_.own
                                                  : segments_.back().buffers_end;
  out.buffers.assign(program_.buffers.begin(), nth(program_.buffers, buffers));
  return out;
}

ReplayResult IncrementalReplay::execute(const CandidateSteps& bodies, const OnCheck& on_check) {
  Sequence own;
  const std::vector<const StepExecution*> executions = order(bodies, own);
  std::size_t k = 0;
  ReplayResult out;
  const auto take = [&](const auto& played) {
    out.moved += played.moved;
    out.visible_events.insert(out.visible_events.end(), played.visible_events.begin(), played.visible_events.end());
  };
  const auto is_base = [&](std::size_t at) { return at < segments_.size() && executions[at] == &executions_[at]; };
  while (k < executions.size() && is_base(k)) take(segments_[k++]);
  if (k == segments_.size() && (k == executions.size() || program_.ending.kind != "completed")) return unchanged_;

  CopyProgram program = unchanged_until(k);
  out.first_check = program.checks.size();
  Bytes bytes = k < segments_.size() ? segments_[k].bytes : at_checks_.back();
  bytes.grow(program.buffers, seed_, pass_);

  bool asked = true, same = true, going = true;
  const auto played = [&](const CopyProgram& what, std::size_t begin, std::size_t end) {
    out.ops += static_cast<std::int64_t>(end - begin);
    scenario::execute(what, begin, end, bytes, seed_, pass_,
                      [&](std::size_t check) { asked = asked && on_check(check, bytes); });
  };
  std::optional<Recorder> recorder;
  for (; k < executions.size() && going && asked; ++k) {
    if (same && is_base(k)) {
      const Segment& segment = segments_[k];
      recorder.reset();
      program.buffers.insert(program.buffers.end(), nth(program_.buffers, program.buffers.size()),
                             nth(program_.buffers, segment.buffers_end));
      bytes.grow(program.buffers, seed_, pass_);
      played(program_, segment.ops_begin, segment.ops_end);
      take(segment);
      program.checks.assign(program_.checks.cbegin(), nth(program_.checks, segment.checks_end));
      if (k + 1 == segments_.size() && program_.ending.kind != "completed") going = false, program.ending = program_.ending;
      continue;
    }
    if (!recorder)
      recorder.emplace(scenario_, space_, program, locators_,
                       k < segments_.size() ? segments_[k].before : segments_.back().after);
    const std::size_t ops = program.ops.size(), events = program.events.size();
    going = recorder->act(*executions[k]);
    bytes.grow(program.buffers, seed_, pass_);
    played(program, ops, program.ops.size());
    take(harvest(program.events, events));
    // Whether the rest can be reused.
    const bool counted = k < segments_.size() && program.buffers.size() == segments_[k].buffers_end &&
                         program.checks.size() == segments_[k].checks_end;
    const bool quiet = same && k < executions_.size() && !leaves_traces(*executions[k]) && !leaves_traces(executions_[k]);
    same = going && counted && (quiet || recorder->progress() == segments_[k].after);
  }
  if (going && asked) {
    on_check(program.checks.size(), bytes);
    program.checks.emplace_back("");
  }
  out.ending = program.ending;
  out.checks = std::move(program.checks);
  return out;
}

CopyProgram IncrementalReplay::program(const CandidateSteps& bodies) {
  return record(scenario_, space_, cut(sequence_of(scenario_, bodies)), locators_);
}

}  // namespace kvcts::scenario
