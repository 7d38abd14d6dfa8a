// Stores: two contents under one key, and which one wins; an object fetched under another's key; objects that are never
// found.
#include <algorithm>
#include <map>
#include <set>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

namespace {

using Key = std::map<std::string, std::string>;

struct Shelves {
  std::vector<std::size_t> puts, gets;
};

Shelves shelves_of(const HypothesisSearch& search) {
  Shelves out;
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    if (search.action(i).op == Operation::put) out.puts.push_back(i);
    if (search.action(i).op == Operation::get) out.gets.push_back(i);
  }
  return out;
}

// What all puts keep when a key exists: as they say, or always the same.
void with_every_winner(HypothesisSearch& search, const std::string& words, const CandidateSteps& bodies) {
  search.attempt(FaultClass::identity_collision, words, bodies);
  for (const char* how : {"keep", "replace"}) {
    CandidateSteps changed = bodies;
    let_win(changed, how);
    search.attempt(FaultClass::identity_collision,
                   words + (std::string(how) == "keep" ? ", and the first object stays" : ", and the last object stays"),
                   std::move(changed));
  }
}

// Two keys are one for every user of either.
void generate_collisions(HypothesisSearch& search, const Shelves& s) {
  std::vector<std::pair<std::string, Key>> keys;  // per store, in step order
  std::vector<std::size_t> first;
  std::vector<std::size_t> all = s.puts;
  all.insert(all.end(), s.gets.begin(), s.gets.end());
  std::ranges::sort(all);
  for (const std::size_t i : all) {
    const std::pair<std::string, Key> key{search.action(i).store, search.action(i).key};
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key), first.push_back(i);
  }
  if (keys.size() > 24) return;
  for (std::size_t a = 0; a < keys.size(); ++a) {
    for (std::size_t b = 0; b < keys.size(); ++b) {
      if (a == b || keys[a].first != keys[b].first) continue;
      CandidateSteps bodies = search.bodies();
      for (const std::size_t i : all) {
        for (Action& action : bodies[i]) {
          if (action.store == keys[a].first && action.key == keys[a].second) action.key = keys[b].second;
        }
      }
      with_every_winner(search, "one key for " + symbol_of(search, first[a]) + " and " + symbol_of(search, first[b]),
                        bodies);
    }
  }
}

// A hit saves the writes behind it.
void leave_out_what_was_found(const HypothesisSearch& search, const Shelves& s, CandidateSteps& bodies) {
  for (const std::size_t get : s.gets)
    for (std::size_t i = get + 1; i < bodies.size(); ++i)
      std::erase_if(bodies[i], [&](const Action& a) {
        return a.op == Operation::write && a.request == search.action(get).request &&
               memory_of(a.to) == memory_of(search.action(get).to);
      });
}

// Fields left out of all keys, with another object winning.
void generate_fewer_fields(HypothesisSearch& search, const Shelves& s) {
  for (const std::string& field : key_fields(search)) {
    CandidateSteps bodies = search.bodies();
    leave_out_of_keys(bodies, field);
    with_every_winner(search, "keys without " + field, bodies);
    CandidateSteps fewer = bodies;
    leave_out_what_was_found(search, s, fewer);
    if (fewer != bodies)
      with_every_winner(search, "keys without " + field + ", and what the hit had was not written", fewer);
  }
}

