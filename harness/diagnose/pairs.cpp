// Two changes of one transfer at once. Neither explains a byte alone, so no search gets from one to the other. But the
// origin of each byte is known (facts), and addresses can be computed without playing anything: this tests every layout that
// either end may have been taken for, with every other one or with one list of what went elsewhere, against all facts.
#include <algorithm>
#include <array>
#include <map>

#include "case/outcome.hpp"
#include "diagnose/families/tools.hpp"

namespace kvcts::script {

using layout::Axis;

namespace {

struct End {
  const View* view{nullptr};
  std::vector<std::int64_t> ids, positions;
};

/// One way to read an end.
struct Taken {
  FaultClass fault_class{};
  std::string words;
  View view;
  bool declared{false};
};

std::vector<Taken> ways(const View& view) {
  std::vector<Taken> out{{FaultClass::none, "", view, true}};
  const layout::Cache cache = cache_of(view);
  std::vector<std::int64_t> others;
  for (const auto& plane : cache.planes) {
    for (const auto& mode : plane.modes) {
      if (mode.axis == Axis::block || mode.axis == Axis::layer) others.push_back(mode.stride);
    }
  }
  for (const auto& variants :
       {permuted(cache, false, true), renamed(cache), reblocked(cache), restrided(cache, others), resized(cache)}) {
    for (const Variant& variant : variants) {
      out.push_back({variant.fault_class, variant.words, view, false});
      out.back().view.cache = layout::to_text(variant.cache);
    }
  }
  return out;
}

/// A list along one axis: which coordinate went where.
struct Route {
  const char* what;
  FaultClass fault_class;
  Picks Selection::* picks;
  std::int64_t Element::* member;  ///< nullptr: tokens (whole blocks of them)
};
const std::array<Route, 3> routes{{{"layers", FaultClass::layer_misrouted, &Selection::layers, &Element::layer},
                                   {"heads", FaultClass::head_shard_mapping, &Selection::heads, &Element::head},
                                   {"kv", FaultClass::region_aliasing, &Selection::kv, &Element::kv}}};

class Pairs {
 public:
  /// `fetch`: the get of what `step` puts.
  Pairs(Workshop& w, std::size_t step, std::optional<std::size_t> fetch)
      : w_(w), step_(step), fetch_(fetch), action_(w.action(step)), request_(*w.request_at(step, action_.request)) {
    from_ = end(action_.from[0], action_.from_blocks);
    if (action_.op == Operation::move) to_ = end(action_.to[0], action_.to_blocks);
    if (fetch) to_ = end(w.action(*fetch).to[0], w.action(*fetch).to_blocks);
  }

  void propose() {
    const std::vector<Taken> sources = ways(*from_.view);
    const std::vector<Taken> destinations =
        to_.view ? ways(*to_.view) : std::vector<Taken>{{FaultClass::none, "", {}, true}};
    std::vector<Aim> aims;
    for (const Taken& source : sources)
      aims.emplace_back(w_.locators().of(source.view), from_.ids, from_.positions, request_.first_token);
    // Source and destination through any layout: x = what the destination's byte is, then where x is read.
    for (const Taken& destination : destinations) {
      const auto asked = elements(destination);
      if (asked.empty()) {
        if (!destination.declared) with_route_to(destination);
        continue;
      }
      for (std::size_t s = 0; s < sources.size() && !w_.spent(); ++s) {
        if (sources[s].declared && destination.declared) continue;
        const bool one = sources[s].declared || destination.declared;
        if (!one && agrees(aims[s], asked)) attempt(sources[s], destination, {}, {});
        if (one) with_route(sources[s], destination, aims[s], asked);
      }
    }
    two_routes(aims[0], elements(destinations[0]));
  }

 private:
  struct Asked {
    Element x;
    Place from;
  };

  End end(const View& view, const std::optional<std::vector<std::int64_t>>& instead) const {
    return {&view, ids_in(request_, view, instead), positions_in(request_, view)};
  }

