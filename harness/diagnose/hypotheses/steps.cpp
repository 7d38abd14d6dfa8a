// Steps that did not happen, happened in part, at another time, or under other options.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "diagnose/hypotheses/tools.hpp"
#include "diagnose/quantity.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

// Whether a success was reported.
bool reported_done(const HypothesisSearch& search) {
  return std::ranges::any_of(search.evidence().observation.events, [](const auto& event) {
    if (event.value("op", "") != "complete") return false;
    const auto status = event["fields"].value("status", nlohmann::json("done"));
    return !status.is_string() || (status != "failed" && status != "aborted");
  });
}
bool reported_failure(const HypothesisSearch& search) {
  return std::ranges::any_of(search.evidence().observation.events, [](const auto& event) {
    return event.value("op", "") == "fail" ||
           (event.value("op", "") == "complete" && event["fields"].value("status", nlohmann::json("done")) == "failed");
  });
}

// The heads that a step takes: its picks, or those of its source.
std::vector<std::int64_t> heads_of(const Action& a) {
  if (a.pick.heads) return *a.pick.heads;
  std::set<std::int64_t> heads;
  for (const View& view : a.from) {
    for (const auto& plane : cache_of(view).planes) {
      const layout::Box box = layout::domain(plane);
      for (std::int64_t h = box.lo[Axis::head]; h < box.hi[Axis::head]; ++h) heads.insert(h);
    }
  }
  return {heads.begin(), heads.end()};
}

// For a missed assignment that only sets a request's number of tokens from then on: too many or too few. "" for any other.
FaultClass class_of_length(const HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  const auto before = search.request_at(step, a.request);
  if (a.op != Operation::assign || !a.tokens || !before || !a.blocks.empty() || a.generation || *a.tokens == before->tokens)
    return FaultClass::none;
  return before->tokens > *a.tokens ? FaultClass::over_read : FaultClass::truncated;
}

// The meaning of a missing move: the only one, one of several kinds, scales.
FaultClass class_of_absence(const HypothesisSearch& search, const std::set<std::size_t>& steps) {
  const Action& first = search.action(*steps.begin());
  if (first.op == Operation::fill) return FaultClass::stale_block;
  if (first.op == Operation::register_range) return FaultClass::registration_missing_region;
  if (first.op == Operation::assign && first.blocks.empty() && first.generation)
    return FaultClass::stale_block;  // older content is taken for the new
  if (const FaultClass length = class_of_length(search, *steps.begin()); length != FaultClass::none) return length;
  if (first.op == Operation::put) {
    for (std::size_t i = 0; i < *steps.begin(); ++i) {
      if (search.action(i).op == Operation::put && search.action(i).store == first.store &&
          search.action(i).key == first.key)
        return FaultClass::stale_block;
    }
  }
  if (first.op == Operation::assign) {
    // Left with another owner's blocks: one owner too many.
    for (const auto& [memory, ids] : first.blocks) {
      for (const auto& [name, request] : search.scenario().requests) {
        const auto old = search.scenario().requests.find(first.request);
        if (name == first.request || old == search.scenario().requests.end() || !request.blocks.contains(memory) ||
            !old->second.blocks.contains(memory))
          continue;
        for (const std::int64_t id : old->second.blocks.at(memory)) {
          const auto& theirs = request.blocks.at(memory);
          if (std::ranges::find(theirs, id) != theirs.end()) return FaultClass::stale_block;
        }
      }
    }
    return FaultClass::wrong_block_id;
  }
  if (first.op == Operation::read) {
    for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
      if (search.action(i).op == Operation::read && !steps.contains(i))
        return FaultClass::truncated;  // one request of a batch
    }
  }
  if (first.op == Operation::write) {
    // Someone moved before it was written, or the old content stayed.
    for (std::size_t i = 0; i < *steps.begin(); ++i) {
      const Action& a = search.action(i);
      if ((a.op == Operation::write || a.op == Operation::move || a.op == Operation::get) &&
          memory_of(a.to) == memory_of(first.to))
        return FaultClass::stale_block;
    }
    return FaultClass::read_before_ready;
  }
  if (first.parts == "scales") return FaultClass::scale_lost;
  if (first.op == Operation::require || first.op == Operation::unpack || first.op == Operation::refuse)
    return FaultClass::none;
  // Storing and fetching are two directions: a get is no part of a put.
  const auto like_first = [&](std::size_t i) {
    return brings(search.action(i)) && !steps.contains(i) &&
           (search.action(i).op == Operation::put) == (first.op == Operation::put);
  };
  bool others = false;
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) others = others || like_first(i);
  if (others && brings(first)) {
    // Whole requests, of several.
    bool same_request = false;
    for (std::size_t i = 0; i < search.scenario().steps.size(); ++i)
      same_request = same_request || (like_first(i) && search.action(i).request == first.request);
    if (!same_request && !first.request.empty())
      return reported_done(search) ? FaultClass::false_success : FaultClass::silently_skipped;
    for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
      const Action& a = search.action(i);
      if (!like_first(i)) continue;
      // The same caches, another part of the request: pieces of one transfer.
      if (memory_of(a.to) == memory_of(first.to) && memory_of(a.from) == memory_of(first.from) &&
          a.request == first.request && a.pick.layers == first.pick.layers && a.pick.kv == first.pick.kv) {
        return reported_failure(search) && reported_done(search) ? FaultClass::false_success : FaultClass::truncated;
      }
      // Other heads of the same place, from another rank: a shard.
      if (memory_of(a.to) == memory_of(first.to) && a.request == first.request && heads_of(a) != heads_of(first)) {
        return reported_done(search) ? FaultClass::false_success : FaultClass::head_shard_mapping;
      }
      // The same place, from elsewhere: one of two passes over it, a conversion.
      if (memory_of(a.to) == memory_of(first.to) && a.request == first.request && a.pick.layers == first.pick.layers)
        return FaultClass::silently_skipped;
    }
    return FaultClass::layer_missing;
  }
  return reported_done(search) ? FaultClass::false_success : FaultClass::silently_skipped;
}

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

