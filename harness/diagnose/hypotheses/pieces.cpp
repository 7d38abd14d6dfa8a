// A fault in part of a step: only V, only some layers, heads or blocks, only the scales. Splits the step into what is right
// and what is not, and every generator examines the wrong piece.
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

namespace {

/// Values of one axis, as destinations.
struct Cut {
  const char* what;
  Picks StepSelection::* member;
  std::set<std::int64_t> all, wrong;
  bool divides() const { return !wrong.empty() && wrong.size() < all.size(); }
};

/// The wrong part of a step: a product of cuts, and of its components.
struct Part {
  std::vector<Cut> cuts;
  std::string components;  ///< "" = all; data | scales
};

std::string cut_text(const Cut& cut) {
  if (cut.member == &StepSelection::kv) return *cut.wrong.begin() == 0 ? "K" : "V";
  std::string out = cut.what;
  std::size_t n = 0;
  for (const std::int64_t value : cut.wrong) {
    if (n == 6) return out + ", ...";
    out += (n++ ? ", " : " ") + std::to_string(value);
  }
  return out;
}

std::string to_string(const Part& part) {
  std::string out = part.components;
  for (const Cut& cut : part.cuts) out += (out.empty() ? "" : ", ") + cut_text(cut);
  return out;
}

// The pieces of an action: those outside the part, then the part.
std::vector<Action> taken_apart(const Action& action, const Part& part) {
  std::vector<Action> out;
  Action rest = action;
  if (!part.components.empty()) {
    Action other = action;
    other.parts = part.components == "data" ? "scales" : "data";
    out.push_back(other);
    rest.parts = part.components;
  }
  for (const Cut& cut : part.cuts) {
    std::set<std::int64_t> right;
    std::set_difference(cut.all.begin(), cut.all.end(), cut.wrong.begin(), cut.wrong.end(),
                        std::inserter(right, right.end()));
    Action other = rest;
    keep_only(other, cut.member, right);
    out.push_back(other);
    keep_only(rest, cut.member, cut.wrong);
  }
  out.push_back(rest);
  return out;
}

/// What is wrong of a step, by axis: layers, kv, heads, tokens.
struct WrongElements {
  std::vector<Cut> cuts{{"layers", &StepSelection::layers, {}, {}},
                        {"kv", &StepSelection::kv, {}, {}},
                        {"heads", &StepSelection::heads, {}, {}},
                        {"tokens", &StepSelection::tokens, {}, {}}};
  std::vector<Cut> moved_away = cuts;  ///< of those found in the wrong place; not tokens
  std::set<bool> components, wrong_components;
};

// What a later reader lacks of a step.
void add_lacking(const HypothesisSearch& w, WrongElements& out, const std::function<void(std::int64_t)>& wrong_token) {
  for (const Attribution& attribution : w.attributions().all) {
    const Symbol& must = attribution.must;
    if (!attribution.wrong || (must.kind != Symbol::Kind::tag && must.kind != Symbol::Kind::number)) continue;
    const std::array<std::int64_t, 4> values{must.layer, must.kv, must.head, must.token};
    for (std::size_t i = 0; i < out.cuts.size(); ++i) {
      if (out.cuts[i].all.contains(values[i])) out.cuts[i].wrong.insert(values[i]);
    }
    if (!out.cuts[3].wrong.empty()) wrong_token(must.token);
    out.wrong_components.insert(must.component == layout::Component::data);
  }
}

// `further`: see parts_of(). No wrong components: there is nothing to divide.
WrongElements wrong_elements(HypothesisSearch& w, std::size_t step, bool further) {
  const Action& a = w.action(step);
  WrongElements out;
  auto& cuts = out.cuts;
  std::int64_t slots = 1;
  for (const auto* views : {&a.from, &a.to}) {
    for (const View& view : *views) slots = std::max(slots, slots_of(view));
  }
  const std::int64_t first = w.scenario().requests.contains(a.request) ? w.scenario().requests.at(a.request).first_token : 0;
  std::set<std::int64_t> wrong_blocks;
  const auto wrong_token = [&](std::int64_t token) { wrong_blocks.insert((token - first) / slots); };
  for (const ObservedMove& s : w.observed_moves(step)) {
    if (!s.taken) continue;
    const ViewElement& e = *s.at;
    const std::array<std::int64_t, 4> values{e.layer, e.kv, e.head, *e.token};
    const bool data = e.component == layout::Component::data, wrong = s.attribution->wrong;
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      cuts[i].all.insert(values[i]);
      if (wrong) cuts[i].wrong.insert(values[i]);
    }
    out.components.insert(data);
    if (wrong) wrong_token(*e.token), out.wrong_components.insert(data);
  }
  for (const Attribution& attribution : w.attributions().all) {
    if (!attribution.wrong || attribution.untouched || attribution.is.kind != Symbol::Kind::tag) continue;
    const std::array<std::int64_t, 3> values{attribution.is.layer, attribution.is.kv, attribution.is.head};
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (cuts[i].all.contains(values[i])) out.moved_away[i].wrong.insert(values[i]);
    }
  }
  if (out.wrong_components.empty() != further) return {};
  if (further) add_lacking(w, out, wrong_token);
  for (const std::int64_t token : cuts[3].all) {
    if (wrong_blocks.contains((token - first) / slots)) cuts[3].wrong.insert(token);  // whole blocks
  }
  for (std::size_t i = 0; i < 3; ++i) out.moved_away[i].all = cuts[i].all;
  return out;
}