// Each get fetches the object whose content it got.
void generate_objects_seen(HypothesisSearch& search, const Shelves& s) {
  CandidateSteps bodies = search.bodies();
  std::string words;
  for (const std::size_t get : s.gets) {
    std::map<std::size_t, std::int64_t> votes;
    for (const ObservedMove& move : search.observed_moves(get)) {
      const Symbol& is = move.attribution->is;
      if (!move.taken || is.kind != Symbol::Kind::tag) continue;
      for (const std::size_t put : s.puts) {
        const Action& a = search.action(put);
        const auto request = search.scenario().requests.find(a.request);
        if (request == search.scenario().requests.end() || a.store != search.action(get).store) continue;
        const ScenarioRequest& r = request->second;
        const bool inside = r.generation == is.generation && is.token >= r.first_token &&
                            is.token < r.first_token + r.tokens && picked(a.pick.tokens, is.token) &&
                            picked(a.pick.layers, is.layer) && picked(a.pick.kv, is.kv) && picked(a.pick.heads, is.head);
        if (inside) ++votes[put];
      }
    }
    if (votes.empty()) continue;
    const std::size_t best = most_voted(votes);
    for (Action& a : bodies[get]) {
      if (a.key == search.action(best).key) continue;
      a.key = search.action(best).key;
      words += (words.empty() ? "" : ", ") + symbol_of(search, get) + " got the object of " + symbol_of(search, best);
    }
  }
  if (!words.empty()) search.attempt(FaultClass::identity_collision, words, std::move(bodies));
}

// A get writes its result elsewhere: to the tokens, layers or heads of another part of the request.
void generate_other_places(HypothesisSearch& search, const Shelves& s) {
  for (const std::size_t get : s.gets) {
    for (const std::size_t other : s.gets) {
      const Action &a = search.action(get), &b = search.action(other);
      if (get == other || a.pick == b.pick) continue;
      Action body = a;
      body.pick = b.pick, body.pick_to = b.pick_to;
      const bool layers = a.pick.layers != b.pick.layers, heads = a.pick.heads != b.pick.heads;
      search.attempt(layers  ? FaultClass::layer_misrouted
                     : heads ? FaultClass::head_shard_mapping
                             : FaultClass::wrong_block_id,
                     symbol_of(search, get) + " wrote to the place of " + symbol_of(search, other), get, body);
    }
  }
}

// Each get wrote its result to other tokens, layers or heads, as the bytes show: all gets at once.
void generate_places_seen(HypothesisSearch& search, const Shelves& s) {
  struct Route {
    FaultClass fault_class;
    Picks StepSelection::* picks;
    std::optional<std::int64_t> (*of)(const ViewElement&);
  };
  const Route routes[] = {
      {FaultClass::wrong_block_id, &StepSelection::tokens, [](const ViewElement& e) { return e.token; }},
      {FaultClass::layer_misrouted, &StepSelection::layers, [](const ViewElement& e) { return std::optional(e.layer); }},
      {FaultClass::head_shard_mapping, &StepSelection::heads, [](const ViewElement& e) { return std::optional(e.head); }}};
  for (const Route& route : routes) {
    CandidateSteps bodies = search.bodies();
    std::string words;
    for (const std::size_t get : s.gets) {
      const Action& a = search.action(get);
      std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> votes;
      for (const ObservedMove& move : search.observed_moves(get)) {
        if (!move.from || !move.at || !picked(a.pick.*route.picks, route.of(*move.from).value_or(-1))) continue;
        if (const auto at = route.of(*move.at)) ++votes[*route.of(*move.from)][*at];
      }
      Action body = a;
      Picks &from = body.pick.*route.picks, &to = body.pick_to.*route.picks;
      from.emplace(), to.emplace();
      for (const auto& [source, counts] : votes) {
        from->push_back(source);
        to->push_back(most_voted(counts));
      }
      if (from->empty() || *from == *to) continue;
      bodies[get] = {body};
      words += (words.empty() ? "" : ", ") + symbol_of(search, get);
    }
    if (!words.empty())
      search.attempt(route.fault_class, "what was found went to other places in " + words, std::move(bodies));
  }
}

}  // namespace

void generate_stores(HypothesisSearch& search) {
  const Shelves s = shelves_of(search);
  if (s.puts.empty() || s.gets.empty()) return;
  generate_objects_seen(search, s);
  if (!search.found()) generate_collisions(search, s);
  if (!search.found()) generate_fewer_fields(search, s);
  if (!search.found()) generate_other_places(search, s);
  if (!search.found()) generate_places_seen(search, s);
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

}  // namespace kvcts::scenario
