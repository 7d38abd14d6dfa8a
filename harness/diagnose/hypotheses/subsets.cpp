// Steps that happened in part: only some layers, tokens, heads, channels or blocks, or for another number of tokens.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

// Whether an earlier step had written where this one writes: then the part that still holds the old bytes was left out.
bool written_before(const HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  bool written = false;
  for (std::size_t i = 0; i < step; ++i) {
    const Action& b = search.action(i);
    written = written || ((b.op == Operation::move || b.op == Operation::write || b.op == Operation::get) &&
                          memory_of(b.to) == memory_of(a.to));
  }
  return written && a.op != Operation::read;
}

// Whether some tensors of a memory hold exactly these channels: a kind of cache with its own tensors.
bool whole_tensors(const View& view, const std::set<std::int64_t>& channels) {
  const layout::Cache cache = cache_of(view);
  std::set<std::int64_t> covered;
  for (const auto& plane : cache.planes) {
    if (plane.component != layout::Component::data) continue;
    const layout::Box box = layout::domain(plane);
    std::set<std::int64_t> mine;
    for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) mine.insert(c);
    const bool shared = std::ranges::any_of(cache.planes, [&](const auto& other) {
      return other.component == layout::Component::data && other.allocation == plane.allocation &&
             layout::domain(other).lo[Axis::channel] != box.lo[Axis::channel];
    });
    if (!shared && std::includes(channels.begin(), channels.end(), mine.begin(), mine.end())) covered.merge(mine);
  }
  return covered == channels;
}

// Whether another step uses block 0 of a memory, as source or destination: then block 0 does not mean none there.
bool brought_block_0(HypothesisSearch& search, std::size_t step, bool at_source) {
  const Action& a = search.action(step);
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    const Action& b = search.action(i);
    const auto &mine = at_source ? a.from : a.to, &theirs = at_source ? b.from : b.to;
    const auto table = i == step || b.op != a.op || theirs.empty() || memory_of(theirs) != memory_of(mine)
                           ? std::nullopt
                           : table_at(search, i, at_source);
    if (!table) continue;
    const ScenarioRequest request = *search.request_at(i, b.request);
    const bool right = std::ranges::any_of(search.observed_moves(i), [&](const ObservedMove& s) {
      if (!s.taken || s.attribution->wrong || s.attribution->untouched || !s.asked.token) return false;
      const std::int64_t k = entry_of(request, theirs.front(), at_source ? *s.asked.token : *s.at->token);
      return k >= 0 && k < static_cast<std::int64_t>(table->size()) && (*table)[static_cast<std::size_t>(k)] == 0;
    });
    if (right) return true;
  }
  return false;
}

/// Values of an axis that a step should have moved, and those that reached the memory.
struct Coverage {
  std::set<std::int64_t> all, touched;
  bool in_part() const { return !touched.empty() && touched.size() < all.size(); }
  std::set<std::int64_t> missing() const {
    std::set<std::int64_t> out;
    std::set_difference(all.begin(), all.end(), touched.begin(), touched.end(), std::inserter(out, out.end()));
    return out;
  }
};

/// What arrived of one step: layers, K and V, tokens, heads, channels; data and scales.
struct StepCoverage {
  std::array<Coverage, 5> axes;
  Coverage parts;
  std::vector<std::array<std::int64_t, 5>> lacking;  ///< coordinates that nothing reached, by axis
  bool four_bits{false};
};

StepCoverage coverage_of(HypothesisSearch& search, std::size_t step) {
  StepCoverage out;
  auto& seen = out.axes;
  const bool written = written_before(search, step);
  for (const ObservedMove& s : search.observed_moves(step)) {
    if (!s.taken) continue;
    const Attribution& attribution = *s.attribution;
    const ViewElement& at = *s.at;
    const bool pair = (attribution.must.kind == Symbol::Kind::tag && layout::bits(attribution.must.dtype) == 4) ||
                      layout::bits(at.dtype) == 4;
    out.four_bits = out.four_bits || pair;
    const bool as_before = written && search.name_before(step, attribution.buffer, attribution.offset) == attribution.is;
    if (!attribution.wrong && as_before) continue;  // right by itself: says nothing
    const bool touched = !attribution.wrong || !(attribution.untouched || as_before);
    const auto note = [&](Coverage& axis, std::int64_t value) {
      axis.all.insert(value);
      if (touched) axis.touched.insert(value);
    };
    if (!touched) out.lacking.push_back({at.layer, at.kv, *at.token, at.head, at.channel});
    note(seen[0], at.layer), note(seen[1], at.kv), note(seen[3], at.head), note(seen[4], at.channel);
    if (pair && attribution.must.kind != Symbol::Kind::number) note(seen[4], at.channel + 1);  // a byte is a pair
    if (*at.token != 0 || at.component == layout::Component::data) note(seen[2], *at.token);
    note(out.parts, at.component == layout::Component::data ? 0 : 1);
  }
  return out;
}