// Candidate parts of a step: everything wrong as one product, then what is wrong along one axis alone, then each single
// value (if a fault damages correct neighbours, the wrong bytes do not show the part). `further`: everything is there in the
// end, but a later reader lacks some; the part is what it lacks.
std::vector<Part> parts_of(HypothesisSearch& w, std::size_t step, bool further) {
  const WrongElements wrong = wrong_elements(w, step, further);
  if (wrong.wrong_components.empty()) return {};
  const bool may_divide = w.action(step).parts == "all" && wrong.components.size() == 2;
  const std::string component = !may_divide || wrong.wrong_components.size() == 2 ? ""
                                : wrong.wrong_components.contains(true)           ? "data"
                                                                                  : "scales";
  std::vector<Part> out;
  const auto add = [&](std::vector<Cut> chosen, const std::string& which) {
    const auto same = [&](const Part& p) {
      return p.components == which &&
             std::equal(p.cuts.begin(), p.cuts.end(), chosen.begin(), chosen.end(),
                        [](const Cut& x, const Cut& y) { return x.member == y.member && x.wrong == y.wrong; });
    };
    if ((!chosen.empty() || !which.empty()) && std::ranges::none_of(out, same)) out.push_back({std::move(chosen), which});
  };
  const auto dividing = [](const std::vector<Cut>& cuts) {
    std::vector<Cut> some;
    std::ranges::copy_if(cuts, std::back_inserter(some), &Cut::divides);
    return some;
  };
  const std::vector<Cut> here = dividing(wrong.cuts), elsewhere = dividing(wrong.moved_away);
  add(here, component);
  for (const Cut& cut : here) add({cut}, "");
  add({}, component);
  add(elsewhere, "");
  for (const Cut& cut : elsewhere) add({cut}, "");
  for (std::size_t i = 0; i < 3; ++i) {
    const Cut& cut = wrong.cuts[i];
    if (cut.divides() || cut.all.size() < 2 || cut.all.size() > 4) continue;
    for (const std::int64_t value : cut.all) {
      Cut one = cut;
      one.wrong = {value};
      add({one}, "");
      if (one.all.size() == 2) continue;
      one.wrong = one.all;
      one.wrong.erase(value);
      add({one}, "");
    }
  }
  return out;
}

// One search about one part, by the generators that cost no more.
void look_at(HypothesisSearch& w, std::size_t step, const Part& part, double most, std::int64_t allowed) {
  std::vector<Action> pieces = taken_apart(w.action(step), part);
  const SearchEvidence& e = w.evidence();
  Scenario scenario = w.scenario();
  scenario.steps[step].intended = pieces.back();
  pieces.pop_back();
  SearchEvidence rest{scenario,       e.space,       e.truth,   e.observation, e.mismatch,
                      e.attributions, e.expectation, e.symbols, e.seed};
  rest.whole_only = true, rest.real = e.real;
  HypothesisSearch search(rest, w, {step, std::move(pieces)});
  search.allow_only(allowed);
  for (const HypothesisGenerator& generator : generators()) {
    if (generator.cost > most || generator.of_pieces) continue;
    search.ask(generator);
    if (search.found() || search.exhausted()) break;
  }
  for (const Hypothesis& found : search.exact())
    w.attempt(found.fault_class, found.words + ", only " + to_string(part), search.whole(found.bodies));
}

