#include "script/workshop.hpp"

#include <algorithm>

namespace kvcts::script {

using nlohmann::json;

namespace {

// How many bytes transfers moved, as their engines count them.
std::int64_t moved(const std::vector<json>& events) {
  std::int64_t out = 0;
  for (const json& event : events) out += event.value("bytes_moved", std::int64_t{0});
  return out;
}

// What must agree besides the bytes: reports, and accesses that could not be.
json outcome_of(const Ending& ending, const std::vector<json>& events) {
  json out{{"kind", ending.kind}, {"in", ending.kind == "hung" ? ending.in : ""}, {"reports", reports(events)}};
  json violations = json::array();
  for (const json& event : events) {
    if (event.contains("violation")) violations.push_back({event["violation"], event["backing"], event["offset"], event["bytes"], event["write"], event["count"]});
  }
  out["violations"] = std::move(violations);
  return out;
}

}  // namespace

Workshop::Workshop(Evidence& evidence) : evidence_(evidence), locators_(evidence.arena) {
  for (const Step& step : evidence.intended.steps) base_.push_back({step.intended});
  const Ending& end = evidence.observation.ending;
  const auto violated = [](const json& event) { return event.contains("violation"); };
  const bool known = std::any_of(evidence.intended.steps.begin(), evidence.intended.steps.end(), [&](const Step& step) { return step.name == end.step; });
  ending_given_ = end.kind != "completed" && end.kind != evidence.truth.ending.kind && known &&
                  std::none_of(evidence.observation.events.begin(), evidence.observation.events.end(), violated);
}

bool Workshop::as_it_ended() {
  bool all = false, counts = false;
  return ending_given_ && judge(base_, all, counts) >= 1 && all;
}


const Whereabouts& Workshop::whereabouts() {
  if (!whereabouts_) {
    const Checkpoint* check = evidence_.expectation.at(evidence_.observation.checks[clues().check]);
    whereabouts_.emplace(*check, evidence_.arena, evidence_.names);
  }
  return *whereabouts_;
}

bool Workshop::moves(std::size_t step) const {
  static const std::set<std::string> ops{"write", "move", "copy", "fill", "read", "put", "get"};
  return ops.contains(action(step).op);
}

// Wrong bytes that the prediction gets right, less the right ones that it gets wrong, as a share.
double Workshop::judge(const Bodies& bodies, bool& all, bool& counts) {
  all = false;
  Tape tape;
  const Observation& o = evidence_.observation;
  try {
    Sequence sequence = sequence_of(script(), bodies);
    if (ending_given_) {  // what came before it is what has to be explained
      const auto last = std::find_if(sequence.begin(), sequence.end(), [&](const Play& play) { return play.step == o.ending.step && play.part != Play::Part::capture; });
      sequence.erase(last, sequence.end());
    }
    tape = record(script(), evidence_.arena, sequence, locators_);
    if (ending_given_ && tape.ending.kind == "completed") tape.ending = o.ending;
    work_ += static_cast<std::int64_t>(tape.ops.size() / 4096);
  } catch (const std::exception&) {
    return 0;  // what is proposed cannot be: a name or a range that does not exist
  }
  // What went to a place that does not matter cannot be told from what did not go anywhere.
  const bool anywhere = std::any_of(evidence_.truth.checks.begin(), evidence_.truth.checks.end(), [](const Checkpoint& c) { return !c.any.empty(); });
  counts = anywhere || moved(tape.events) == moved(evidence_.observation.events);
  const bool same_outcome = outcome_of(tape.ending, tape.events) == outcome_of(o.ending, o.events);
  if (tape.checks != o.checks) return 0;
  std::int64_t misses = 0;
  const auto differs = [&](int pass, bool count) {
    while (begin_.size() <= static_cast<std::size_t>(pass)) begin_.emplace_back(evidence_.arena.backings(), evidence_.seed, static_cast<int>(begin_.size()));
    Bytes bytes(begin_[static_cast<std::size_t>(pass)], tape.backings, evidence_.seed, pass);
    bool any = false;
    play(tape, bytes, evidence_.seed, pass, [&](std::size_t check) {
      if (any && !count) return;
      const Bytes& seen = o.bytes[static_cast<std::size_t>(pass)][check];
      for (const Backing& b : evidence_.arena.backings()) {
        if (!b.sparse) {
          const auto &p = bytes.dense(b.ordinal), &q = seen.dense(b.ordinal);
          if (p == q || !cared_for(check, b, p, q)) continue;
          any = true;
          if (!count) return;
          for (std::size_t i = 0; i < p.size(); ++i) misses += p[i] != q[i];
          continue;
        }
        std::vector<std::int64_t> pages = bytes.pages(b.ordinal);
        const auto more = seen.pages(b.ordinal);
        pages.insert(pages.end(), more.begin(), more.end());
        std::sort(pages.begin(), pages.end());
        pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
        std::vector<std::uint8_t> p(Bytes::page), q(Bytes::page);
        for (const std::int64_t page : pages) {
          const std::int64_t begin = std::max(page, -b.guard_below), end = std::min(page + Bytes::page, b.bytes + b.guard_above);
          bytes.read(b.ordinal, begin, end - begin, p.data());
          seen.read(b.ordinal, begin, end - begin, q.data());
          if (std::equal(p.begin(), p.begin() + (end - begin), q.begin())) continue;
          any = true;
          if (!count) return;
          for (std::int64_t i = 0; i < end - begin; ++i) misses += p[static_cast<std::size_t>(i)] != q[static_cast<std::size_t>(i)];
        }
      }
    });
    return any;
  };
  const bool wrong_now = differs(0, true);
  if (!wrong_now && same_outcome) {
    all = true;
    for (int pass = 1; pass < static_cast<int>(o.bytes.size()) && all; ++pass) all = !differs(pass, false);
    if (all) return 1;
  }
  const double wrong = static_cast<double>(std::max<std::int64_t>(1, evidence_.mismatch.wrong_bytes));
  return std::max(0.0, 1 - (static_cast<double>(misses) + (same_outcome ? 0 : 1)) / wrong);
}

// Whether two images differ in a byte that matters.
bool Workshop::cared_for(std::size_t check, const Backing& b, const std::vector<std::uint8_t>& p, const std::vector<std::uint8_t>& q) const {
  const Checkpoint* at = check < evidence_.observation.checks.size() ? evidence_.expectation.at(evidence_.observation.checks[check]) : nullptr;
  const auto any = at ? at->any.find(b.ordinal) : decltype(at->any.find(0)){};
  if (!at || any == at->any.end()) return true;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == q[i]) continue;
    const std::int64_t offset = static_cast<std::int64_t>(i) - b.guard_below;
    const auto after = any->second.upper_bound(offset);
    if (after == any->second.begin() || offset >= std::prev(after)->second) return true;
  }
  return false;
}