  // Whom each fact's destination byte stands for under this reading of the destination.
  std::vector<Asked> elements(const Taken& destination) {
    std::vector<Asked> out;
    std::optional<Lens> lens;
    if (to_.view && !(fetch_ && destination.declared))
      lens.emplace(destination.view, w_.evidence().arena, to_.ids, to_.positions, request_.first_token);
    if (lens && !lens->nested()) return {};
    const std::vector<Sighting>& sightings = w_.sightings(step_);
    for (const Fact& fact : w_.facts(step_)) {
      std::optional<Element> x;
      if (lens) {
        x = lens->at(fact.to);
      } else {
        const auto seen = std::find_if(sightings.begin(), sightings.end(), [&](const Sighting& s) {
          return s.clue->backing == fact.to.backing && s.clue->offset == fact.to.offset;
        });
        if (seen != sightings.end()) x = seen->at;
      }
      if (x && x->token) out.push_back({*x, fact.from});
    }
    return out.size() * 10 >= w_.facts(step_).size() * 9 ? out : std::vector<Asked>{};
  }

  static bool agrees(const Aim& aim, const std::vector<Asked>& asked) {
    return std::all_of(asked.begin(), asked.end(), [&](const Asked& a) { return aim.at(a.x) == a.from; });
  }

  std::vector<std::int64_t> range_of(std::int64_t Element::* member) const {
    std::int64_t hi = 0;
    const Axis axis = member == &Element::layer ? Axis::layer : member == &Element::head ? Axis::head : Axis::kv;
    for (const auto& plane : cache_of(*from_.view).planes) hi = std::max(hi, layout::domain(plane).hi[axis]);
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < hi; ++i) out.push_back(i);
    return out;
  }

  // What each coordinate of an axis must have come from for all facts to hold; nothing if no list does it, or only the plain
  // one.
  std::optional<std::map<std::int64_t, std::int64_t>> route(const Aim& aim, const std::vector<Asked>& asked,
                                                            std::int64_t Element::* member) const {
    const std::vector<std::int64_t> range = range_of(member);
    std::map<std::int64_t, std::vector<std::int64_t>> left;
    for (const Asked& a : asked) {
      auto [at, fresh] = left.try_emplace(a.x.*member, range);
      Element x = a.x;
      std::erase_if(at->second, [&](std::int64_t value) { return x.*member = value, aim.at(x) != a.from; });
      if (at->second.empty()) return std::nullopt;
    }
    return chosen(left);
  }
  static std::optional<std::map<std::int64_t, std::int64_t>> chosen(
      const std::map<std::int64_t, std::vector<std::int64_t>>& left) {
    std::map<std::int64_t, std::int64_t> out;
    bool plain = true;
    for (const auto& [value, sources] : left) {
      const bool itself = std::find(sources.begin(), sources.end(), value) != sources.end();
      out[value] = itself ? value : sources.front();
      plain = plain && itself;
    }
    return plain ? std::nullopt : std::optional(out);
  }
  // The same for block ids at the source, by position.
  std::optional<std::vector<std::int64_t>> ids(const Aim& aim, const std::vector<Asked>& asked) const {
    std::int64_t blocks = 0;
    for (const auto& plane : cache_of(*from_.view).planes) blocks = std::max(blocks, layout::domain(plane).hi[Axis::block]);
    std::vector<std::int64_t> range;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(blocks, 64); ++i) range.push_back(i);
    std::map<std::int64_t, std::vector<std::int64_t>> left;
    for (const Asked& a : asked) {
      auto [at, fresh] = left.try_emplace((*a.x.token - request_.first_token) / aim.slots(), range);
      std::erase_if(at->second, [&](std::int64_t block) { return aim.at(a.x, block) != a.from; });
      if (at->second.empty()) return std::nullopt;
    }
    std::vector<std::int64_t> out = from_.ids;
    for (const auto& [position, blocks_left] : left) {
      if (position < 0 || position >= static_cast<std::int64_t>(out.size())) return std::nullopt;
      std::int64_t& id = out[static_cast<std::size_t>(position)];
      if (std::find(blocks_left.begin(), blocks_left.end(), id) == blocks_left.end()) id = blocks_left.front();
    }
    return out == from_.ids ? std::nullopt : std::optional(out);
  }