// A check that did not happen, by what it compares.
FaultClass class_of_unmet(const std::string& about) {
  const FaultClass known = class_of_quantity(about);
  return known == FaultClass::none ? FaultClass::capability_mismatch : known;
}

}  // namespace

void generate_skips(HypothesisSearch& search) {
  const auto& steps = search.scenario().steps;
  std::set<std::size_t> moves;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Action& a = search.action(i);
    if (a.op == Operation::require || a.op == Operation::unpack) {
      search.attempt_without(class_of_unmet(a.op == Operation::unpack ? "dims" : a.about),
                             symbol_of(search, i) + " was not checked", {i});
    } else if (a.op == Operation::refuse) {
      search.attempt_without(class_of_unmet(a.about.empty() ? "capability" : a.about),
                             "accepted what had to be refused: " + a.text, {i});
    } else if (brings(a)) {
      moves.insert(i);
    }
  }
  if (search.found()) return;
  // Neither registered nor moved: the memory was unknown.
  for (std::size_t r = 0; r < steps.size(); ++r) {
    if (search.action(r).op != Operation::register_range) continue;
    const std::string memory = search.action(r).memory.substr(0, search.action(r).memory.find('/'));
    std::set<std::size_t> both{r};
    for (const std::size_t i : moves) {
      if (memory_of(search.action(i).from) == memory || memory_of(search.action(i).to) == memory) both.insert(i);
    }
    const bool unregistered = std::ranges::none_of(search.evidence().observation.events, [&](const auto& event) {
      return event.value("op", "") == "register" && event.value("step", "") == steps[r].name;
    });
    if (unregistered && both.size() > 1)
      search.attempt_without(FaultClass::registration_missing_region, memory + " was neither registered nor moved", both);
  }
  if (search.found()) return;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Action& a = search.action(i);
    if (!search.moves(i) && a.op != Operation::register_range && a.op != Operation::assign) continue;
    const FaultClass fault_class = class_of_absence(search, {i});
    const bool alone = fault_class == FaultClass::layer_missing && alone_to_its_memory(search, i);
    search.attempt_without(
        fault_class, alone ? "nothing was moved to " + memory_of(a.to) : symbol_of(search, i) + " never happened", {i});
  }
  if (moves.size() > 1) search.attempt_without(class_of_absence(search, moves), "nothing was moved", moves);
  // Memories where nothing arrived.
  std::set<std::size_t> nowhere;
  for (const std::size_t i : moves) {
    std::size_t taken = 0, untouched = 0;
    for (const ObservedMove& s : search.observed_moves(i))
      taken += s.taken, untouched += s.taken && s.attribution->untouched;
    if (taken > 0 && taken == untouched) nowhere.insert(i);
  }
  if (nowhere.size() > 1 && nowhere.size() < moves.size()) {
    std::string words;
    for (const std::size_t i : nowhere) words += (words.empty() ? "" : ", ") + symbol_of(search, i);
    search.attempt_without(class_of_absence(search, nowhere), words + " never happened", nowhere);
  }
  // Every move of one pair of memories.
  std::map<std::string, std::set<std::size_t>> by_memory;
  for (const std::size_t i : moves) by_memory[memory_of(search.action(i).to)].insert(i);
  for (const auto& [memory, group] : by_memory) {
    if (group.size() > 1 && group.size() < moves.size())
      search.attempt_without(class_of_absence(search, group), "nothing was moved to " + memory, group);
  }
}