/// A step without blocks at one end, and whether what is missing is exactly the content of block 0: someone's null block.
struct WithoutBlocks {
  Action body;
  bool null_block{false};
};

std::optional<WithoutBlocks> without_blocks(HypothesisSearch& search, std::size_t step, const ScenarioRequest& request,
                                            const Coverage& tokens, bool at_source) {
  const Action& a = search.action(step);
  const auto& views = at_source ? a.from : a.to;
  const auto table = request.blocks.find(memory_of(views));
  if (views.empty() || table == request.blocks.end()) return std::nullopt;
  const std::set<std::int64_t> missing = tokens.missing();
  std::set<std::int64_t> null;
  std::vector<std::int64_t> ids = table->second, holes = table->second;
  std::vector<bool> all(ids.size(), true);
  for (const std::int64_t token : tokens.all) {
    const auto k = static_cast<std::size_t>(entry_of(request, views.front(), token));
    if (k >= ids.size()) continue;
    if (ids[k] == 0) null.insert(token);
    all[k] = all[k] && missing.contains(token);
  }
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (all[k]) holes[k] = no_block;
  }
  WithoutBlocks out{a, missing == null && !brought_block_0(search, step, at_source)};
  (at_source ? out.body.from_blocks : out.body.to_blocks) = holes;
  return holes == ids ? std::nullopt : std::optional(std::move(out));
}

void generate_without_blocks(HypothesisSearch& search, std::size_t step, const Coverage& tokens) {
  const auto request = search.scenario().requests.find(search.action(step).request);
  if (request == search.scenario().requests.end() || tokens.touched.empty()) return;
  std::vector<WithoutBlocks> ends;
  for (const bool at_source : {true, false}) {
    if (auto end = without_blocks(search, step, request->second, tokens, at_source)) ends.push_back(std::move(*end));
  }
  const bool last_ones = std::ranges::none_of(
      tokens.all, [&](std::int64_t token) { return !tokens.touched.contains(token) && token < *tokens.touched.rbegin(); });
  // By the table of the first end; the bytes cannot tell the one reading from the other.
  for (std::size_t k = 0; k < ends.size(); ++k) {
    const auto& [body, null_block] = ends[k];
    // At the end of the list it is as likely the end that is missing, unless both ends have block 0 there.
    const bool one_end = null_block && last_ones && std::ranges::count(ends, true, &WithoutBlocks::null_block) == 1;
    search.penalty(k == 0 && !one_end ? 0 : 0.2);
    if (null_block) {
      search.attempt(FaultClass::wrong_block_id, "block 0 taken for no block in " + symbol_of(search, step), step, body);
      search.penalty(0.2);
    }
    search.attempt(FaultClass::truncated, "blocks left out in " + symbol_of(search, step), step, body);
  }
  search.penalty(0);
}

void generate_parts_left(HypothesisSearch& search, std::size_t step, const Coverage& parts) {
  if (parts.all.size() != 2 || parts.touched.size() != 1) return;
  Action body = search.action(step);
  body.parts = parts.touched.contains(0) ? "data" : "scales";
  search.attempt(body.parts == "data" ? FaultClass::scale_lost : FaultClass::truncated,
                 body.parts == "data" ? "the scales were left behind in " + symbol_of(search, step)
                                      : "only the scales in " + symbol_of(search, step),
                 step, body);
}

/// What never arrived of one step.
struct Lack {
  FaultClass fault_class{};
  std::string words;
  std::vector<Action> body;  ///< the step without it; empty: all of it
};

// Each of several steps without what never arrived of it.
void generate_lacks(HypothesisSearch& search, const std::map<std::size_t, Lack>& lacks) {
  const bool in_part = std::ranges::any_of(lacks, [](const auto& lack) { return !lack.second.body.empty(); });
  if (lacks.size() < 2 || !in_part) return;
  CandidateSteps bodies = search.bodies();
  std::string words;
  FaultClass fault_class = lacks.begin()->second.fault_class;
  for (const auto& [step, lack] : lacks) {
    bodies[step] = lack.body;
    if (words.size() < 160) words += (words.empty() ? "" : "; ") + lack.words;
    if (lack.fault_class != fault_class) fault_class = FaultClass::truncated;
  }
  search.attempt(fault_class, words, std::move(bodies));
}

}  // namespace