  // One end misread, and one list.
  void with_route(const Taken& source, const Taken& destination, const Aim& aim, const std::vector<Asked>& asked) {
    for (const Route& r : routes) {
      if (const auto list = route(aim, asked, r.member)) attempt(source, destination, {{&r, *list}}, {});
    }
    if (const auto list = ids(aim, asked)) attempt(source, destination, {}, list);
  }

  // Bytes do not identify elements that overlap at the destination: start from the source, which is as declared.
  void with_route_to(const Taken& destination) {
    const Lens source(*from_.view, w_.evidence().arena, from_.ids, from_.positions, request_.first_token);
    const Aim aim(w_.locators().of(destination.view), to_.ids, to_.positions, request_.first_token);
    for (const Route& r : routes) {
      const std::vector<std::int64_t> range = range_of(r.member);
      std::map<std::int64_t, std::int64_t> list;
      bool good = true, plain = true;
      for (const Fact& fact : w_.facts(step_)) {
        const auto x = source.at(fact.from);
        if (!x || !x->token) continue;
        Element y = *x;
        const auto value =
            std::find_if(range.begin(), range.end(), [&](std::int64_t v) { return y.*r.member = v, aim.at(y) == fact.to; });
        good = value != range.end() && list.try_emplace(*value, (*x).*r.member).first->second == (*x).*r.member;
        if (!good) break;
        plain = plain && *value == (*x).*r.member;
      }
      if (good && !plain) attempt({FaultClass::none, "", *from_.view, true}, destination, {{&r, list}}, {});
    }
  }

  // Two lists.
  void two_routes(const Aim& aim, const std::vector<Asked>& asked) {
    for (std::size_t i = 0; i < routes.size(); ++i) {
      const std::vector<std::int64_t> mine = range_of(routes[i].member);
      for (std::size_t k = i + 1; k <= routes.size(); ++k) {
        // Each fact allows pairs of sources; a list is what all facts of a coordinate have in common.
        std::map<std::int64_t, std::set<std::int64_t>> first;
        std::map<std::int64_t, std::set<std::int64_t>> second;
        const bool blocks = k == routes.size();
        std::vector<std::int64_t> theirs;
        if (blocks) {
          for (std::int64_t b = 0; b < 64; ++b) theirs.push_back(b);
        } else {
          theirs = range_of(routes[k].member);
        }
        bool good = !asked.empty();
        for (const Asked& a : asked) {
          std::set<std::int64_t> x, y;
          for (const std::int64_t u : mine) {
            for (const std::int64_t v : theirs) {
              Element e = a.x;
              e.*routes[i].member = u;
              if (!blocks) e.*routes[k].member = v;
              if ((blocks ? aim.at(e, v) : aim.at(e)) == a.from) x.insert(u), y.insert(v);
            }
          }
          const auto keep = [&](std::map<std::int64_t, std::set<std::int64_t>>& left, std::int64_t at,
                                const std::set<std::int64_t>& here) {
            const auto [known, fresh] = left.try_emplace(at, here);
            if (!fresh) std::erase_if(known->second, [&](std::int64_t value) { return !here.contains(value); });
            good = good && !known->second.empty();
          };
          keep(first, a.x.*routes[i].member, x);
          keep(second, blocks ? (*a.x.token - request_.first_token) / aim.slots() : a.x.*routes[k].member, y);
          if (!good) break;
        }
        if (!good) continue;
        const auto list_of = [](const std::map<std::int64_t, std::set<std::int64_t>>& left) {
          std::map<std::int64_t, std::vector<std::int64_t>> out;
          for (const auto& [at, values] : left) out[at].assign(values.begin(), values.end());
          return out;
        };
        const auto one = chosen(list_of(first));
        if (!one) continue;
        const Taken as_declared{FaultClass::none, "", *from_.view, true},
            there{FaultClass::none, "", action_.op == Operation::move ? *to_.view : View{}, true};
        if (blocks) {
          std::vector<std::int64_t> out = from_.ids;
          for (const auto& [position, values] : second) {
            if (position < 0 || position >= static_cast<std::int64_t>(out.size())) continue;
            std::int64_t& id = out[static_cast<std::size_t>(position)];
            if (!values.contains(id)) id = *values.begin();
          }
          if (out != from_.ids) attempt(as_declared, there, {{&routes[i], *one}}, out);
        } else if (const auto two = chosen(list_of(second))) {
          attempt(as_declared, there, {{&routes[i], *one}, {&routes[k], *two}}, {});
        }
      }
    }
  }