namespace {

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
  // Which values of an axis stayed the same, by the memory that they should have reached.
  struct Part {
    std::set<std::int64_t> all, touched;
  };
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!search.moves(i) || a.op == Operation::fill || a.op == Operation::copy) continue;
    std::map<int, Part> axes;
    Part parts;
    std::vector<std::array<std::int64_t, 5>> lacking;  // coordinates that nothing reached, by axis
    bool four_bits = false;
    const bool written = written_before(search, i);
    for (const ObservedMove& s : search.observed_moves(i)) {
      if (!s.taken) continue;
      const Attribution& attribution = *s.attribution;
      const ViewElement& at = *s.at;
      const bool pair = (attribution.must.kind == Symbol::Kind::tag && layout::bits(attribution.must.dtype) == 4) ||
                        layout::bits(at.dtype) == 4;
      four_bits = four_bits || pair;
      const bool as_before = written && search.name_before(i, attribution.buffer, attribution.offset) == attribution.is;
      if (!attribution.wrong && as_before) continue;  // right by itself: says nothing
      const bool touched = !attribution.wrong || !(attribution.untouched || as_before);
      const auto note = [&](Part& part, std::int64_t value) {
        part.all.insert(value);
        if (touched) part.touched.insert(value);
      };
      if (!touched) lacking.push_back({at.layer, at.kv, *at.token, at.head, at.channel});
      note(axes[0], at.layer), note(axes[1], at.kv), note(axes[3], at.head), note(axes[4], at.channel);
      if (pair && attribution.must.kind != Symbol::Kind::number) note(axes[4], at.channel + 1);  // a byte is a pair
      if (*at.token != 0 || at.component == layout::Component::data) note(axes[2], *at.token);
      note(parts, at.component == layout::Component::data ? 0 : 1);
    }
    const auto words = [&](const char* what, const Part& part) {
      return "only " + std::to_string(part.touched.size()) + " of " + std::to_string(part.all.size()) + " " + what + " in " +
             symbol_of(search, i);
    };
    if (parts.all.size() == 2 && parts.touched.size() == 1) {
      Action body = a;
      body.parts = parts.touched.contains(0) ? "data" : "scales";
      search.attempt(body.parts == "data" ? FaultClass::scale_lost : FaultClass::truncated,
                     body.parts == "data" ? "the scales were left behind in " + symbol_of(search, i)
                                          : "only the scales in " + symbol_of(search, i),
                     i, body);
    }
    // Exactly the content of block 0 is missing: someone's null block.
    if (const auto request = search.scenario().requests.find(a.request);
        request != search.scenario().requests.end() && !axes[2].touched.empty()) {
      std::vector<std::pair<Action, bool>> left_out;  // and whether what is missing is block 0's
      for (const auto* views : {&a.from, &a.to}) {
        const auto table = request->second.blocks.find(memory_of(*views));
        if (views->empty() || table == request->second.blocks.end()) continue;
        std::set<std::int64_t> missing, null;
        std::set_difference(axes[2].all.begin(), axes[2].all.end(), axes[2].touched.begin(), axes[2].touched.end(),
                            std::inserter(missing, missing.end()));
        std::vector<std::int64_t> ids = table->second, holes = table->second;
        std::vector<bool> all(ids.size(), true);
        for (const std::int64_t token : axes[2].all) {
          const auto k = static_cast<std::size_t>(entry_of(request->second, views->front(), token));
          if (k >= ids.size()) continue;
          if (ids[k] == 0) null.insert(token);
          all[k] = all[k] && missing.contains(token);
        }
        for (std::size_t k = 0; k < ids.size(); ++k) {
          if (all[k]) holes[k] = no_block;
        }
        Action body = a;
        (views == &a.from ? body.from_blocks : body.to_blocks) = holes;
        const bool none = missing == null && !brought_block_0(search, i, views == &a.from);
        if (holes == ids) continue;
        left_out.emplace_back(std::move(body), none);
      }
      const auto& [all_tokens, there] = std::tie(axes[2].all, axes[2].touched);
      const bool last_ones = std::ranges::none_of(
          all_tokens, [&](std::int64_t token) { return !there.contains(token) && token < *there.rbegin(); });
      // By the table of the first end; the bytes cannot tell the one reading from the other.
      for (std::size_t k = 0; k < left_out.size(); ++k) {
        const auto& [body, none] = left_out[k];
        const auto left = [&] {
          search.attempt(FaultClass::truncated, "blocks left out in " + symbol_of(search, i), i, body);
        };
        // At the end of the list it is as likely the end that is missing, unless both ends have block 0 there.
        const bool one_end = none && last_ones && std::ranges::count(left_out, true, &std::pair<Action, bool>::second) == 1;
        search.penalty(k == 0 && !one_end ? 0 : 0.2);
        if (none)
          search.attempt(FaultClass::wrong_block_id, "block 0 taken for no block in " + symbol_of(search, i), i, body);
        if (none) search.penalty(0.2);
        left();
      }
      search.penalty(0);
    }
    const auto try_axis = [&](int axis, Picks StepSelection::* member, FaultClass fault_class, const char* what) {
      const Part& part = axes[axis];
      if (part.touched.empty() || part.touched.size() == part.all.size()) return;
      Action body = a;
      keep_only(body, member, part.touched);
      search.attempt(fault_class, words(what, part), i, body);
      const auto kept = [&](const auto& at) { return part.touched.contains(at[static_cast<std::size_t>(axis)]); };
      if (std::ranges::none_of(lacking, kept)) lacks.try_emplace(i, Lack{fault_class, words(what, part), {body}});
    };
    if (!lacking.empty() && axes[0].touched.empty())
      lacks.try_emplace(i, Lack{class_of_absence(search, {i}), symbol_of(search, i) + " never happened", {}});
    try_axis(0, &StepSelection::layers, FaultClass::layer_missing, "layers");
    try_axis(1, &StepSelection::kv, FaultClass::layer_missing, "of K and V");
    try_axis(3, &StepSelection::heads, FaultClass::head_shard_mapping, "heads");
    try_axis(2, &StepSelection::tokens,
             reported_failure(search) && reported_done(search) ? FaultClass::false_success : FaultClass::truncated,
             "tokens");
    std::set<std::int64_t> lost;
    std::set_difference(axes[4].all.begin(), axes[4].all.end(), axes[4].touched.begin(), axes[4].touched.end(),
                        std::inserter(lost, lost.end()));
    const bool tensors = !lost.empty() && a.to.size() == 1 && whole_tensors(a.to[0], lost);
    try_axis(4, &StepSelection::channels,
             tensors     ? FaultClass::layer_missing
             : four_bits ? FaultClass::packed_dim_misread
                         : FaultClass::truncated,
             "channels");
    // Both at once.
    const auto some = [](const Part& part) { return !part.touched.empty() && part.touched.size() < part.all.size(); };
    if (!some(axes[0]) || !some(axes[2])) continue;
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

