#include "diagnose/hypothesis_search.hpp"

#include "diagnose/precedence.hpp"

#include <algorithm>
#include <string_view>

namespace kvcts::scenario {

using nlohmann::json;

namespace {

// How many bytes transfers moved, as their engines count them.
std::int64_t moved(const std::vector<json>& events) {
  std::int64_t out = 0;
  for (const json& event : events) out += event.value("bytes_moved", std::int64_t{0});
  return out;
}

// What must agree besides the bytes: reports, and illegal accesses.
json outcome_of(const SequenceEnding& ending, const std::vector<json>& events) {
  json out{{"kind", ending.kind}, {"in", ending.kind == "hung" ? ending.in : ""}, {"reports", reports(events)}};
  json violations = json::array();
  for (const json& event : events) {
    if (event.contains("violation"))
      violations.push_back(
          {event["violation"], event["backing"], event["offset"], event["bytes"], event["write"], event["count"]});
  }
  out["violations"] = std::move(violations);
  return out;
}

std::uint64_t hash_of(const std::vector<std::uint8_t>& bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

CandidateSteps intended_bodies(const Scenario& scenario) {
  CandidateSteps out;
  for (const Step& step : scenario.steps) out.push_back({step.intended});
  return out;
}

// The run stopped early at a known step: takes its ending as given.
bool stopped_early(const SearchEvidence& e) {
  const SequenceEnding& end = e.observation.ending;
  const auto violated = [](const json& event) { return event.contains("violation"); };
  return end.kind != "completed" && end.kind != e.truth.ending.kind &&
         std::ranges::any_of(e.intended.steps, [&](const Step& step) { return step.name == end.step; }) &&
         std::ranges::none_of(e.observation.events, violated);
}

}  // namespace

HypothesisSearch::HypothesisSearch(SearchEvidence& evidence)
    : HypothesisSearch(evidence, evidence.intended, stopped_early(evidence), std::make_shared<Common>(evidence.space), {}) {}

HypothesisSearch::HypothesisSearch(SearchEvidence& evidence, const HypothesisSearch& first, Piece piece)
    : HypothesisSearch(evidence, first.asked_, first.ending_given_, first.common_, std::move(piece)) {}

HypothesisSearch::HypothesisSearch(SearchEvidence& evidence, const Scenario& asked, bool ending_given,
                                   std::shared_ptr<Common> common, std::optional<Piece> piece)
    : evidence_(evidence),
      asked_(asked),
      piece_(std::move(piece)),
      ending_given_(ending_given),
      common_(std::move(common)),
      base_(intended_bodies(evidence.intended)),
      replay_(asked, evidence.space, common_->locators, whole(base_), ending_given ? evidence.observation.ending.step : "",
              evidence.seed, 0) {
  const Observation& o = evidence.observation;
  locals_.resize(base_.size());
  outcome_ = outcome_of(o.ending, o.events);
  moved_ = moved(o.events);
  // What went to a place that does not matter looks like what went nowhere.
  counted_ = o.counted && std::ranges::all_of(evidence.truth.checks, [](const Checkpoint& c) { return c.any.empty(); });
  common_->work.add_base(static_cast<std::int64_t>(replay_.unchanged_program().ops.size()));
  const auto& bytes = replay_.unchanged_bytes();
  for (std::size_t check = 0; check < bytes.size() && check < o.checks.size(); ++check) {
    auto& misses = base_misses_.emplace_back();
    for (const Buffer& b : evidence.space.buffers())
      misses.push_back(differing(bytes[check], 0, check, b.ordinal)), all_base_misses_ += misses.back();
  }
}

CandidateSteps HypothesisSearch::whole(CandidateSteps bodies) const {
  if (piece_) {
    auto& own = bodies[piece_->step];
    own.insert(own.begin(), piece_->right.begin(), piece_->right.end());
  }
  return bodies;
}

bool HypothesisSearch::as_it_ended() {
  bool all = false, counts = false;
  return ending_given_ && judge(base_, all, counts) >= 1 && all;
}

bool HypothesisSearch::as_it_stands() {
  bool all = false, counts = false;
  judge(base_, all, counts);
  return all;
}

const ElementIndex& HypothesisSearch::element_index() {
  if (!element_index_) {
    const Checkpoint* check = evidence_.expectation.at(evidence_.observation.checks[attributions().check]);
    element_index_.emplace(*check, evidence_.space, evidence_.symbols);
  }
  return *element_index_;
}

std::optional<ScenarioRequest> HypothesisSearch::request_at(std::size_t step, const std::string& name) const {
  const auto found = scenario().requests.find(name);
  if (found == scenario().requests.end()) return std::nullopt;
  ScenarioRequest out = found->second;
  for (std::size_t i = 0; i < step; ++i) {
    const Action& a = action(i);
    if (a.op != Operation::assign || a.request != name) continue;
    for (const auto& [memory, ids] : a.blocks) out.blocks[memory] = ids;
    if (a.generation) out.generation = *a.generation;
    if (a.tokens) out.tokens = *a.tokens;
  }
  return out;
}

std::vector<std::vector<std::int64_t>> HypothesisSearch::older_tables(std::size_t step, const std::string& name,
                                                                      const std::string& memory) const {
  std::vector<std::vector<std::int64_t>> out;
  const auto now = request_at(step, name);
  for (std::size_t i = 0; i <= step; ++i) {
    const auto then = request_at(i, name);
    const auto ids = then ? then->blocks.find(memory) : std::map<std::string, std::vector<std::int64_t>>::const_iterator{};
    if (!then || ids == then->blocks.end() || (now->blocks.contains(memory) && now->blocks.at(memory) == ids->second))
      continue;
    if (std::ranges::find(out, ids->second) == out.end()) out.push_back(ids->second);
  }
  return out;
}

bool HypothesisSearch::moves(std::size_t step) const {
  static const std::set<Operation> ops{Operation::write, Operation::move, Operation::copy, Operation::fill,
                                       Operation::read,  Operation::put,  Operation::get};
  return ops.contains(action(step).op);
}

template <class F>
void HypothesisSearch::each_difference(const Bytes& bytes, int pass, std::size_t check, int buffer, F&& f) const {
  const Observation& o = evidence_.observation;
  const Bytes& seen = o.bytes[static_cast<std::size_t>(pass)][check];
  const Buffer& b = evidence_.space.buffers()[static_cast<std::size_t>(buffer)];
  const Checkpoint* at = evidence_.expectation.at(o.checks[check]);
  const auto counts = [&](std::int64_t offset) { return !at || matters(*at, buffer, offset); };
  if (!b.sparse) {
    const auto &p = bytes.dense(buffer), &q = seen.dense(buffer);
    if (p == q) return;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const std::int64_t offset = static_cast<std::int64_t>(i) - b.guard_below;
      if (p[i] != q[i] && counts(offset) && !f(offset)) return;
    }
    return;
  }
  std::vector<std::int64_t> pages = bytes.pages(buffer);
  const auto more = seen.pages(buffer);
  pages.insert(pages.end(), more.begin(), more.end());
  std::ranges::sort(pages);
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  std::vector<std::uint8_t> p(Bytes::page), q(Bytes::page);
  for (const std::int64_t page : pages) {
    const std::int64_t begin = std::max(page, -b.guard_below), end = std::min(page + Bytes::page, b.bytes + b.guard_above);
    bytes.read(buffer, begin, end - begin, p.data());
    seen.read(buffer, begin, end - begin, q.data());
    if (std::equal(p.begin(), p.begin() + (end - begin), q.begin())) continue;
    for (std::int64_t i = 0; i < end - begin; ++i) {
      if (p[static_cast<std::size_t>(i)] != q[static_cast<std::size_t>(i)] && counts(begin + i) && !f(begin + i)) return;
    }
  }
}

std::int64_t HypothesisSearch::differing(const Bytes& bytes, int pass, std::size_t check, int buffer) const {
  const Observation& o = evidence_.observation;
  const Checkpoint* at = evidence_.expectation.at(o.checks[check]);
  std::int64_t out = 0;
  if (evidence_.space.buffers()[static_cast<std::size_t>(buffer)].sparse || (at && at->any.contains(buffer))) {
    each_difference(bytes, pass, check, buffer, [&](std::int64_t) { return ++out > 0; });
    return out;
  }
  const auto &p = bytes.dense(buffer), &q = o.bytes[static_cast<std::size_t>(pass)][check].dense(buffer);
  if (p == q) return 0;
  for (std::size_t i = 0; i < p.size(); ++i) out += p[i] != q[i];
  return out;
}

const Bytes& HypothesisSearch::begin(int pass) {
  auto& all = common_->begin;
  while (all.size() <= static_cast<std::size_t>(pass))
    all.emplace_back(evidence_.space.buffers(), evidence_.seed, static_cast<int>(all.size()));
  return all[static_cast<std::size_t>(pass)];
}

bool HypothesisSearch::in_every_pass(const CandidateSteps& bodies) {
  const CopyProgram program = replay_.program(whole(bodies));
  const Observation& o = evidence_.observation;
  bool same = true;
  const int passes = evidence_.real ? 1 : static_cast<int>(o.bytes.size());
  for (int pass = 1; pass < passes && same; ++pass) {
    Bytes bytes(begin(pass), program.buffers, evidence_.seed, pass);
    scenario::execute(program, bytes, evidence_.seed, pass, [&](std::size_t check) {
      for (const Buffer& b : evidence_.space.buffers()) {
        if (same) each_difference(bytes, pass, check, b.ordinal, [&](std::int64_t) { return same = false; });
      }
    });
  }
  return same;
}

// Wrong bytes that the prediction gets right, minus right ones that it gets wrong, as a share.
double HypothesisSearch::judge(const CandidateSteps& bodies, bool& all, bool& counts) {
  all = false;
  const Observation& o = evidence_.observation;
  const auto& buffers = evidence_.space.buffers();
  std::int64_t misses = 0, compared = 0;
  predicted_ = 0;
  ReplayResult seen;
  try {
    seen = replay_.execute(whole(bodies), [&](std::size_t check, const Bytes& bytes) {
      if (check >= o.checks.size()) return false;
      for (const Buffer& b : buffers) {
        const bool as_base = check < base_misses_.size() && bytes.shares(replay_.unchanged_bytes()[check], b.ordinal);
        if (!as_base && !b.sparse) compared += b.bytes;
        misses += as_base ? base_misses_[check][static_cast<std::size_t>(b.ordinal)] : differing(bytes, 0, check, b.ordinal);
        if (!as_base && !b.sparse)
          predicted_ =
              predicted_ * 0x9fb21c651e98df25ull + hash_of(bytes.dense(b.ordinal)) + static_cast<std::uint64_t>(b.ordinal);
      }
      return misses == 0 || exact_.empty();
    });
  } catch (const std::exception&) {
    return 0;  // the proposal is impossible: a name or a range that does not exist
  }
  work_ += seen.ops / 4096;
  common_->work.add_execution(seen.ops, compared);
  for (std::size_t check = 0; check < seen.first_check && check < base_misses_.size(); ++check) {
    for (const std::int64_t n : base_misses_[check]) misses += n;
  }
  if (misses > 0 && !exact_.empty()) return 0;  // only exact ones are still needed
  if (ending_given_ && seen.ending.kind == "completed") seen.ending = o.ending;
  counts = !counted_ || seen.moved == moved_;
  if (seen.checks != o.checks) return 0;
  all_bytes_ = misses == 0;
  const bool same_outcome = outcome_of(seen.ending, seen.visible_events) == outcome_;
  if (misses == 0 && same_outcome && in_every_pass(bodies)) {
    all = true;
    return 1;
  }
  return std::max(0.0, 1 - (static_cast<double>(misses) + (same_outcome ? 0 : 1)) /
                               static_cast<double>(std::max<std::int64_t>(1, all_base_misses_)));
}

void HypothesisSearch::ask(const HypothesisGenerator& generator) {
  begun_ = exact_.size();
  if (common_->work.over()) return;
  cost_ = generator.cost, penalty_ = 0;
  asking_ = &generator;
  constexpr std::int64_t of_each = 1000;  // no generator starves those behind it
  allow(of_each);
  generator.generate(*this);
  cut_ = cut_ || spent();
}

bool HypothesisSearch::attempt(FaultClass fault_class, const std::string& words, CandidateSteps bodies) {
  return attempt(fault_class, words, std::move(bodies), 0);
}

// Blocks exchanged with channels in a pool of a million make a head of a million channels: no kernel does that much.
bool HypothesisSearch::is_vast(const CandidateSteps& bodies) {
  constexpr double times = 64;
  const auto most = [&](const std::vector<Action>& body) {
    double out = 0;
    for (const Action& a : body) {
      for (const auto* views : {&a.from, &a.to}) {
        for (const View& view : *views) {
          if (!view.cache.empty()) out = std::max(out, locators().of(view).elements());
        }
      }
    }
    return out;
  };
  if (!most_meant_) {
    most_meant_ = 1;
    for (const auto& body : base_) most_meant_ = std::max(*most_meant_, most(body));
  }
  for (std::size_t step = 0; step < bodies.size(); ++step) {
    if (bodies[step] != base_[step] && most(bodies[step]) > times * *most_meant_) return true;
  }
  return false;
}

bool HypothesisSearch::attempt(FaultClass fault_class, const std::string& words, CandidateSteps bodies, double agreement) {
  if (Proposals* log = Proposals::current(); log != nullptr && asking_ != nullptr) log->add(asking_->name, fault_class);
  if (spent() || bodies == base_) return false;
  for (std::size_t step = 0; piece_ && step < bodies.size(); ++step) {
    if (step != piece_->step && bodies[step] != base_[step]) return false;
  }
  ++tried_;
  std::int64_t bytes = 0;
  const Bytes& seen = evidence_.observation.bytes.front().back();
  for (const Buffer& b : evidence_.space.buffers()) {
    bytes += b.sparse ? static_cast<std::int64_t>(seen.pages(b.ordinal).size()) * Bytes::page
                      : b.guard_below + b.bytes + b.guard_above;
  }
  // Where only what fits to the last byte counts, a sample of what it would have moved is looked at first.
  constexpr std::int64_t samples = 16;
  try {
    if (is_vast(bodies)) return false;
  } catch (const std::exception&) {
    return false;  // a view of something that does not exist
  }
  if ((evidence_.whole_only || !exact_.empty()) && refuted(bodies)) {
    work_ += ++refuted_ % samples == 0;
    return false;
  }
  work_ += 1 + bytes / 524288;
  bool all = false, counts = false;
  double share = 0;
  try {
    share = judge(bodies, all, counts);
  } catch (const std::exception&) {
    return false;  // the proposal is impossible: coordinates that no content has
  }
  Hypothesis hypothesis{fault_class, words, std::move(bodies), cost_ + penalty_};
  if (all && !counts) {  // right bytes, but another number of them moved: only if nothing better turns up
    const auto alike = [&](const Hypothesis& other) { return other.fault_class == fault_class; };
    if (std::ranges::none_of(uncounted_, alike)) uncounted_.push_back(std::move(hypothesis));
    return false;
  }
  if (all) {
    exact_.push_back(std::move(hypothesis));
    return true;
  }
  if (share <= 0.02) return false;
  remember({share, share + (agreement > 0.99 ? 0.15 : 0), predicted_, std::move(hypothesis), all_bytes_});
  return false;
}

// Of equally good hypotheses, keep the first and only a few per class: variants of one idea would crowd out the others.
void HypothesisSearch::remember(Partial partial) {
  constexpr std::size_t kept = 10, alike = 2;
  if (std::ranges::any_of(partial_, [&](const Partial& other) { return other.bytes == partial.bytes; })) return;
  const auto of_class = [&](const Partial& other) { return other.hypothesis.fault_class == partial.hypothesis.fault_class; };
  if (std::ranges::count_if(partial_, of_class) >= static_cast<std::ptrdiff_t>(alike)) {
    const auto worst = std::find_if(partial_.rbegin(), partial_.rend(), of_class);
    if (worst->rank >= partial.rank) return;
    partial_.erase(std::next(worst).base());
  }
  partial_.insert(std::ranges::find_if(partial_, [&](const Partial& other) { return other.rank < partial.rank; }),
                  std::move(partial));
  if (partial_.size() > kept) partial_.pop_back();
}

// Wrong scales alone: they are there, but another element's.
static FaultClass of_scales(FaultClass fault_class) {
  static const std::set<FaultClass> of_data{FaultClass::wrong_block_id,          FaultClass::region_aliasing,
                                            FaultClass::layer_misrouted,         FaultClass::head_shard_mapping,
                                            FaultClass::kv_split_vs_interleaved, FaultClass::axis_permuted};
  return of_data.contains(fault_class) ? FaultClass::scale_misplaced : fault_class;
}

bool HypothesisSearch::attempt(FaultClass given_class, const std::string& words, std::size_t step, const Action& body) {
  const FaultClass fault_class = action(step).parts == "scales" ? of_scales(given_class) : given_class;
  CandidateSteps changed = base_;
  if ((piece_ && step != piece_->step) || (changed[step].size() == 1 && changed[step][0] == body)) return false;
  if (spent()) return false;
  Agreement agrees;
  try {
    agrees = agreement(step, body);
  } catch (const std::exception&) {
    return false;  // a view of something that does not exist
  }
  if (agrees.best() == 0 && !plausible(step, body)) return false;
  changed[step] = {body};
  if (agrees.best() > 0.99 && agrees.better_than(agreement(step, action(step)))) {
    auto& known = locals_[step];
    if (std::ranges::none_of(known, [&](const Hypothesis& h) { return h.fault_class == fault_class; }))
      known.push_back({fault_class, words, changed});
  }
  return attempt(fault_class, words, std::move(changed), agrees.best());
}

namespace {

// Elements of a step around the first and the last wrong byte.
void keep_ends(Picks& pick, Picks& to, std::int64_t a, std::int64_t b) {
  if (!pick && !to) {
    pick = a == b ? std::vector<std::int64_t>{a} : std::vector<std::int64_t>{a, b};
    return;
  }
  if (!pick || (to && to->size() != pick->size())) return;
  std::vector<std::int64_t> kept, kept_to;
  for (std::size_t k = 0; k < pick->size(); ++k) {
    const std::int64_t goes = to ? (*to)[k] : (*pick)[k];
    if (goes == a || goes == b) kept.push_back((*pick)[k]), kept_to.push_back(goes);
  }
  if (kept.empty()) return;
  pick = std::move(kept);
  if (to) to = std::move(kept_to);
}

std::set<std::string> memories_of(const std::vector<View>& views) {
  std::set<std::string> out;
  for (const View& view : views) out.insert(memory_of(view));
  return out;
}

}  // namespace

bool HypothesisSearch::settled(std::size_t step, const Action& body) const {
  const std::set<std::string> sources = memories_of(body.from), targets = memories_of(body.to);
  for (const std::string& memory : memories_of(action(step).to)) {
    if (sources.contains(memory)) return false;
  }
  for (std::size_t i = 0; i < scenario().steps.size(); ++i) {
    if (i == step) continue;
    const Action& other = action(i);
    if (other.op == Operation::assign || other.op == Operation::check || other.op == Operation::register_range) return false;
    if (i < step) continue;
    for (const std::string& memory : memories_of(other.to)) {
      if (sources.contains(memory)) return false;
      // Another request's content there has its own generation, and is not asked for.
      const bool by_tokens = other.op == Operation::move || other.op == Operation::write;
      if (targets.contains(memory) && (!by_tokens || other.request == body.request)) return false;
    }
  }
  return true;
}

std::pair<const Attribution*, const Attribution*> HypothesisSearch::wrong_ends() {
  if (wrong_ends_) return *wrong_ends_;
  auto& [begin, end] = wrong_ends_.emplace();
  for (const Attribution& attribution : attributions().all) {
    if (!attribution.wrong || attribution.must.kind != Symbol::Kind::tag ||
        attribution.must.component != layout::Component::data)
      continue;
    if (!begin) begin = &attribution;
    end = &attribution;
  }
  return *wrong_ends_;
}

std::optional<Action> HypothesisSearch::ends_of(std::size_t step, Action part, std::set<std::uint32_t>& generations) {
  if ((part.op != Operation::move && part.op != Operation::write) || !part.after.empty() || !part.before.empty() ||
      part.splits != action(step).splits || !settled(step, part))
    return std::nullopt;
  const Symbol &first = wrong_ends().first->must, &last = wrong_ends().second->must;
  // Of the ends, those that lie in what this step writes: another one may have written the rest.
  const auto within = [&](layout::Axis axis, std::int64_t value) {
    std::int64_t lo = INT64_MAX, hi = INT64_MIN;
    for (const View& view : part.to) {
      for (const auto& plane : cache_of(view).planes) {
        const layout::Box box = layout::domain(plane);
        lo = std::min(lo, box.lo[axis]), hi = std::max(hi, box.hi[axis] - 1);
      }
    }
    return lo > hi ? value : std::clamp(value, lo, hi);
  };
  keep_ends(part.pick.layers, part.pick_to.layers, within(layout::Axis::layer, first.layer),
            within(layout::Axis::layer, last.layer));
  const auto request = request_at(step, part.request);
  if (!request || request->tokens == 0) return std::nullopt;
  const std::int64_t end = request->first_token + request->tokens - 1;
  keep_ends(part.pick.tokens, part.pick_to.tokens, std::clamp(first.token, request->first_token, end),
            std::clamp(last.token, request->first_token, end));
  keep_ends(part.pick.heads, part.pick_to.heads, within(layout::Axis::head, first.head),
            within(layout::Axis::head, last.head));
  generations.insert(request->generation);
  if (const auto meant = request_at(step, action(step).request)) generations.insert(meant->generation);
  return part;
}

std::optional<HypothesisSearch::MovedSymbols> HypothesisSearch::moved_by(const CopyProgram& program, std::size_t stride,
                                                                         const Checkpoint& check) {
  MovedSymbols moved;  // the last one counts
  const auto forget = [&](int buffer, std::int64_t begin, std::int64_t bytes) {
    moved.erase(moved.lower_bound({buffer, begin}), moved.lower_bound({buffer, begin + bytes}));
  };
  for (std::size_t i = 0; i < program.ops.size(); i += stride) {
    const ProgramOp& op = program.ops[i];
    if (op.kind == ProgramOp::Kind::row) {
      const RowOp& row = program.rows[op.extra];
      if (layout::bits(row.dtype) < 8 || row.bit < 0) continue;
      const std::int64_t further = (row.count - 1) * std::max<std::int64_t>(0, row.stride);
      forget(row.buffer, row.bit / 8, (further + layout::bits(row.dtype)) / 8);
      moved[{row.buffer, row.bit / 8}] = symbol_of(row);
      continue;
    }
    if (op.kind != ProgramOp::Kind::copy) continue;
    if (op.src_buffer >= static_cast<int>(program.own) || op.dst_buffer >= static_cast<int>(program.own))
      return std::nullopt;  // through a copy
    forget(op.dst_buffer, op.dst, op.n);
    for (const std::int64_t at : {std::int64_t{0}, op.n - 1})
      moved[{op.dst_buffer, op.dst + at}] = expected(check, op.src_buffer, op.src + at);
  }
  return moved;
}

Symbol HypothesisSearch::expected(const Checkpoint& check, int buffer, std::int64_t offset) {
  return evidence_.symbols.at(evidence_.expectation.id(check, buffer, offset, evidence_.symbols));
}

Symbol HypothesisSearch::found_at(int buffer, std::int64_t offset, const Symbol& otherwise) {
  const auto key = [](int in, std::int64_t at) { return at * 256 + in; };
  if (attribution_at_.empty()) {
    for (std::size_t i = 0; i < attributions().all.size(); ++i)
      attribution_at_.emplace(key(attributions().all[i].buffer, attributions().all[i].offset), i);
  }
  const auto seen = attribution_at_.find(key(buffer, offset));
  return seen != attribution_at_.end() ? attributions().all[seen->second].is : otherwise;
}

HypothesisSearch::Probed HypothesisSearch::probe(std::size_t step, const std::vector<Action>& bodies) {
  if (!wrong_ends().first) return {};
  common_->work.add_probe();
  Sequence sequence;
  std::set<std::uint32_t> generations;
  for (const Action& body : bodies) {
    auto ends = ends_of(step, body, generations);
    if (!ends) return {};
    sequence.push_back({scenario().steps[step].name, std::move(*ends)});
  }
  CopyProgram program;
  try {
    program = record(scenario(), evidence_.space, sequence, common_->locators);
  } catch (const std::exception&) {
    return {};
  }
  // What a part of it does against the rules, all of it does.
  const bool breaks = program.ending.kind != "completed" ||
                      std::ranges::any_of(program.events, [](const json& event) { return event.contains("violation"); });
  if (breaks)
    return evidence_.observation.ending.kind == "completed" && outcome_["violations"].empty() ? Probed{1, 0} : Probed{};
  const Checkpoint& check = *evidence_.expectation.at(evidence_.observation.checks[attributions().check]);
  const auto moved = moved_by(program, bodies.size() > 1 ? 1 : std::max<std::size_t>(1, program.ops.size() / 12), check);
  if (!moved) return {};
  Probed out;
  for (const auto& [address, symbol] : *moved) {
    const auto& [buffer, offset] = address;
    const Symbol must = expected(check, buffer, offset);
    if (must.kind == Symbol::Kind::tag && !generations.contains(must.generation)) continue;
    if (!matters(check, buffer, offset)) continue;
    const Symbol there = found_at(buffer, offset, must);
    // Another request's content: a later step may have put it there.
    if (there.kind == Symbol::Kind::tag && !generations.contains(there.generation)) continue;
    // Poison has a name only where it was looked for.
    if (there.kind == Symbol::Kind::unknown && (evidence_.real || symbol.kind != Symbol::Kind::tag)) continue;
    ++out.asked;
    out.agree += symbol == there;
  }
  return out;
}

bool HypothesisSearch::plausible(std::size_t step, const Action& body) {
  const Probed probed = probe(step, {body});
  return probed.asked < 4 || probed.agree > 0;
}

bool HypothesisSearch::refuted(const CandidateSteps& bodies) {
  for (std::size_t step = 0; step < bodies.size(); ++step) {
    if (bodies[step] == base_[step] || bodies[step].empty()) continue;
    const Probed probed = probe(step, bodies[step]);
    if (probed.agree < probed.asked) return true;
  }
  return false;
}

bool HypothesisSearch::attempt_without(FaultClass fault_class, const std::string& words,
                                       const std::set<std::size_t>& steps) {
  CandidateSteps changed = base_;
  for (const std::size_t step : steps) changed[step].clear();
  return attempt(fault_class, words, std::move(changed));
}

}  // namespace kvcts::scenario