void generate_subsets(HypothesisSearch& search) {
  std::map<std::size_t, Lack> lacks;
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!search.moves(i) || a.op == Operation::fill || a.op == Operation::copy) continue;
    const StepCoverage arrival = coverage_of(search, i);
    const auto& axes = arrival.axes;
    generate_parts_left(search, i, arrival.parts);
    generate_without_blocks(search, i, axes[2]);
    const auto words = [&](const char* what, const Coverage& axis) {
      return "only " + std::to_string(axis.touched.size()) + " of " + std::to_string(axis.all.size()) + " " + what + " in " +
             symbol_of(search, i);
    };
    const auto try_axis = [&](std::size_t axis, Picks StepSelection::* member, FaultClass fault_class, const char* what) {
      if (!axes[axis].in_part()) return;
      Action body = a;
      keep_only(body, member, axes[axis].touched);
      search.attempt(fault_class, words(what, axes[axis]), i, body);
      const auto kept = [&](const auto& at) { return axes[axis].touched.contains(at[axis]); };
      if (std::ranges::none_of(arrival.lacking, kept))
        lacks.try_emplace(i, Lack{fault_class, words(what, axes[axis]), {body}});
    };
    if (!arrival.lacking.empty() && axes[0].touched.empty())
      lacks.try_emplace(i, Lack{class_of_absence(search, {i}), symbol_of(search, i) + " never happened", {}});
    try_axis(0, &StepSelection::layers, FaultClass::layer_missing, "layers");
    try_axis(1, &StepSelection::kv, FaultClass::layer_missing, "of K and V");
    try_axis(3, &StepSelection::heads, FaultClass::head_shard_mapping, "heads");
    try_axis(2, &StepSelection::tokens,
             reported_failure(search) && reported_done(search) ? FaultClass::false_success : FaultClass::truncated,
             "tokens");
    const std::set<std::int64_t> lost = axes[4].missing();
    const bool tensors = !lost.empty() && a.to.size() == 1 && whole_tensors(a.to[0], lost);
    try_axis(4, &StepSelection::channels,
             tensors             ? FaultClass::layer_missing
             : arrival.four_bits ? FaultClass::packed_dim_misread
                                 : FaultClass::truncated,
             "channels");
    // Both at once.
    if (!axes[0].in_part() || !axes[2].in_part()) continue;
    Action body = a;
    keep_only(body, &StepSelection::layers, axes[0].touched), keep_only(body, &StepSelection::tokens, axes[2].touched);
    search.attempt(FaultClass::truncated, words("tokens", axes[2]) + ", " + words("layers", axes[0]), i, body);
  }
  if (!search.found()) generate_lacks(search, lacks);
}

void generate_lengths(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    const auto request = search.request_at(i, a.request);
    if (!request || a.pick.tokens ||
        (a.op != Operation::move && a.op != Operation::read && a.op != Operation::write && a.op != Operation::put &&
         a.op != Operation::get))
      continue;
    const ScenarioRequest& r = *request;
    std::set<std::int64_t> lengths;
    for (std::size_t k = 0; k < search.scenario().steps.size(); ++k) {
      if (search.action(k).op == Operation::assign && search.action(k).request == a.request)
        lengths.insert(search.request_at(k, a.request)->tokens), lengths.insert(search.request_at(k + 1, a.request)->tokens);
    }
    for (const auto* views : {&a.from, &a.to}) {
      for (const View& view : *views) {
        const std::int64_t n = slots_of(view);
        lengths.insert((r.tokens + n - 1) / n * n), lengths.insert(r.tokens / n * n);
        lengths.insert((r.tokens / n + 1) * n), lengths.insert((r.tokens + n - 1) / n * n + n);
        lengths.insert((r.tokens - 1) / n * n);
        for (std::int64_t k = 1; k <= 8; ++k) lengths.insert(n * k);
      }
    }
    for (std::int64_t k = 1; k < r.tokens && r.tokens <= 64; ++k) lengths.insert(k);
    for (std::int64_t d = 1; d <= 4; ++d) lengths.insert(r.tokens + d), lengths.insert(r.tokens - d);
    for (const std::int64_t length : lengths) {
      if (length == r.tokens || length < 0) continue;
      Action body = a;
      std::vector<std::int64_t> tokens;
      for (std::int64_t t = 0; t < length; ++t) tokens.push_back(r.first_token + t);
      body.pick.tokens = std::move(tokens);
      search.attempt(
          length > r.tokens ? FaultClass::over_read : FaultClass::truncated,
          std::to_string(length) + " tokens instead of " + std::to_string(r.tokens) + " in " + symbol_of(search, i), i,
          body);
    }
  }
}

}  // namespace kvcts::scenario