void generate_options(HypothesisSearch& search) {
  const auto& steps = search.scenario().steps;
  for (std::size_t i = 0; i < steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op == Operation::read && a.decode) {
      for (const char* how : {"ignored", "used", "twice"}) {
        Action body = a;
        body.scales = how;
        const std::string words = std::string(how) == "ignored" ? "the scales were not applied"
                                  : std::string(how) == "twice" ? "the scales were applied twice"
                                                                : "scales were applied";
        search.attempt(FaultClass::scale_lost, words + " in " + symbol_of(search, i), i, body);
      }
    }
    if ((a.op == Operation::move || a.op == Operation::copy) && !a.from.empty() && !a.to.empty()) {
      Action body = a;
      std::swap(body.from, body.to);
      std::swap(body.from_blocks, body.to_blocks);
      std::swap(body.from_offset, body.to_offset);
      std::swap(body.from_step, body.to_step);
      if (body.pick_to.layers || body.pick_to.heads || body.pick_to.tokens || body.pick_to.kv || body.pick_to.channels)
        std::swap(body.pick, body.pick_to);
      const bool source_changed = std::ranges::any_of(search.attributions().all, [&](const Attribution& attribution) {
        return attribution.wrong &&
               search.evidence().space.buffers()[static_cast<std::size_t>(attribution.buffer)].memory == memory_of(a.from);
      });
      if (source_changed)
        search.attempt(FaultClass::copy_direction, "source and destination exchanged in " + symbol_of(search, i), i, body);
    }
    if (a.op == Operation::move || a.op == Operation::copy || a.op == Operation::put || a.op == Operation::get) {
      Action body = a;
      body.splits = !a.splits;
      search.attempt(FaultClass::misaligned,
                     "a copy crosses the end of a registration or a mapping in " + symbol_of(search, i), i, body);
    }
    if (a.op == Operation::move && a.parts == "all") {
      Action body = a;
      body.parts = "data";
      search.attempt(FaultClass::scale_lost, "the scales were left behind in " + symbol_of(search, i), i, body);
    }
    if (a.op == Operation::write) {
      Action body = a;
      body.parts = "data";
      search.attempt(FaultClass::scale_lost, "no scales were written in " + symbol_of(search, i), i, body);
      for (const char* content : {"tags", "codes", "values"}) {
        body = a;
        body.content = content;
        search.attempt(FaultClass::dtype_reinterpreted,
                       std::string("other content (") + content + ") in " + symbol_of(search, i), i, body);
      }
    }
    if (a.op == Operation::put) {
      Action body = a;
      body.on_exists = a.on_exists == "keep" ? "replace" : "keep";
      search.attempt(FaultClass::stale_block,
                     a.on_exists == "keep" ? "an object that existed was replaced" : "an object that existed was kept", i,
                     body);
    }
    if (a.op == Operation::register_range) {
      std::set<std::int64_t> lengths, shifts{-a.to_offset};
      bool seam = false;
      for (const nlohmann::json& event : search.evidence().observation.events)
        seam = seam || event.value("violation", "").starts_with("straddles");
      FaultClass short_class = seam ? FaultClass::misaligned : FaultClass::registration_missing_region;
      for (const nlohmann::json& event : search.evidence().observation.events) {
        if (event.contains("violation")) lengths.insert(event["offset"].get<std::int64_t>() - a.to_offset);
        if (event.value("op", "") == "register" && event.value("step", "") == steps[i].name)
          lengths.insert(event["bytes"].get<std::int64_t>());
      }
      for (const std::int64_t bytes : lengths) {
        if (bytes <= 0) continue;
        Action body = a;
        body.bytes = bytes;
        search.attempt(short_class, "only " + std::to_string(bytes) + " bytes of " + a.memory + " were registered", i, body);
        for (const nlohmann::json& event : search.evidence().observation.events) {
          if (event.value("op", "") != "register" || event.value("step", "") != steps[i].name) continue;
          body.to_offset = event["begin"].get<std::int64_t>();
          search.attempt(short_class,
                         std::to_string(bytes) + " bytes of " + a.memory + " from " + std::to_string(body.to_offset) +
                             " on were registered",
                         i, body);
        }
      }
      // Registered at another base: content that should come from one place comes from further on.
      for (const Attribution& attribution : search.attributions().all) {
        if (!attribution.wrong) continue;
        const BufferAddress own{attribution.is.buffer, attribution.is.offset};
        for (const BufferAddress& p :
             attribution.is.kind == Symbol::Kind::poison ? std::span(&own, 1) : search.element_index().of(attribution.is)) {
          for (const BufferAddress& q : search.element_index().of(attribution.must)) {
            if (p.buffer == q.buffer) shifts.insert(p.offset - q.offset);
          }
        }
        for (const BufferAddress& q : search.element_index().of(attribution.is)) {
          if (q.buffer == attribution.buffer) shifts.insert(attribution.offset - q.offset);
        }
        if (shifts.size() > 24) break;
      }
      for (const std::int64_t shift : shifts) {
        if (shift == 0) continue;
        Action body = a;
        body.maps = a.maps.value_or(a.to_offset) + shift;
        const bool rounded = *body.maps != 0 && *body.maps == a.to_offset / 4096 * 4096;
        search.attempt(rounded ? FaultClass::misaligned : FaultClass::registration_missing_region,
                       a.memory + " was registered " + std::to_string(shift) + " bytes off its address", i, body);
      }
    }
  }
}

