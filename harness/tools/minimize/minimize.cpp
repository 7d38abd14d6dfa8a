#include "tools/minimize/minimize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/case_text.hpp"
#include "case/catalogue/yaml.hpp"
#include "case/resolve/model.hpp"
#include "case/resolve/resolve.hpp"
#include "tools/minimize/reductions.hpp"

namespace kvcts::minimize {

using nlohmann::json;

namespace {

std::string ending(const CaseResult& r) {
  std::string out(name(r.outcome));
  if (r.diagnosis.fault_class != FaultClass::none) out += " " + std::string(name(r.diagnosis.fault_class));
  if (r.phase) out += fmt::format(" at {}", name(*r.phase));
  return out;
}

bool fails(Outcome outcome) {
  return outcome == Outcome::fail || outcome == Outcome::refused || outcome == Outcome::hang || outcome == Outcome::crash;
}

/// Text without its numbers: a smaller case has different ones.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c < '0' || c > '9') out += c;
  return out;
}

/// Removes a fault and nothing else: the same steps as intended, or the same sides without a claim.
bool heals(const ControlSpec& control) {
  if (control.as_intended) return control.set.empty();
  if (!control.set.is_object() || control.set.empty()) return false;
  for (const auto& [key, value] : control.set.items()) {
    if ((key != "producer" && key != "consumer") || !value.is_object() || value.size() != 1 || !value.contains("claim") ||
        !value["claim"].is_null())
      return false;
  }
  return true;
}

class Search {
 public:
  Search(const catalogue::Catalogue& catalogue, const Runner& run, const MinimizeOptions& options)
      : catalogue_(catalogue), run_(run), options_(options) {}

  Minimum minimum(const CaseSpec& given) {
    CaseSpec spec = given;
    std::erase_if(spec.controls, [](const ControlSpec& c) { return !heals(c); });
    spec.links.clear();
    // As people write it: `actually` states only the differences, so removing something from a step removes it from both.
    document_ =
        catalogue::to_json(catalogue::parse_yaml(catalogue::readable_yaml(catalogue::to_document(spec)), "(case)").front());
    spell_out(spec);
    begin(spec);
    Minimum out;
    out.before = sizes_of(resolved_);
    out.first = first_;
    search(out);
    tidy();
    finish(given, out);
    return out;
  }

 private:
  struct Trial {
    json document;
    std::string words;
    ResolvedCase resolved;
    std::vector<ResolvedCase> controls;
  };

  /// Writes the model's numbers into the document, so that each can be reduced.
  void spell_out(const CaseSpec& spec) {
    if (spec.content == "golden") return;  // its numbers are those of a file
    const Model model = model_of(spec.geometry, spec.geometry_values, catalogue_);
    const auto& g = model.geometry;
    json values = {{"base", spec.geometry}, {"layers", g.layers},     {"blocks", g.blocks}, {"block_size", g.block_size},
                   {"heads", g.heads},      {"head_dim", g.head_dim}, {"kv", g.kv},         {"tokens", model.tokens}};
    if (g.v_head_dim != 0 && g.v_head_dim != g.head_dim) values["v_head_dim"] = g.v_head_dim;
    document_["geometry"] = std::move(values);
  }

  /// The document as the cases to run: itself, then its controls. Throws what parsing and resolving throw.
  Trial trial_of(const json& document, const std::string& words) const {
    Trial trial{document, words, {}, {}};
    for (const CaseSpec& spec : catalogue::parse_cases(document.dump(), "(smaller case)", &catalogue_)) {
      ResolvedCase resolved = resolve(spec, catalogue_);
      for (auto& deadline : resolved.deadline_ms) deadline = std::min(deadline, options_.deadline_ms);
      if (at_once_) resolved.settle_ms = 0;
      if (trial.resolved.id.empty())
        trial.resolved = std::move(resolved);
      else
        trial.controls.push_back(std::move(resolved));
    }
    return trial;
  }