bool Workshop::attempt(const std::string& fault_class, const std::string& words, Bodies bodies) {
  if (spent() || bodies == base_) return false;
  ++tried_;
  std::int64_t bytes = 0;
  for (const Backing& b : evidence_.arena.backings()) bytes += b.sparse ? 0 : b.guard_below + b.bytes + b.guard_above;
  work_ += 1 + bytes / 65536;
  bool all = false, counts = false;
  double share = 0;
  try {
    share = judge(bodies, all, counts);
  } catch (const std::exception&) {
    return false;  // what is proposed cannot be: coordinates that no content has
  }
  Hypothesis hypothesis{fault_class, words, std::move(bodies)};
  if (all && !counts) {  // right bytes, but another number of them was moved: only if nothing better turns up
    if (!second_) second_ = std::move(hypothesis);
    return false;
  }
  if (all) {
    exact_.push_back(std::move(hypothesis));
    return true;
  }
  // The best of each class: variants of one idea would crowd out the others.
  constexpr std::size_t kept = 8;
  if (share <= 0.02) return false;
  const auto same = std::find_if(partial_.begin(), partial_.end(), [&](const auto& other) { return other.second.fault_class == fault_class; });
  if (same == partial_.end()) {
    partial_.emplace_back(share, std::move(hypothesis));
  } else if (share > same->first) {
    *same = {share, std::move(hypothesis)};
  }
  std::stable_sort(partial_.begin(), partial_.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
  if (partial_.size() > kept) partial_.pop_back();
  return false;
}

bool Workshop::attempt(const std::string& fault_class, const std::string& words, std::size_t step, const Action& body) {
  Bodies changed = base_;
  if (changed[step].size() == 1 && changed[step][0] == body) return false;
  if (!plausible(step, body)) return false;
  changed[step] = {body};
  return attempt(fault_class, words, std::move(changed));
}

bool Workshop::plausible(std::size_t step, const Action& body) {
  if (body.op != "move" || !body.after.empty() || !body.before.empty()) return true;
  // What is at the source now was there when it was moved, unless somebody wrote there later.
  const auto memories = [](const std::vector<View>& views) {
    std::set<std::string> out;
    for (const View& view : views) out.insert(Arena::memory_of(view));
    return out;
  };
  const std::set<std::string> sources = memories(body.from);
  for (const std::string& memory : memories(action(step).to)) {
    if (sources.contains(memory)) return true;
  }
  for (std::size_t i = 0; i < script().steps.size(); ++i) {
    if (i == step) continue;
    const Action& other = action(i);
    if (other.op == "assign" || other.op == "check" || other.op == "register") return true;
    if (i < step) continue;
    for (const std::string& memory : memories(other.to)) {
      if (sources.contains(memory) || memories(body.to).contains(memory)) return true;
    }
  }
  Action part = body;
  const Clue *first = nullptr, *last = nullptr;
  for (const Clue& clue : clues().all) {
    if (!clue.wrong || clue.must.kind != Who::Kind::tag || clue.must.component != layout::Component::data) continue;
    if (!first) first = &clue;
    last = &clue;
  }
  if (!first) return true;
  const auto narrow = [&](Picks& pick, const Picks& to, std::int64_t a, std::int64_t b) {
    if (!pick && !to) pick = a == b ? std::vector<std::int64_t>{a} : std::vector<std::int64_t>{a, b};
  };
  narrow(part.pick.layers, part.pick_to.layers, first->must.layer, last->must.layer);
  narrow(part.pick.tokens, part.pick_to.tokens, first->must.token, last->must.token);
  narrow(part.pick.heads, part.pick_to.heads, first->must.head, last->must.head);
  Tape tape;
  try {
    tape = record(script(), evidence_.arena, {Play{script().steps[step].name, part}}, locators_);
  } catch (const std::exception&) {
    return true;
  }
  if (tape.ending.kind != "completed") return true;
  const Checkpoint& check = *evidence_.expectation.at(evidence_.observation.checks[clues().check]);
  const auto spot = [](int backing, std::int64_t offset) { return offset * 256 + backing; };
  if (clue_at_.empty()) {
    for (std::size_t i = 0; i < clues().all.size(); ++i) clue_at_.emplace(spot(clues().all[i].backing, clues().all[i].offset), i);
  }
  int probes = 0, agree = 0;
  const std::size_t stride = std::max<std::size_t>(1, tape.ops.size() / 12);
  for (std::size_t i = 0; i < tape.ops.size() && probes < 16; i += stride) {
    const Op& op = tape.ops[i];
    if (op.kind != Op::Kind::copy) continue;
    if (op.src_backing >= static_cast<int>(tape.own) || op.dst_backing >= static_cast<int>(tape.own)) return true;  // by way of a copy
    for (const std::int64_t at : {std::int64_t{0}, op.n - 1}) {
      const Who source = evidence_.names.at(evidence_.expectation.id(check, op.src_backing, op.src + at, evidence_.names));
      const auto seen = clue_at_.find(spot(op.dst_backing, op.dst + at));
      const Who there = seen != clue_at_.end() ? clues().all[seen->second].is : evidence_.names.at(evidence_.expectation.id(check, op.dst_backing, op.dst + at, evidence_.names));
      ++probes;
      agree += source == there;
    }
  }
  return probes < 4 || agree > 0;
}

bool Workshop::attempt_without(const std::string& fault_class, const std::string& words, const std::set<std::size_t>& steps) {
  Bodies changed = base_;
  for (const std::size_t step : steps) changed[step].clear();
  return attempt(fault_class, words, std::move(changed));
}

}  // namespace kvcts::script