void generate_keys(HypothesisSearch& search) {
  std::set<std::size_t> shelves;
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    if (search.action(i).op == Operation::put || search.action(i).op == Operation::get) shelves.insert(i);
  }
  if (shelves.empty()) return;
  const std::set<std::string> fields = key_fields(search);
  const std::vector<std::string> names(fields.begin(), fields.end());
  const std::size_t n = std::min<std::size_t>(names.size(), 6);
  for (std::size_t count = 1; count <= n; ++count) {
    for (std::size_t mask = 1; mask < (std::size_t{1} << n); ++mask) {
      if (static_cast<std::size_t>(__builtin_popcountll(mask)) != count) continue;
      CandidateSteps bodies = search.bodies();
      std::string missing;
      for (std::size_t f = 0; f < n; ++f) {
        if (!(mask >> f & 1)) continue;
        missing += (missing.empty() ? "" : ", ") + names[f];
        leave_out_of_keys(bodies, names[f]);
      }
      search.attempt(FaultClass::identity_collision, "keys without " + missing, std::move(bodies));
    }
  }
  // Under a key that no one else has: never found.
  for (const std::size_t i : shelves) {
    Action body = search.action(i);
    for (auto& [field, value] : body.key) value += "'";
    search.attempt(FaultClass::silently_skipped, symbol_of(search, i) + " used a key that no other step has", i, body);
  }
  // One side only: put under one key, fetched under another.
  for (const std::size_t i : shelves) {
    for (const std::size_t j : shelves) {
      if (i == j || search.action(i).key == search.action(j).key) continue;
      Action body = search.action(i);
      body.key = search.action(j).key;
      search.attempt(FaultClass::identity_collision,
                     "the key of '" + search.scenario().steps[j].name + "' in '" + search.scenario().steps[i].name + "'", i,
                     body);
    }
  }
}