  CaseResult run_one(const ResolvedCase& resolved) const {
    auto results = run_({resolved}, [](const CaseResult&) { return true; });
    if (results.empty()) throw Error("interrupted");
    return std::move(results.front());
  }

  void begin(const CaseSpec& spec) {
    document_["case"] = file_id(spec.id);
    Trial whole = trial_of(document_, "");
    first_ = run_one(whole.resolved);
    if (!fails(first_.outcome))
      throw Error(fmt::format("expected a case that fails, found '{}': {}{}{}", spec.id, ending(first_),
                              first_.message.empty() ? "" : ", ", first_.message));
    const CaseResult second = run_one(whole.resolved);
    if (!same_failure(first_, second)) {
      throw Error(
          fmt::format("'{}' does not end the same way each time: first {}, then {}; a flaky failure cannot be minimised, "
                      "`kvcts repro` runs it again",
                      spec.id, ending(first_), ending(second)));
    }
    // Controls that hold now must keep holding.
    std::set<std::string> holds;
    for (const ResolvedCase& control : whole.controls)
      if (run_one(control).outcome == Outcome::pass) holds.insert(control.id.substr(control.id.find('#') + 1));
    if (document_.contains("controls")) {
      json kept = json::array();
      for (const json& control : document_["controls"])
        if (holds.contains(control["name"].get<std::string>())) kept.push_back(control);
      if (kept.empty())
        document_.erase("controls");
      else
        document_["controls"] = std::move(kept);
    }
    // If the failure shows without waiting for late writes, search without waiting.
    if (whole.resolved.settle_ms > 0) {
      at_once_ = true;
      at_once_ = same_failure(first_, run_one(trial_of(document_, "").resolved));
    }
    resolved_ = trial_of(document_, "").resolved;
    seen_.insert(digest(resolved_));
  }

  /// The valid cases of a family that were not tried before.
  std::vector<Trial> trials(const ReductionFamily& family) {
    std::vector<Trial> out;
    for (Candidate& candidate : family.propose(document_)) {
      try {
        Trial trial = trial_of(candidate.document, candidate.words);
        if (memory_needed(trial.resolved) > memory_needed(resolved_)) continue;
        if (seen_.insert(digest(trial.resolved)).second) out.push_back(std::move(trial));
      } catch (const std::exception&) {
        // Not a valid case: a step without its memory, a head count that the ranks cannot share.
      }
    }
    return out;
  }

  bool controls_hold(const Trial& trial) {
    if (trial.controls.empty()) return true;
    const auto results = run_(trial.controls, [](const CaseResult& r) { return r.outcome != Outcome::pass; });
    tries_ += static_cast<int>(results.size());
    return results.size() == trial.controls.size() &&
           std::all_of(results.begin(), results.end(), [](const CaseResult& r) { return r.outcome == Outcome::pass; });
  }

  /// The first of a family that fails in the same way becomes the current case.
  bool improve(const ReductionFamily& family, Minimum& out) {
    std::vector<Trial> all = trials(family);
    for (std::size_t next = 0; next < all.size() && tries_ < options_.tries;) {
      const std::size_t most = std::min(all.size() - next, static_cast<std::size_t>(options_.tries - tries_));
      std::vector<ResolvedCase> cases;
      for (std::size_t i = 0; i < most; ++i) cases.push_back(all[next + i].resolved);
      const auto results = run_(cases, [this](const CaseResult& r) { return same_failure(first_, r); });
      if (results.empty()) throw Error("interrupted");
      tries_ += static_cast<int>(results.size());
      next += results.size();
      if (!same_failure(first_, results.back()) || !controls_hold(all[next - 1])) continue;
      Trial& accepted = all[next - 1];
      document_ = std::move(accepted.document);
      resolved_ = std::move(accepted.resolved);
      out.steps.push_back({accepted.words, tries_});
      if (options_.on_step) options_.on_step(out.steps.back());
      // Proposals that were not reached may be tried from here.
      for (std::size_t i = next; i < all.size(); ++i) seen_.erase(digest(all[i].resolved));
      return true;
    }
    return false;
  }

