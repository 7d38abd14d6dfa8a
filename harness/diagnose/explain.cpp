#include "diagnose/explain.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "case/text.hpp"
#include "diagnose/declared.hpp"
#include "diagnose/hypotheses/tools.hpp"
#include "diagnose/quantity.hpp"
#include "diagnose/values.hpp"

namespace kvcts::scenario {

namespace {

// A number that is another one cut to 32 bits, or negative.
bool wrapped(const nlohmann::json& expected, const nlohmann::json& found) {
  if (!expected.is_number_integer() || !found.is_number_integer() || expected == found) return false;
  if (found.is_number_unsigned() && found.get<std::uint64_t>() >= std::uint64_t{1} << 63) return true;
  if (expected.is_number_unsigned() && expected.get<std::uint64_t>() >= std::uint64_t{1} << 63) return false;
  const auto e = expected.get<std::int64_t>(), f = found.get<std::int64_t>();
  return (f < 0 && e >= 0) || (e > f && e >> 31 != 0 && (e - f) % (std::int64_t{1} << 32) == 0);
}

// A message with a number that can only be a negative one read as unsigned: 20 digits mean 2^63 and more.
bool shows_underflow(const std::string& text) {
  int digits = 0;
  for (const char c : text + " ") {
    if (c >= '0' && c <= '9') {
      ++digits;
      continue;
    }
    if (digits == 20) return true;
    digits = 0;
  }
  return false;
}

Explanation certain(FaultClass fault_class, const std::string& words) {
  Explanation out;
  out.fault_class = fault_class, out.words = words;
  out.exact = true, out.share = 1;
  return out;
}

// A comparison that should have held and did not, or the reverse: the compared quantity names the class.
Explanation from_requirements(const SearchEvidence& e) {
  for (const nlohmann::json& seen : e.observation.events) {
    if (!seen.contains("good") || seen["good"]) continue;
    for (const nlohmann::json& meant : e.truth.events) {
      if (meant.value("step", "") != seen.value("step", "") || !meant.value("good", false)) continue;
      if (wrapped(seen["expects"], seen["found"]) || wrapped(seen["found"], seen["expects"])) {
        return certain(FaultClass::int32_overflow,
                       "a number that does not fit: expected " + seen["expects"].dump() + ", found " + seen["found"].dump());
      }
    }
    bool meant_good = false;
    for (const Step& step : e.intended.steps) {
      if (step.name != seen.value("step", "")) continue;
      const Action& a = step.intended;
      meant_good = (a.op == Operation::require && a.expects == a.found && a.needs.empty()) ||
                   (a.op == Operation::unpack && a.expects.size() == a.found.size());
    }
    if (!meant_good) continue;
    if (wrapped(seen["expects"], seen["found"]) || wrapped(seen["found"], seen["expects"])) {
      return certain(FaultClass::int32_overflow,
                     "a number that does not fit: expected " + seen["expects"].dump() + ", found " + seen["found"].dump());
    }
    const FaultClass fault_class = class_of_quantity(seen.value("about", ""));
    const std::string words =
        e.observation.ending.step == seen.value("step", "") && !e.observation.ending.text.empty()
            ? e.observation.ending.text
            : seen.value("about", "") + ": expected " + seen["expects"].dump() + ", found " + seen["found"].dump();
    if (fault_class != FaultClass::none) return certain(fault_class, words);
  }
  if (shows_underflow(e.observation.ending.text)) return certain(FaultClass::int32_overflow, e.observation.ending.text);
  // It failed to refuse.
  if (e.truth.ending.kind == "refused" && e.observation.ending.kind != "refused") {
    FaultClass fault_class = class_of_quantity(e.truth.ending.about);
    for (const Step& step : e.intended.steps) {
      if (step.name == e.truth.ending.step && !step.intended.needs.empty()) fault_class = FaultClass::capability_mismatch;
    }
    if (fault_class == FaultClass::none) fault_class = FaultClass::capability_mismatch;
    if (wrapped(e.truth.ending.expects, e.truth.ending.found) || wrapped(e.truth.ending.found, e.truth.ending.expects))
      fault_class = FaultClass::int32_overflow;
    return certain(fault_class, "not refused: " + e.truth.ending.text);
  }
  return {};
}

// What the reports say by themselves.
Explanation from_reports(const SearchEvidence& e) {
  if (!e.mismatch.reports_differ || e.mismatch.ending_differs) return {};
  const auto meant = reports(e.truth.events), seen = reports(e.observation.events);
  const auto status = [](const nlohmann::json& report) {
    return report.contains("fields") ? report["fields"].value("status", nlohmann::json("done")) : nlohmann::json("done");
  };
  const auto count = [](const std::vector<nlohmann::json>& all, const char* op) {
    return std::ranges::count_if(all, [&](const auto& r) { return r["op"] == op; });
  };
  for (const auto& m : meant) {
    for (const auto& s : seen) {
      if (m["op"] != "complete" || s["op"] != "complete" || m["request"] != s["request"] || !m.contains("fields") ||
          !s.contains("fields"))
        continue;
      for (const auto& [field, value] : m["fields"].items()) {
        if (s["fields"].contains(field) && wrapped(value, s["fields"][field])) {
          return certain(FaultClass::int32_overflow,
                         field + " was reported as " + s["fields"][field].dump() + " instead of " + value.dump());
        }
      }
    }
  }
  const auto failed = [](const nlohmann::json& word) { return word == "failed" || word == "aborted" || word == "error"; };
  const bool done = std::ranges::any_of(seen, [&](const auto& r) { return r["op"] == "complete" && !failed(status(r)); });
  if (count(meant, "fail") > count(seen, "fail") && done)
    return certain(FaultClass::false_success, "a failure was reported as done");
  if (count(meant, "fail") > count(seen, "fail")) return certain(FaultClass::silently_skipped, "a failure was not reported");
  if (count(meant, "get") > 0 && std::ranges::any_of(meant, [](const auto& r) { return r.contains("hit"); }) &&
      count(meant, "complete") == count(seen, "complete") &&
      std::ranges::none_of(meant, [](const auto& r) { return r["op"] == "complete"; })) {
    return {};  // keys: a search finds out which
  }
  Explanation out = certain(FaultClass::false_success, "the reports do not match what happened");
  out.only_reports = true;
  return out;
}

std::set<std::size_t> skipped(const Hypothesis& h) {
  std::set<std::size_t> out;
  for (std::size_t i = 0; i < h.bodies.size(); ++i)
    if (h.bodies[i].empty()) out.insert(i);
  return out;
}

/// Whether what fits (cheapest first) only says what was left undone when the sequence stopped.
bool consequence(const std::vector<Hypothesis>& fit, const HypothesisSearch& w) {
  static const std::set<FaultClass> of_an_end{FaultClass::silently_skipped, FaultClass::false_success, FaultClass::truncated,
                                              FaultClass::read_before_ready, FaultClass::none};
  const Hypothesis& first = fit.front();
  const std::set<std::size_t> missing = skipped(first);
  // A memory to which nothing at all came is more than an end in the middle.
  if (first.fault_class == FaultClass::layer_missing && (missing.empty() || alone_to_its_memory(w, *missing.begin())))
    return false;
  if (of_an_end.contains(first.fault_class) || !missing.empty()) return true;
  return w.attributions().untouched == w.attributions().wrong && std::ranges::any_of(fit, [&](const Hypothesis& h) {
           return h.cost <= first.cost + tie_margin && of_an_end.contains(h.fault_class);
         });
}

// How it ended, when nothing else says more.
Explanation from_ending(const SearchEvidence& e) {
  const SequenceEnding& end = e.observation.ending;
  if (end.kind == "completed" || end.kind == e.truth.ending.kind) return {};
  for (const nlohmann::json& event : e.observation.events) {
    if (event.contains("violation")) return {};  // an address: hypotheses say whose
  }
  const auto so = [&](FaultClass fault_class) {
    Explanation out = certain(fault_class, end.text);
    out.ended = true;
    return out;
  };
  if (end.kind == "hung") return so(end.in == "kernel" ? FaultClass::hang_kernel : FaultClass::hang_transfer);
  FaultClass fault_class = class_of_quantity(end.about);
  for (const nlohmann::json& event : e.observation.events) {
    if (event.value("step", "") == end.step && event.contains("needs") && !event["needs"].empty())
      fault_class = FaultClass::capability_mismatch;
  }
  if (fault_class != FaultClass::none) return so(fault_class);
  return so(end.kind == "raised" ? FaultClass::raised : FaultClass::crash);
}

// Wrong bytes that no transformation of the map makes, but that are all of one kind.
Explanation from_kinds(const SearchEvidence& e) {
  bool only_scales = true, constant = true;
  std::int64_t wrong = 0, of_others = 0;
  std::optional<std::uint8_t> value;
  for (const Attribution& attribution : e.attributions.all) {
    if (!attribution.wrong) continue;
    ++wrong;
    of_others += attribution.is.kind == Symbol::Kind::tag && attribution.is.component == attribution.must.component;
    only_scales =
        only_scales && attribution.must.component != layout::Component::data && attribution.must.kind == Symbol::Kind::tag;
    constant = constant && attribution.is.kind == Symbol::Kind::constant;
    if (attribution.is.kind == Symbol::Kind::constant && !value) value = attribution.is.byte;
  }
  if (wrong == 0) return {};
  const auto recognised = [&](FaultClass fault_class, const std::string& words, std::int64_t such) {
    Explanation out =
        certain(fault_class, fmt::format("{} ({} of {} wrong bytes)", words, text::thousands(such), text::thousands(wrong)));
    out.recognised = true;
    out.doubts.cut = true;  // nothing was played
    return out;
  };
  if (only_scales && 2 * of_others >= wrong)
    return recognised(FaultClass::scale_misplaced, "the scales are those of other data", of_others);
  if (only_scales) return recognised(FaultClass::scale_lost, "the scales are not those of the data", wrong);
  if (constant && value && *value != 0)
    return recognised(FaultClass::scale_lost, "content is saturated: codes are all alike", wrong);
  return {};
}

Explanation from_values(const SearchEvidence& e) {
  std::map<int, layout::Dtype> dtypes;
  for (const auto& [name, memory] : e.intended.memories) {
    if (memory.view.cache.empty()) continue;
    const layout::Cache cache = cache_of(memory.view);
    View whole = memory.view;
    whole.of = name;
    const auto places = e.space.addresses(whole, cache);
    for (const auto& plane : cache.planes) {
      if (plane.component == layout::Component::data)
        dtypes.emplace(places.at(static_cast<std::size_t>(plane.allocation)).buffer, plane.dtype);
    }
  }
  diagnose::ChangedCodes codes;
  for (int pass = 0; pass < static_cast<int>(e.observation.bytes.size()); ++pass) {
    std::set<std::pair<std::size_t, int>> seen;
    for (const WrongRange& range : e.mismatch.ranges) {
      const Buffer& b = e.space.buffers()[static_cast<std::size_t>(range.buffer)];
      const Checkpoint* check = e.expectation.at(e.observation.checks[range.check]);
      const auto dtype = dtypes.find(range.buffer);
      if (!check || b.sparse || dtype == dtypes.end() || range.begin < 0 || range.end > b.bytes) return {};
      if (!seen.emplace(range.check, range.buffer).second) continue;
      const auto inside = [&](const std::vector<std::uint8_t>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(b.guard_below), static_cast<std::size_t>(b.bytes));
      };
      codes.look(dtype->second, inside(e.expectation.dense(*check, range.buffer, pass)),
                 inside(e.observation.bytes[static_cast<std::size_t>(pass)][range.check].dense(range.buffer)),
                 [&](std::size_t at) {
                   const auto id = e.expectation.id(*check, range.buffer, static_cast<std::int64_t>(at), e.symbols);
                   return e.symbols.at(id).kind == Symbol::Kind::tag;
                 });
    }
  }
  const auto cause = codes.cause();
  if (!cause) return {};
  Explanation out = certain(cause->fault_class, cause->words);
  out.doubts.unexplained_part = diagnose::right_ones(*cause);
  return out;
}

// Copies that leave their memory as intended: nothing else need be wrong.
Explanation from_bounds(const SearchEvidence& e, HypothesisSearch& search) {
  for (const nlohmann::json& meant : e.truth.events) {
    if (!meant.contains("leaves") || !search.as_it_stands()) continue;
    return certain(meant.value("before", false) ? FaultClass::wrong_stride : FaultClass::over_read,
                   "'" + meant.value("step", "") + "' leaves its memory: " + meant.value("leaves", ""));
  }
  return {};
}

// A step that did not happen explains every byte, and what was reported explains why it did not.
Explanation from_consequence(const Explanation& reported, HypothesisSearch& search) {
  if (reported.fault_class == FaultClass::none) return {};
  for (const auto& partial : search.partial()) {
    const Hypothesis& h = partial.hypothesis;
    if (!partial.all_bytes || skipped(h).empty() || !search.in_every_pass(h.bodies)) continue;
    Explanation out = certain(reported.fault_class, reported.words + ", so that " + h.words);
    out.tried = search.tried();
    return out;
  }
  return {};
}

}  // namespace