namespace {

// Whether two steps use a block of one memory, by their initial tables.
bool share_blocks(const HypothesisSearch& search, const Action& a, const Action& b) {
  const auto blocks = [&](const Action& action, const std::string& memory) {
    const auto request = search.scenario().requests.find(action.request);
    if (request == search.scenario().requests.end()) return std::optional<std::vector<std::int64_t>>{};
    const auto ids = request->second.blocks.find(memory);
    return ids == request->second.blocks.end() ? std::nullopt : std::optional(ids->second);
  };
  for (const std::string& memory : {memory_of(a.from), memory_of(a.to)}) {
    if (memory.empty() || (memory_of(b.from) != memory && memory_of(b.to) != memory)) continue;
    const auto mine = blocks(a, memory), theirs = blocks(b, memory);
    if (!mine || !theirs) return true;  // unknown: it may be so
    for (const std::int64_t id : *mine) {
      if (std::find(theirs->begin(), theirs->end(), id) != theirs->end()) return true;
    }
  }
  return false;
}

// What it means that a step happened at another's place. What lies between decides: the writer that it had to wait for, or a
// block that changed owner meanwhile.
FaultClass class_of_order(const HypothesisSearch& search, std::size_t i, std::size_t j) {
  const auto touches = [](const Action& a, const std::string& memory) {
    return memory_of(a.from) == memory || memory_of(a.to) == memory || a.memory == memory || a.blocks.contains(memory);
  };
  if (const FaultClass reported = class_of_length(search, i); reported != FaultClass::none) return reported;
  const Action& a = search.action(i);
  const bool later = j > i;
  bool recycled = false, awaited = false;
  FaultClass length{};
  for (std::size_t k = std::min(i, j); k <= std::max(i, j); ++k) {
    if (k == i) continue;
    const Action& c = search.action(k);
    if (const FaultClass reported = class_of_length(search, k); reported != FaultClass::none) {
      // Done before the length changed, it used the old one; done after, the new one.
      if (c.request == a.request)
        length = !later ? reported : reported == FaultClass::over_read ? FaultClass::truncated : FaultClass::over_read;
      continue;
    }
    const bool other = !c.request.empty() && !a.request.empty() && c.request != a.request;
    const bool changes = c.op == Operation::write || c.op == Operation::fill || c.op == Operation::assign ||
                         c.op == Operation::move || c.op == Operation::get;
    const bool here = touches(c, memory_of(a.from)) || touches(c, memory_of(a.to));
    if (changes && here &&
        ((other && share_blocks(search, a, c)) || c.op == Operation::assign || c.op == Operation::fill ||
         (c.op == Operation::write && later && a.op != Operation::write && a.op != Operation::fill)))
      recycled = true;
    // New memory was written before it had been erased.
    if (c.op == Operation::write && later && a.op == Operation::fill && here) awaited = true;
    if (changes && !other && touches(c, memory_of(a.from))) awaited = true;
    if (later && !other && changes && memory_of(c.from) == memory_of(a.to))
      awaited = true;  // its input was read before it existed
    if (c.op == Operation::put && a.op == Operation::get && c.store == a.store && c.key == a.key && other) recycled = true;
    if (c.op == Operation::check || c.op == Operation::complete || c.op == Operation::signal || c.op == Operation::read ||
        c.op == Operation::put)
      awaited = true;
    if (a.op == Operation::write && (c.op == Operation::move || c.op == Operation::put || c.op == Operation::read) && !other)
      awaited = true;
  }
  if (recycled && !(later && a.op == Operation::write)) return FaultClass::stale_block;
  if (length != FaultClass::none && !awaited) return length;
  return awaited || a.op == Operation::write ? FaultClass::read_before_ready : FaultClass::stale_block;
}

// A request with blocks at both ends of a transfer, some now owned by another request, that no one was to move: a cancelled
// transfer arrived late.
void generate_called_off(HypothesisSearch& search) {
  const auto& steps = search.scenario().steps;
  for (const auto& [name, request] : search.scenario().requests) {
    for (std::size_t i = 0; i < steps.size() && !search.spent(); ++i) {
      const Action& a = search.action(i);
      const std::string from = memory_of(a.from), to = memory_of(a.to);
      if (a.op != Operation::move || a.request == name || !request.blocks.contains(from) || !request.blocks.contains(to))
        continue;
      Action called_off = a;
      called_off.request = name;
      called_off.pick = {}, called_off.pick_to = {};
      called_off.from_blocks.reset(), called_off.to_blocks.reset();
      const bool meant = std::ranges::any_of(steps, [&](const Step& s) {
        return s.intended.op == Operation::move && s.intended.request == name && memory_of(s.intended.to) == to;
      });
      if (meant || !share_blocks(search, called_off, a)) continue;
      for (std::size_t j = 0; j < steps.size(); ++j) {
        CandidateSteps bodies = search.bodies();
        bodies[j].push_back(called_off);
        search.attempt(FaultClass::stale_block,
                       "request " + name + ", which was not to move, reached " + to + " after " + symbol_of(search, j),
                       std::move(bodies));
      }
    }
  }
}

bool takes(const Action& a) {
  return a.op == Operation::move || a.op == Operation::get || a.op == Operation::put || a.op == Operation::read;
}

// Whether two steps may concern the same elements.
bool overlap(const Action& a, const Action& b) {
  const auto apart = [](const Picks& p, const Picks& q) {
    return p && q && std::none_of(p->begin(), p->end(), [&](std::int64_t value) { return picked(q, value); });
  };
  return !apart(a.pick.layers, b.pick.layers) && !apart(a.pick.kv, b.pick.kv) && !apart(a.pick.heads, b.pick.heads) &&
         !apart(a.pick.tokens, b.pick.tokens);
}

// The last step before this one that produces its input; the first one after it that reads its output or changes its input.
std::optional<std::size_t> maker_of(const HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  for (std::size_t k = step; k-- > 0;) {
    const Action& b = search.action(k);
    const bool same_object = a.op == Operation::get && b.op == Operation::put && b.store == a.store && b.key == a.key;
    if (same_object || (!b.to.empty() && memory_of(b.to) == memory_of(a.from) && b.request == a.request && overlap(a, b)))
      return k;
  }
  return std::nullopt;
}
std::optional<std::size_t> user_of(const HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  for (std::size_t k = step + 1; k < search.scenario().steps.size(); ++k) {
    const Action& b = search.action(k);
    const bool same_object = a.op == Operation::put && b.op == Operation::get && b.store == a.store && b.key == a.key;
    const bool reads_it = !a.to.empty() && memory_of(b.from) == memory_of(a.to) && b.request == a.request;
    const bool changes_it = !a.from.empty() && memory_of(b.to) == memory_of(a.from) && share_blocks(search, a, b);
    if (same_object || ((reads_it || changes_it) && overlap(a, b))) return k;
  }
  return std::nullopt;
}

}  // namespace