  void attempt(const Taken& source, const Taken& destination,
               const std::vector<std::pair<const Route*, std::map<std::int64_t, std::int64_t>>>& lists,
               const std::optional<std::vector<std::int64_t>>& blocks) {
    Action body = action_;
    std::vector<std::pair<FaultClass, std::string>> parts;  // class, words
    for (const auto& [r, list] : lists) {
      Picks &from = body.pick.*r->picks, &to = body.pick_to.*r->picks;
      from.emplace(), to.emplace();
      for (const auto& [destination_value, source_value] : list)
        to->push_back(destination_value), from->push_back(source_value);
      FaultClass fault_class = r->fault_class;
      if (r->picks == &Selection::kv && list.size() == 2 && list.begin()->second == 1 &&
          std::next(list.begin())->second == 0)
        fault_class = FaultClass::kv_split_vs_interleaved;
      parts.emplace_back(fault_class, std::string(r->what) + " " + list_words(*from) + " went to " + list_words(*to));
      if (body.op == Operation::read) to.reset();
    }
    if (blocks) {
      body.from_blocks = *blocks;
      parts.emplace_back(FaultClass::wrong_block_id,
                         "blocks " + list_words(*blocks) + " instead of " + list_words(from_.ids));
    }
    if (action_.op == Operation::put && !lists.empty()) return;  // an object has only its own order
    Bodies bodies = w_.bodies();
    if (!source.declared) body.from[0] = source.view, parts.emplace_back(source.fault_class, "read with " + source.words);
    if (!destination.declared)
      (fetch_ ? bodies[*fetch_][0] : body).to[0] = destination.view,
                                     parts.emplace_back(destination.fault_class, "written with " + destination.words);
    if (parts.size() != 2) return;
    bodies[step_] = {body};
    const std::string words = parts[0].second + " in " + name_of(w_, step_) + "; and " + parts[1].second +
                              (parts[1].first == parts[0].first ? "" : " (" + std::string(name(parts[1].first)) + ")");
    w_.attempt(parts[0].first, words, std::move(bodies));
  }

  Workshop& w_;
  std::size_t step_;
  std::optional<std::size_t> fetch_;
  const Action& action_;
  const Request request_;
  End from_, to_;
};

}  // namespace

void propose_pairs(Workshop& w) {
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    const bool one_view = a.from.size() == 1 && (a.op == Operation::read || a.op == Operation::put ||
                                                 (a.op == Operation::move && a.to.size() == 1));
    if (!one_view || !w.script().requests.contains(a.request) || w.facts(i).size() < 8) continue;
    std::optional<std::size_t> fetch;
    for (std::size_t k = i + 1; k < w.script().steps.size() && a.op == Operation::put && !fetch; ++k) {
      const Action& get = w.action(k);
      if (get.op == Operation::get && get.store == a.store && get.key == a.key && get.request == a.request &&
          get.to.size() == 1)
        fetch = k;
    }
    Pairs(w, i, fetch).propose();
  }
}

}  // namespace kvcts::script