  void search(Minimum& out) {
    for (bool better = true; better;) {
      better = false;
      for (const ReductionFamily& family : families())
        while (tries_ < options_.tries && improve(family, out)) better = true;
      if (tries_ >= options_.tries) return;
    }
    out.finished = true;
  }

  /// Removes keys that change nothing, and names of steps that can be inferred.
  void tidy() {
    const std::string same = digest(resolved_);
    const auto take = [&](json smaller) {
      try {
        if (digest(trial_of(smaller, "").resolved) != same) return false;
        document_ = std::move(smaller);
        return true;
      } catch (const std::exception&) {
        return false;
      }
    };
    for (const char* key : {"geometry", "memory", "requests", "producer", "consumer"}) {
      if (!document_.contains(key)) continue;
      json without = document_;
      without.erase(key);
      if (take(std::move(without)) || !document_[key].is_object()) continue;
      const json members = document_[key];
      for (const auto& [name, value] : members.items()) {
        without = document_;
        without[key].erase(name);
        take(std::move(without));
      }
    }
    if (!document_.contains("steps")) return;
    json unnamed = document_;
    for (json& step : unnamed["steps"])
      if (step.is_object() && !step.empty() && step.begin().value().is_object()) step.begin().value().erase("name");
    try {
      const Trial renamed = trial_of(unnamed, "");
      if (same_failure(first_, run_one(renamed.resolved))) document_ = std::move(unnamed), resolved_ = renamed.resolved;
    } catch (const std::exception&) {
      // Another step refers to it.
    }
  }

  void finish(const CaseSpec& given, Minimum& out) {
    at_once_ = false;
    Trial trial = trial_of(document_, "");
    out.last = run_one(trial.resolved);
    if (!same_failure(first_, out.last))
      throw Error(fmt::format("the smallest case ended as {}, earlier as {}: '{}' does not end the same way each time",
                              ending(out.last), ending(first_), given.id));
    document_["notes"] =
        fmt::format("the smallest form of {} that ends as {}, found by kvcts minimize", given.id, ending(first_));
    if (!given.links.empty()) document_["links"] = given.links;
    out.spec = catalogue::parse_cases(document_.dump(), "(smaller case)", &catalogue_).front();
    // A part of the message whose numbers differ in a smaller case.
    for (Expected& e : out.spec.expected) {
      if (!e.contains.empty() && out.last.message.find(e.contains) == std::string::npos &&
          out.first.message.find(e.contains) != std::string::npos)
        e.contains.clear();
    }
    out.document = catalogue::to_document(out.spec);
    out.after = sizes_of(trial.resolved);
    out.tries = tries_;
  }

  /// "kv/producer=a" -> "minimal/kv/producer-a": ids of files have no '=' and no '#'.
  static std::string file_id(const std::string& id) {
    std::string out = id.starts_with("minimal/") ? id : "minimal/" + id;
    for (char& c : out)
      if (c == '=' || c == '#') c = '-';
    return out.substr(0, std::min<std::size_t>(out.size(), 180));
  }

  const catalogue::Catalogue& catalogue_;
  const Runner& run_;
  const MinimizeOptions& options_;
  json document_;  ///< of the smallest so far
  ResolvedCase resolved_;
  CaseResult first_;
  std::set<std::string> seen_;  ///< digests of tried cases
  bool at_once_{false};
  int tries_{0};
};

void add_extent(Sizes& out, const std::string& what, std::int64_t n) {
  const auto known = std::find_if(out.begin(), out.end(), [&](const auto& size) { return size.first == what; });
  if (known == out.end())
    out.emplace_back(what, n);
  else
    known->second = std::max(known->second, n);
}

/// The largest of each axis.
void add_extents(Sizes& out, const layout::Cache& cache) {
  for (const auto axis :
       {layout::Axis::layer, layout::Axis::head, layout::Axis::channel, layout::Axis::slot, layout::Axis::block}) {
    std::int64_t extent = 1;
    for (const auto& plane : cache.planes)
      if (plane.component == layout::Component::data) extent = std::max(extent, layout::domain(plane).hi[axis]);
    add_extent(out,
               axis == layout::Axis::layer     ? "layers"
               : axis == layout::Axis::head    ? "heads"
               : axis == layout::Axis::channel ? "channels"
               : axis == layout::Axis::slot    ? "slots of a block"
                                               : "blocks",
               extent);
  }
}

std::int64_t bytes_of(const layout::Cache& cache) {
  std::int64_t out = 0;
  for (const auto& allocation : cache.allocations) out += allocation.bytes;
  return out;
}

}  // namespace