void generate_orders(HypothesisSearch& search) {
  const auto& steps = search.scenario().steps;
  generate_called_off(search);
  for (std::size_t i = 0; i < steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!search.moves(i) && a.op != Operation::assign) continue;
    for (std::size_t j = 0; j < steps.size(); ++j) {
      const Action& b = search.action(j);
      if (i == j || b.op == Operation::register_range || b.op == Operation::unregister_range) continue;
      if (j > i && j + 1 < steps.size() && search.action(j).op == Operation::nothing) continue;
      const bool later = j > i;
      const FaultClass fault_class = class_of_order(search, i, j);
      for (const char* reads : {"execute", "issue"}) {
        for (const char* table : {"execute", "issue"}) {
          Action body = a;
          (later ? body.after : body.before) = steps[j].name;
          body.reads = reads, body.table = table;
          if (!later && (body.reads == "issue" || body.table == "issue")) continue;
          search.attempt(fault_class,
                         symbol_of(search, i) + (later ? " happened only after " : " happened before ") +
                             symbol_of(search, j) +
                             (body.reads == "issue" ? ", with what was there when it was issued" : ""),
                         i, body);
        }
      }
    }
  }
}

void generate_orders_together(HypothesisSearch& search) {
  const auto& steps = search.scenario().steps;
  using Times = std::map<std::size_t, std::size_t>;  // step -> the one at whose place it happened
  const auto attempt = [&](const Times& times) {
    if (times.size() < 2) return;
    std::string words;
    std::set<std::string_view> classes;  // by name: the last one is reported
    CandidateSteps bodies = search.bodies();
    for (const auto& [i, j] : times) {
      Action body = search.action(i);
      (j > i ? body.after : body.before) = steps[j].name;
      bodies[i] = {body};
      classes.insert(name(class_of_order(search, i, j)));
      if (words.size() < 160)
        words +=
            (words.empty() ? "" : ", ") + symbol_of(search, i) + (j > i ? " after " : " before ") + symbol_of(search, j);
    }
    search.attempt(*fault_class_from_name(*classes.rbegin()), "several steps happened at another time: " + words,
                   std::move(bodies));
  };
  // Each one before what it had to wait for, or after what had to wait for it.
  for (const auto& other : {maker_of, user_of}) {
    Times times;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!takes(search.action(i))) continue;
      if (const auto j = other(search, i)) times[i] = *j;
    }
    attempt(times);
  }
  // The steps between one pair of memories, each before what it had to wait for: a pipeline that runs one step ahead.
  std::map<std::pair<std::string, std::string>, Times> routes;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Action& a = search.action(i);
    const auto j = takes(a) ? maker_of(search, i) : std::nullopt;
    if (j) routes[{memory_of(a.from), memory_of(a.to)}][i] = *j;
  }
  for (const auto& [route, times] : routes) attempt(times);
  // All before one step, or after it.
  for (std::size_t j = 0; j < steps.size() && !search.spent(); ++j) {
    Times earlier, later;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i != j && takes(search.action(i))) (i > j ? earlier : later)[i] = j;
    }
    attempt(earlier), attempt(later);
  }
}

}  // namespace kvcts::scenario