// The planes of a view that hold some values of an axis, or the others. Nothing if an axis has several digits.
std::optional<layout::Cache> restricted(const layout::Cache& cache, Axis axis, const std::set<std::int64_t>& values,
                                        bool inside) {
  layout::Cache out = cache;
  out.planes.clear();
  for (const layout::Plane& plane : cache.planes) {
    std::vector<std::size_t> modes;
    for (std::size_t m = 0; m < plane.modes.size(); ++m) {
      if (plane.modes[m].axis == axis && plane.modes[m].extent > 1) modes.push_back(m);
    }
    if (modes.size() > 1) return std::nullopt;
    const std::int64_t extent = modes.empty() ? 1 : plane.modes[modes[0]].extent;
    for (std::int64_t i = 0; i < extent; ++i) {
      const std::int64_t step = modes.empty() ? 1 : plane.modes[modes[0]].step;
      if (values.contains(plane.origin[axis] + i * step) != inside) continue;
      layout::Plane one = plane;
      if (!modes.empty()) {
        one.offset += i * plane.modes[modes[0]].stride;
        one.origin[axis] += i * step;
        one.modes.erase(one.modes.begin() + static_cast<std::ptrdiff_t>(modes[0]));
      }
      out.planes.push_back(std::move(one));
    }
  }
  return out.planes.empty() ? std::nullopt : std::optional(std::move(out));
}

// A read through two views: one has the piece.
void look_at_view(HypothesisSearch& w, std::size_t step, const Part& part) {
  const Action& a = w.action(step);
  if (part.cuts.size() != 1 || !part.components.empty() || a.from.size() != 1) return;
  const Cut& cut = part.cuts.front();
  const Axis axis = cut.member == &StepSelection::layers ? Axis::layer
                    : cut.member == &StepSelection::kv   ? Axis::kv
                                                         : Axis::head;
  if (cut.member == &StepSelection::tokens) return;
  const layout::Cache cache = cache_of(a.from[0]);
  const auto rest = restricted(cache, axis, cut.wrong, false);
  if (!rest) return;
  std::vector<std::int64_t> others;
  for (const auto& plane : cache.planes) {
    for (const auto& mode : plane.modes) others.push_back(mode.stride);
  }
  for (const auto& variants :
       {recoded(cache), permuted(cache, false, true), renamed(cache), reblocked(cache), restrided(cache, others),
        resized(cache), repitched(cache), swizzled(cache), rescaled(cache)}) {
    for (const Variant& variant : variants) {
      const auto taken = restricted(variant.cache, axis, cut.wrong, true);
      if (!taken) continue;
      Action body = a;
      body.from.push_back(body.from[0]);
      body.from[0].cache = layout::to_text(*rest), body.from[1].cache = layout::to_text(*taken);
      w.attempt(variant.fault_class, symbol_of(w, step) + ": read with " + variant.words + ", only " + to_string(part), step,
                body);
    }
    if (w.found()) return;
  }
}

}  // namespace

// What is wrong is a product of layers, K or V, heads and blocks: the plainest thing that can have happened to it.
void generate_plain_pieces(HypothesisSearch& w) {
  constexpr double plain = 1.7;
  constexpr std::int64_t each = 400;
  for (std::size_t i = 0; i < w.scenario().steps.size() && !w.found(); ++i) {
    const Operation op = w.action(i).op;
    if (op != Operation::move && op != Operation::write && op != Operation::get && op != Operation::read) continue;
    const std::vector<Part> parts = parts_of(w, i, false);
    if (parts.empty() || (parts.front().cuts.empty() && parts.front().components.empty())) continue;
    try {
      look_at(w, i, parts.front(), plain, each);
    } catch (const std::exception&) {
      continue;  // no one can have meant these pieces
    }
  }
}

void generate_pieces(HypothesisSearch& w) {
  for (const bool further : {false, true}) {
    for (std::size_t i = 0; i < w.scenario().steps.size(); ++i) {
      const Action& a = w.action(i);
      if (a.op != Operation::move && a.op != Operation::write && a.op != Operation::get &&
          (a.op != Operation::read || further))
        continue;
      for (const Part& part : parts_of(w, i, further)) {
        if (w.work().over()) return;
        try {
          constexpr double most = 3.3;  // no unlikely map of a piece: those fit much
          constexpr std::int64_t each = 1500;
          if (a.op == Operation::read) look_at_view(w, i, part);
          if (!w.found()) look_at(w, i, part, most, each);
        } catch (const std::exception&) {
          continue;  // no one can have meant these pieces
        }
        if (w.found()) return;
      }
    }
  }
}

}  // namespace kvcts::scenario