bool same_failure(const CaseResult& a, const CaseResult& b) {
  if (a.outcome != b.outcome || a.diagnosis.fault_class != b.diagnosis.fault_class ||
      (a.wrong_bytes > 0) != (b.wrong_bytes > 0))
    return false;
  switch (a.outcome) {
    case Outcome::crash:
      return a.signal == b.signal;
    case Outcome::hang:
      return a.phase == b.phase;
    case Outcome::refused:
      return a.phase == b.phase && without_numbers(a.message) == without_numbers(b.message);
    default:
      return a.phase == b.phase && a.diagnosis.exact == b.diagnosis.exact;
  }
}

Minimum minimize(const CaseSpec& spec, const catalogue::Catalogue& catalogue, const Runner& run,
                 const MinimizeOptions& options) {
  return Search(catalogue, run, options).minimum(spec);
}

Sizes sizes_of(const ResolvedCase& c) {
  Sizes out;
  std::int64_t bytes = 0, ranks = 0, tokens = 0, blocks = 0, requests = 0;
  for (const Group& group : c.groups) {
    for (const SideCache* side : {&group.producer, &group.consumer}) {
      ranks += static_cast<std::int64_t>(side->ranks.size());
      for (const RankCache& rank : side->ranks) {
        add_extents(out, rank.truth);
        bytes += bytes_of(rank.truth);
      }
    }
    for (const Request& r : group.requests)
      ++requests, tokens += r.tokens,
          blocks += static_cast<std::int64_t>(std::max(r.producer_blocks.size(), r.consumer_blocks.size()));
  }
  for (const auto& [name, memory] : c.scenario.memories) {
    ++ranks;
    if (memory.view.cache.empty()) {
      bytes += memory.bytes;
      continue;
    }
    const layout::Cache cache = layout::cache_from_text(memory.view.cache);
    add_extents(out, cache);
    if (memory.view.of.empty()) bytes += std::max(bytes_of(cache), memory.bytes);
  }
  for (const auto& [name, request] : c.scenario.requests) {
    ++requests, tokens += request.tokens;
    std::size_t longest = 0;
    for (const auto& [memory, ids] : request.blocks) longest = std::max(longest, ids.size());
    blocks += static_cast<std::int64_t>(longest);
  }
  out.emplace_back("block ids", blocks);
  out.emplace_back("tokens", tokens);
  out.emplace_back("requests", requests);
  const bool is_scenario = c.performer == Performer::machine;
  out.emplace_back(is_scenario ? "memories" : "ranks", ranks);
  if (is_scenario) out.emplace_back("steps", static_cast<std::int64_t>(c.scenario.steps.size()));
  if (!c.copies.empty()) out.emplace_back("copies", static_cast<std::int64_t>(c.copies.size()));
  out.emplace_back("bytes", bytes);
  return out;
}

std::string to_string(const Sizes& before, const Sizes& after) {
  std::string out;
  for (const auto& [what, n] : before) {
    const auto now = std::find_if(after.begin(), after.end(), [&](const auto& size) { return size.first == what; });
    if (now == after.end() || now->second == n) continue;
    out += fmt::format("{}{} {} -> {}", out.empty() ? "" : ", ", n, what, now->second);
  }
  return out.empty() ? "nothing could be removed" : out;
}

}  // namespace kvcts::minimize