Scenario without_faults(const Scenario& scenario) {
  Scenario out = scenario;
  for (Step& step : out.steps) {
    step.as_intended = true;
    step.actual.clear();
  }
  return out;
}

Diagnosis as_diagnosis(const Explanation& why, std::int64_t wrong_bytes) {
  std::vector<Cause> causes{{.fault_class = why.fault_class, .words = why.words}};
  causes.insert(causes.end(), why.others.begin(), why.others.end());
  return named(std::move(causes), why.recognised || why.ended ? "" : explains_all(wrong_bytes), why.doubts);
}

namespace {

void trace_generator(std::string& trace, const HypothesisGenerator& generator, const HypothesisSearch& search,
                     std::int64_t before, std::size_t fitting) {
  const auto& exact = search.exact();
  if (search.tried() == before && exact.size() == fitting) return;
  trace += fmt::format("{:.2f} {}: {} tried\n", generator.cost, generator.name, search.tried() - before);
  for (std::size_t i = fitting; i < exact.size(); ++i)
    trace += fmt::format("  fits at {:.2f}, {}: {}\n", exact[i].cost, name(exact[i].fault_class), exact[i].words);
}

/// Causes that fit, cheapest first: the first is named, the first of each class is reported.
void name_fitting(Explanation& out, std::vector<Hypothesis> fit, const HypothesisSearch& search, const Explanation& ended) {
  constexpr std::size_t others_reported = 8;
  std::ranges::stable_sort(fit, {}, &Hypothesis::cost);
  const Hypothesis& first = fit.front();
  out.fault_class = first.fault_class, out.words = first.words;
  out.exact = true, out.share = 1;
  std::set<FaultClass> listed{first.fault_class};
  for (const Hypothesis& other : fit) {
    const bool another = listed.insert(other.fault_class).second,
               competing = another && other.cost <= first.cost + tie_margin;
    const auto same = [&](const Cause& c) { return c.fault_class == other.fault_class && c.words == other.words; };
    if (same({first.fault_class, first.words}) || std::ranges::any_of(out.others, same)) continue;
    if (another || out.others.size() < others_reported) out.others.push_back({other.fault_class, other.words, 1, competing});
  }
  out.tried = search.tried();
  out.doubts.cut = search.cut();
  out.doubts.undeclared = undeclared_numbers(search.evidence().intended, first.bodies);
  if (ended.fault_class != FaultClass::none && consequence(fit, search)) {
    out.others = {{first.fault_class, first.words, 1, false, DiagnosedBy::events}};
    out.fault_class = ended.fault_class, out.words = ended.words;
    out.ended = true;
    return;
  }
  for (const Hypothesis& other : search.uncounted())
    if (listed.insert(other.fault_class).second)
      out.others.push_back({other.fault_class, other.words, 1, false, DiagnosedBy::count});
}

void ask_generators(HypothesisSearch& search, std::string& trace) {
  const SearchEvidence& evidence = search.evidence();
  // Trials of other causes, once there is one; fewer the more bytes each plays.
  constexpr std::int64_t for_others = 1500, of_bytes = 1 << 16;
  std::int64_t bytes = 0;
  for (const Buffer& b : evidence.space.buffers())
    bytes += b.sparse && evidence.whole_only
                 ? static_cast<std::int64_t>(evidence.observation.bytes.front().back().pages(b.ordinal).size()) * Bytes::page
                 : b.bytes;
  const auto cheapest = [&] { return std::ranges::min(search.exact(), {}, &Hypothesis::cost).cost; };
  for (const HypothesisGenerator& generator : generators()) {
    const bool first = search.exact().empty();
    if (!first && generator.of_pieces) continue;  // of a whole step it says the same in more words
    if (!first && evidence.whole_only && generator.cost > cheapest() + tie_margin) break;  // no rival costs as much
    const std::int64_t before = search.tried();
    const std::size_t fitting = search.exact().size();
    search.ask(generator);
    trace_generator(trace, generator, search, before, fitting);
    if (first && search.found()) search.allow_only(for_others / (1 + bytes / of_bytes));
    if (search.exhausted()) break;
  }
  for (const auto& partial : search.partial())
    trace += fmt::format("{:.0f} % of the wrong bytes, {}: {}\n", 100 * partial.share, name(partial.hypothesis.fault_class),
                         partial.hypothesis.words);
}

Explanation searched(SearchEvidence& evidence, std::string& trace) {
  const auto names = [](const Explanation& e) { return e.fault_class != FaultClass::none; };
  Explanation out = from_requirements(evidence);
  if (names(out)) return out;
  const Explanation reported = from_reports(evidence);
  if (names(reported) && evidence.mismatch.wrong_bytes == 0) return reported;
  const Explanation ended = from_ending(evidence);
  if (names(ended) && evidence.mismatch.wrong_bytes == 0) return ended;

  HypothesisSearch search(evidence);
  if (names(ended) && search.as_it_ended()) return ended;
  if (const Explanation bounds = from_bounds(evidence, search); names(bounds)) return bounds;
  ask_generators(search, trace);
  if (const auto& fit = search.exact().empty() ? search.uncounted() : search.exact(); !fit.empty()) {
    name_fitting(out, fit, search, ended);
    out.doubts.other_count = search.exact().empty();
    return out;
  }
  if (names(ended)) return ended;
  if (const Explanation kinds = from_kinds(evidence); names(kinds)) return kinds;
  if (const Explanation values = from_values(evidence); names(values)) return values;
  if (const Explanation follows = from_consequence(reported, search); follows.exact) return follows;
  out.tried = search.tried();
  if (search.partial().empty()) return out;
  const auto& best = *std::ranges::max_element(search.partial(), {}, &HypothesisSearch::Partial::share);
  if (best.share < least_share) return out;
  out.words = best.hypothesis.words;
  out.share = best.share, out.all_bytes = best.all_bytes;
  out.others.push_back({best.hypothesis.fault_class, best.hypothesis.words, best.share});
  return out;
}

}  // namespace

Explanation explain(SearchEvidence evidence) {
  std::string trace;
  Explanation out = searched(evidence, trace);
  out.trace = std::move(trace);
  return out;
}

}  // namespace kvcts::scenario
