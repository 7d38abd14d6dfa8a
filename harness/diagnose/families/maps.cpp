// Right steps through a wrong map: other ids, another memory, another layout, other arithmetic.
#include <algorithm>
#include <map>

#include "diagnose/families/tools.hpp"

namespace kvcts::script {

using layout::Axis;
using layout::Component;

namespace {

bool through_views(const Action& a) { return a.op == "move" || a.op == "read" || a.op == "write" || a.op == "put" || a.op == "get" || (a.op == "fill" && !a.request.empty()); }

using Mapping = std::map<std::int64_t, std::int64_t>;   ///< coordinate at the destination -> the one that is there

// What each coordinate of an axis holds, by most of its elements that come from the source at all.
template <class Axis>
Mapping mapping_of(const std::vector<Sighting>& sightings, Axis axis) {
  std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> votes;
  for (const Sighting& s : sightings) {
    if (!s.from || !s.taken) continue;
    const std::optional<std::int64_t> at = axis(*s.at), from = axis(*s.from);
    if (at && from) ++votes[*at][*from];
  }
  Mapping out;
  for (const auto& [at, counts] : votes) {
    out[at] = most_voted(counts);
  }
  return out;
}

bool is_identity(const Mapping& mapping) {
  return std::all_of(mapping.begin(), mapping.end(), [](const auto& pair) { return pair.first == pair.second; });
}

const char* end_words(const Action& a, int ends) {
  if (a.op == "write" || a.op == "get") return "written";
  if (a.op == "read" || a.op == "put") return "read";
  return ends == 1 ? "read from the source" : ends == 2 ? "written to the destination" : "moved at both ends";
}

// One belief about a memory, in every step that touches it; or about all memories that are declared alike.
void propose_beliefs(Workshop& w, const std::function<std::vector<Variant>(const layout::Cache&, std::size_t step)>& variants) {
  std::set<std::string> tried;
  for (const auto& [name, memory] : w.script().memories) {
    if (memory.view.cache.empty() || w.spent()) continue;
    for (const bool alike : {false, true}) {
      if (alike && !tried.insert(memory.view.cache).second) continue;
      for (const Variant& variant : variants(cache_of(memory.view), 0)) {
        const std::string now = layout::to_text(variant.cache);
        Bodies bodies = w.bodies();
        int steps = 0;
        for (auto& body : bodies) {
          for (Action& a : body) {
            if (!through_views(a)) continue;
            bool changed = false;
            for (auto* views : {&a.from, &a.to}) {
              for (View& view : *views) {
                if (view.cache != memory.view.cache || (!alike && Arena::memory_of(view) != name)) continue;
                view.cache = now;
                changed = true;
              }
            }
            steps += changed;
          }
        }
        if (steps > 1) w.attempt(variant.fault_class, (alike ? "everywhere: " : "wherever " + name + " is used: ") + variant.words, std::move(bodies));
        if (w.spent()) return;
      }
    }
  }
}

// Variants of the layouts at the ends of a step.
void propose_variants(Workshop& w, const std::function<std::vector<Variant>(const layout::Cache&, std::size_t step)>& variants) {
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (!through_views(a)) continue;
    const auto variants_of = [&](const std::vector<View>& views) {
      std::vector<std::vector<Variant>> out;
      for (const View& view : views) out.push_back(variants(cache_of(view), i));
      return out;
    };
    const auto from = variants_of(a.from), to = variants_of(a.to);
    const auto apply = [](std::vector<View>& views, const std::vector<std::vector<Variant>>& all, const std::string& words) {
      const Variant* used = nullptr;
      for (std::size_t v = 0; v < views.size(); ++v) {
        const auto same = std::find_if(all[v].begin(), all[v].end(), [&](const Variant& x) { return x.words == words; });
        if (same == all[v].end()) continue;
        views[v].cache = layout::to_text(same->cache);
        used = &*same;
      }
      return used;
    };
    std::set<std::string> seen;
    for (const int ends : {1, 2, 3}) {
      const auto& lead = ends == 2 ? to : from;
      if (ends == 3 && (from.empty() || to.empty())) continue;
      seen.clear();
      for (const auto& list : lead) {
        for (const Variant& variant : list) {
          if (!seen.insert(variant.words).second || w.spent()) continue;
          Action body = a;
          const Variant* used = nullptr;
          if (ends & 1) used = apply(body.from, from, variant.words);
          if (ends & 2) {
            const Variant* other = apply(body.to, to, variant.words);
            if (ends == 3 && (!used || !other)) continue;
            used = used ? used : other;
          }
          if (used) w.attempt(used->fault_class, name_of(w, i) + ": " + end_words(a, ends) + " with " + used->words, i, body);
        }
      }
    }
  }
}

}  // namespace

namespace {

// Ids, or slots of which a block has `slots`, that were kept in a number too narrow for them.
struct Narrow {
  std::string words;
  Ids ids;
};
std::vector<Narrow> narrowed(const Ids& table, std::int64_t slots) {
  std::vector<Narrow> out;
  for (const int bits : {8, 16, 32}) {
    for (const std::int64_t unit : {std::int64_t{1}, slots}) {
      for (const bool is_signed : {false, true}) {
        const std::int64_t range = std::int64_t{1} << bits;
        Narrow narrow{std::string(unit == 1 ? " (ids" : " (slots") + " cut to " + std::to_string(bits) + " bits" + (is_signed ? ", signed)" : ")"), table};
        for (auto& id : narrow.ids) {
          if (id < 0 || range % unit != 0) continue;
          std::int64_t number = id * unit % range;
          if (is_signed && number >= range / 2) number -= range;
          id = number / unit;
        }
        if (narrow.ids != table && std::none_of(out.begin(), out.end(), [&](const Narrow& other) { return other.ids == narrow.ids; })) out.push_back(std::move(narrow));
      }
    }
  }
  return out;
}

// A table that went through a number too narrow for its ids, at one end or at both.
void propose_narrow_ids(Workshop& w, std::size_t i) {
  const Action& a = w.action(i);
  const auto at_end = [&](bool at_source) {
    const auto& views = at_source ? a.from : a.to;
    const auto table = views.empty() ? std::nullopt : table_at(w, i, at_source);
    return table ? narrowed(*table, slots_of(views.front())) : std::vector<Narrow>{};
  };
  const auto from = at_end(true), to = at_end(false);
  const auto attempt = [&](const Narrow* source, const Narrow* destination) {
    Action body = a;
    if (source) body.from_blocks = source->ids;
    if (destination) body.to_blocks = destination->ids;
    const auto& views = source ? a.from : a.to;
    w.attempt("int32-overflow", "blocks " + list_words(source ? source->ids : destination->ids) + " of " + memory_of(views) + (source ? source : destination)->words + (source && destination ? ", at both ends" : "") + " in " + name_of(w, i), i, body);
  };
  for (const Narrow& narrow : from) attempt(&narrow, nullptr);
  for (const Narrow& narrow : to) attempt(nullptr, &narrow);
  for (const Narrow& source : from) {
    for (const Narrow& destination : to) {
      if (source.words == destination.words) attempt(&source, &destination);
    }
  }
}

// `any_list`: the list that the bytes show, whatever it is; else lists that code makes by one plain mistake.
void propose_ids(Workshop& w, bool any_list) {
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (!through_views(a)) continue;
    if (!any_list) propose_narrow_ids(w, i);
    const std::vector<Sighting>& sightings = w.sightings(i);
    const auto try_axis = [&](auto axis, Picks Selection::* member, const char* what, const std::function<std::string(const Mapping&)>& class_of) {
      const Mapping mapping = mapping_of(sightings, axis);
      if (mapping.empty() || is_identity(mapping)) return;
      Action body = a;
      std::vector<std::int64_t> from, to;
      if (a.op == "read") {  // what is read has its place by order, not by coordinate
        const OutputShape output = output_shape(w.script(), a);
        if (output.sections.empty()) return;
        const OutputSection& shape = output.sections.front();
        const auto& all = member == &Selection::layers ? shape.layers : member == &Selection::kv ? shape.kv : member == &Selection::heads ? shape.heads : member == &Selection::tokens ? shape.tokens : shape.channels;
        for (const std::int64_t value : all) from.push_back(mapping.contains(value) ? mapping.at(value) : value);
        body.pick.*member = from;
        w.attempt(class_of(mapping), std::string(what) + " " + list_words(from) + " instead of " + list_words(all) + " in " + name_of(w, i), i, body);
        return;
      }
      for (const auto& [destination, source] : mapping) to.push_back(destination), from.push_back(source);
      body.pick.*member = from;
      body.pick_to.*member = to;
      w.attempt(class_of(mapping), std::string(what) + " " + list_words(from) + " went to " + list_words(to) + " in " + name_of(w, i), i, body);
    };
    if (!any_list && (a.op == "move" || a.op == "read")) {
      try_axis([](const Element& e) { return std::optional(e.layer); }, &Selection::layers, "layers", [](const Mapping& m) {
        // All at home but one, which has the place of another one: two layers share a buffer.
        const auto astray = std::count_if(m.begin(), m.end(), [](const auto& p) { return p.first != p.second; });
        const auto guest = std::find_if(m.begin(), m.end(), [](const auto& p) { return p.first != p.second; });
        const bool shared = astray == 1 && m.size() > 1 && !m.contains(guest->second);
        return shared ? "region-aliasing" : "layer-misrouted";
      });
      try_axis([](const Element& e) { return std::optional(e.head); }, &Selection::heads, "heads", [](const Mapping&) { return "head-shard-mapping"; });
      try_axis([](const Element& e) { return std::optional(e.kv); }, &Selection::kv, "kv", [](const Mapping& m) {
        const bool exchanged = m.size() == 2 && m.begin()->second == 1 && std::next(m.begin())->second == 0;
        return exchanged ? "kv-split-vs-interleaved" : "region-aliasing";
      });
      try_axis([](const Element& e) { return e.component == Component::data ? std::optional(e.channel) : std::nullopt; }, &Selection::channels, "channels", [](const Mapping& m) {
        std::set<std::int64_t> sources;
        for (const auto& [to, from] : m) sources.insert(from);
        return sources.size() == m.size() ? "axis-permuted" : "head-shard-mapping";  // the same part twice: replicas taken for a row
      });
    }
    // Block ids: which block of each end's table holds whose tokens.
    for (const bool at_source : {true, false}) {
      const auto& views = at_source ? a.from : a.to;
      if (views.empty()) continue;
      const auto table = table_at(w, i, at_source);
      if (!table || table->empty()) continue;
      const Request request = *w.request_at(i, a.request);
      const auto attempt = [&](const std::vector<std::int64_t>& ids, const std::string& why) {
        if (ids == *table) return;
        Action body = a;
        (at_source ? body.from_blocks : body.to_blocks) = ids;
        const bool old = outdated(w, i, memory_of(views), ids, *table);
        w.attempt(old ? "stale-block" : "wrong-block-id", "blocks " + list_words(ids) + " instead of " + list_words(*table) + " of " + memory_of(views) + (old ? " (those of an older table)" : why) + " in " + name_of(w, i), i, body);
      };
      if (any_list) {
        std::vector<const Sighting*> all;
        for (const Sighting& s : sightings) all.push_back(&s);
        attempt(table_shown(w, i, at_source, all), "");
        continue;
      }
      std::vector<std::int64_t> ids = *table;
      std::reverse(ids.begin(), ids.end());
      attempt(ids, " (reversed)");
      ids = *table;
      std::sort(ids.begin(), ids.end());
      attempt(ids, " (sorted)");
      if (!table->empty()) {
        for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = table->front() + static_cast<std::int64_t>(k);
        attempt(ids, " (the first id and those that follow it)");
        for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<std::int64_t>(k);
        attempt(ids, " (positions taken for ids)");
        for (const std::int64_t shift : {1, -1}) {
          ids = *table;
          for (auto& id : ids) id += shift;
          attempt(ids, " (ids shifted by " + std::to_string(shift) + ")");
          ids = *table;
          std::rotate(ids.begin(), shift > 0 ? ids.begin() + 1 : ids.end() - 1, ids.end());
          attempt(ids, " (shifted by one position)");
        }
        for (std::size_t k = 1; k < table->size(); ++k) attempt({table->begin() + static_cast<std::ptrdiff_t>(k), table->end()}, " (the first " + std::to_string(k) + " left out)");
        for (std::size_t k = 0; k < table->size(); ++k) {  // a null id
          ids = *table;
          ids[k] = -1;
          attempt(ids, " (one treated as none)");
          ids[k] = 0;
          attempt(ids, " (block 0 instead of one)");
        }
        // The other end's ids.
        const auto& across = at_source ? a.to : a.from;
        if (!across.empty()) {
          if (const auto other = table_of(w, i, a.request, memory_of(across))) attempt(*other, " (those of " + memory_of(across) + ")");
        }
        for (const auto& [name, r] : w.script().requests) {
          if (name == a.request) continue;
          if (const auto other = r.blocks.find(memory_of(views)); other != r.blocks.end()) attempt(other->second, " (those of " + name + ")");
        }
        for (const auto& [memory, other] : request.blocks) {
          if (memory != memory_of(views)) attempt(other, " (those of " + memory + ")");
        }
        for (std::size_t k = 1; k < table->size(); ++k) {
          ids = {table->begin(), table->begin() + static_cast<std::ptrdiff_t>(k)};
          Action body = a;
          (at_source ? body.from_blocks : body.to_blocks) = ids;
          w.attempt("truncated", "only the first " + std::to_string(k) + " blocks of " + memory_of(views) + " in " + name_of(w, i), i, body);
        }
      }
    }
    if (any_list) continue;
    if (a.op == "move" && !a.from.empty() && !a.to.empty()) {
      const auto tables = w.request_at(i, a.request)->blocks;
      for (const auto& [p, from] : tables) {
        for (const auto& [q, to] : tables) {
          if (p == memory_of(a.from) || q == memory_of(a.to) || p == q) continue;
          Action body = a;
          body.from_blocks = from, body.to_blocks = to;
          w.attempt("wrong-block-id", "blocks of " + p + " and " + q + " in " + name_of(w, i), i, body);
        }
      }
    }
    if (const auto r = w.request_at(i, a.request); r && (a.op == "move" || a.op == "read")) {
      // 64-bit entries read as 32-bit ones: every second one is 0.
      std::vector<std::int64_t> to, from;
      for (std::int64_t t = 0; t < r->tokens; ++t) to.push_back(r->first_token + t), from.push_back(t % 2 ? 0 : r->first_token + t / 2);
      Action body = a;
      body.pick.tokens = from;
      if (a.op == "move") body.pick_to.tokens = to;
      w.attempt("dtype-reinterpreted", "positions of 64 bits read as positions of 32 in " + name_of(w, i), i, body);
      for (const bool at_source : {true, false}) {
        const auto& views = at_source ? a.from : a.to;
        const auto table = views.empty() ? std::nullopt : table_of(w, i, a.request, memory_of(views));
        if (!table) continue;
        std::vector<std::int64_t> ids;
        for (std::size_t k = 0; k < table->size(); ++k) ids.push_back(k % 2 ? 0 : (*table)[k / 2]);
        body = a;
        (at_source ? body.from_blocks : body.to_blocks) = ids;
        w.attempt("dtype-reinterpreted", "block ids of 64 bits read as ids of 32 in " + name_of(w, i), i, body);
      }
    }
    if (a.op == "move" || a.op == "read") {
      const Component asked = a.parts == "scales" ? Component::scale : Component::data;
      try_axis([&](const Element& e) { return e.component == asked ? e.token : std::nullopt; }, &Selection::tokens, "tokens", [&](const Mapping& m) {
        if (asked == Component::scale) return "scale-misplaced";
        const std::int64_t n = std::min(a.from.empty() ? 1 : slots_of(a.from.front()), a.to.empty() ? 1 : slots_of(a.to.front()));
        const bool by_block = std::all_of(m.begin(), m.end(), [&](const auto& p) { return (p.first - p.second) % n == 0; });
        return by_block || n == 1 ? "wrong-block-id" : "wrong-block-size";
      });
    }
  }
}

}  // namespace

void propose_lists(Workshop& w) { propose_ids(w, false); }
void propose_any_lists(Workshop& w) { propose_ids(w, true); }

// Another request in place of one: that goes on where the first one ends (or ends before it) holds the same tokens, more or fewer of them.
static std::string longer_or_shorter(const Request& was, const Request& now, const std::string& memory) {
  const auto p = was.blocks.find(memory), q = now.blocks.find(memory);
  if (was.generation != now.generation || was.first_token != now.first_token || p == was.blocks.end() || q == now.blocks.end() || was.tokens == now.tokens) return "wrong-block-id";
  const std::size_t n = std::min(p->second.size(), q->second.size());
  if (!std::equal(p->second.begin(), p->second.begin() + static_cast<std::ptrdiff_t>(n), q->second.begin())) return "wrong-block-id";
  return now.tokens > was.tokens ? "over-read" : "truncated";
}

void propose_memories(Workshop& w) {
  const auto class_of = [&](const std::string& was, const std::string& now) -> std::string {
    const auto p = w.script().memories.find(was), q = w.script().memories.find(now);
    if (p == w.script().memories.end() || q == w.script().memories.end()) return "region-aliasing";
    const auto begin = [&](const std::string& name) {
      View whole;
      whole.of = name;
      const auto places = w.evidence().arena.places(whole, cache_of(w.script().memories.at(name).view));
      return places.empty() ? Place{} : places.front();
    };
    const Place here = begin(was), there = begin(now);
    if (here == there) return "wrong-block-id";                    // the same bytes, under another table
    // Two caches of one pool: the one lies where the other one does; where they are laid out otherwise, it is another base.
    if (here.backing == there.backing && !p->second.view.of.empty() + !q->second.view.of.empty() > 0) {
      return p->second.view.cache == q->second.view.cache ? "region-aliasing" : "wrong-stride";
    }
    const auto width = [](const Memory& memory) {
      const layout::Cache cache = cache_of(memory.view);
      return cache.planes.empty() ? layout::Dtype::fp32 : cache.planes.front().dtype;
    };
    if (width(p->second) != width(q->second)) return "region-aliasing";
    const auto domain = [](const Memory& memory, Axis axis) { return domain_of(memory.view, axis); };
    const bool same_content = domain(p->second, Axis::head) == domain(q->second, Axis::head) && domain(p->second, Axis::layer) == domain(q->second, Axis::layer);
    if (same_content && p->second.rank != q->second.rank) {
      for (const auto& [name, request] : w.script().requests) {
        if (request.positions.contains(was) || request.positions.contains(now)) return "wrong-block-id";  // ranks that hold other tokens
      }
    }
    if (p->second.rank != q->second.rank || domain(p->second, Axis::head) != domain(q->second, Axis::head)) return "head-shard-mapping";
    if (domain(p->second, Axis::layer) != domain(q->second, Axis::layer)) return "layer-misrouted";
    return "region-aliasing";
  };
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (!through_views(a)) continue;
    for (const auto& [name, memory] : w.script().memories) {
      if (memory.side == "store" || memory.view.cache.empty()) continue;
      for (const bool at_source : {true, false}) {
        const auto& views = at_source ? a.from : a.to;
        for (std::size_t v = 0; v < views.size(); ++v) {
          if (Arena::memory_of(views[v]) == name) continue;
          const std::string was = Arena::memory_of(views[v]);
          const std::string words = name + " instead of " + was + " in " + name_of(w, i);
          Action body = a;
          View& view = (at_source ? body.from : body.to)[v];
          // The other memory in its own layout; or its bytes through this one's, coordinates as they are here.
          view = memory.view;
          view.of = name;
          w.attempt(class_of(was, name), words, i, body);
          if (a.op == "move") {
            if (const Mapping layers = mapping_of(w.sightings(i), [](const Element& e) { return std::optional(e.layer); }); !layers.empty() && !is_identity(layers)) {
              Action mapped = body;
              mapped.pick.layers.emplace(), mapped.pick_to.layers.emplace();
              for (const auto& [to, from] : layers) mapped.pick.layers->push_back(from), mapped.pick_to.layers->push_back(to);
              w.attempt("layer-misrouted", words + ", other layers", i, mapped);
            }
          }
          const auto ids = table_of(w, i, a.request, was);
          if (ids && !table_of(w, i, a.request, name)) {
            (at_source ? body.from_blocks : body.to_blocks) = *ids;
            w.attempt(class_of(was, name), words, i, body);
          }
          Action same = a;
          (at_source ? same.from : same.to)[v].of = name;
          if (ids) (at_source ? same.from_blocks : same.to_blocks) = *ids;
          w.attempt(class_of(was, name), words + ", through the layout of " + was, i, same);
        }
        // All of it from the other one.
        if (views.size() > 1) {
          Action body = a;
          auto& all = at_source ? body.from : body.to;
          View only = memory.view;
          only.of = name;
          all = {only};
          w.attempt("head-shard-mapping", "only " + name + " in " + name_of(w, i), i, body);
        }
      }
    }
    for (const auto& [name, other] : w.script().requests) {
      if (name == a.request || a.request.empty()) continue;
      Action body = a;
      body.request = name;
      const std::string fault_class = longer_or_shorter(w.script().requests.at(a.request), other, memory_of(a.from.empty() ? a.to : a.from));
      w.attempt(fault_class, "request " + name + " instead of " + a.request + " in " + name_of(w, i), i, body);
      if (a.op == "write") {
        body = a;
        body.generation = other.generation;
        w.attempt("stale-block", "content of " + name + " in the blocks of " + a.request + " in " + name_of(w, i), i, body);
      }
    }
  }
}

void propose_arithmetic(Workshop& w) {
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (!through_views(a)) continue;
    // Only where addresses are large enough for it to matter.
    std::int64_t reach = 0;
    for (const auto* views : {&a.from, &a.to}) {
      for (const View& view : *views) {
        for (const auto& allocation : cache_of(view).allocations) reach = std::max(reach, allocation.bytes);
      }
    }
    for (const std::int64_t bits : {32, 31, 16}) {
      if (reach < (std::int64_t{1} << (bits - 2))) continue;
      for (const bool is_signed : {true, false}) {
        for (const char* unit : {"elements", "bytes"}) {
          for (const char* of : {"product", "sum"}) {
            for (const int ends : {1, 2, 3}) {
              if ((ends & 1 && a.from.empty()) || (ends & 2 && a.to.empty())) continue;
              Action body = a;
              const Arithmetic narrow{bits, is_signed, unit, of};
              if (ends & 1) {
                for (View& view : body.from) view.arithmetic = narrow;
              }
              if (ends & 2) {
                for (View& view : body.to) view.arithmetic = narrow;
              }
              w.attempt("int32-overflow", std::string("addresses computed in ") + std::to_string(bits) + " bits (" + (is_signed ? "signed" : "unsigned") + ", " + of + " in " + unit + ") in " + name_of(w, i), i, body);
            }
          }
        }
      }
    }
    for (const std::int64_t align : {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 65536}) {
      for (const int ends : {1, 2, 3}) {
        if ((ends & 1 && a.from.empty()) || (ends & 2 && a.to.empty())) continue;
        Action body = a;
        if (ends & 1) {
          for (View& view : body.from) view.align = align;
        }
        if (ends & 2) {
          for (View& view : body.to) view.align = align;
        }
        w.attempt("misaligned", "addresses rounded down to " + std::to_string(align) + " bytes in " + name_of(w, i), i, body);
      }
    }
  }
}

void propose_offsets(Workshop& w) {
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (!through_views(a)) continue;
    // By how much sources, or destinations, are off: asked of the bytes themselves.
    std::map<std::int64_t, std::int64_t> at_source, at_destination;
    std::int64_t budget = 2000;
    for (const Clue& clue : w.clues().all) {
      if (!clue.wrong || --budget < 0) continue;
      if (clue.is.kind == Who::Kind::tag) {
        for (const Place& p : w.whereabouts().of(clue.is)) {
          for (const Place& q : w.whereabouts().of(clue.must)) {
            if (p.backing == q.backing && p.offset != q.offset) ++at_source[p.offset - q.offset];
          }
          if (p.backing == clue.backing && p.offset != clue.offset) ++at_destination[clue.offset - p.offset];
        }
      } else if (clue.is.kind == Who::Kind::poison) {
        for (const Place& q : w.whereabouts().of(clue.must)) {
          if (clue.is.backing == q.backing && clue.is.offset != q.offset) ++at_source[clue.is.offset - q.offset];
        }
      }
    }
    for (const nlohmann::json& event : w.evidence().observation.events) {
      if (!event.contains("violation")) continue;
      for (const Backing& b : w.evidence().arena.backings()) {
        if (b.ordinal != event["backing"]) continue;
        for (const std::int64_t unit : {std::int64_t{1} << 32, std::int64_t{1} << 31, b.bytes}) at_source[unit], at_source[-unit], at_destination[unit], at_destination[-unit];
      }
    }
    const auto best = [](const std::map<std::int64_t, std::int64_t>& votes) {
      std::vector<std::pair<std::int64_t, std::int64_t>> out;
      for (const auto& [shift, count] : votes) out.emplace_back(-count, shift);
      std::sort(out.begin(), out.end());
      if (out.size() > 12) out.resize(12);
      return out;
    };
    for (const bool source : {true, false}) {
      for (const auto& [count, shift] : best(source ? at_source : at_destination)) {
        Action body = a;
        auto& views = source ? body.from : body.to;
        if (views.empty()) continue;
        for (View& view : views) view.offset += shift;
        const bool wraps = shift % (std::int64_t{1} << 31) == 0;
        w.attempt(wraps ? "int32-overflow" : "wrong-stride", "addresses " + std::to_string(shift) + " bytes off in " + name_of(w, i), i, body);
        body = a;
        auto& scaled = source ? body.from : body.to;
        for (View& view : scaled) view.scale_offset += shift;
        w.attempt("scale-misplaced", "scales " + std::to_string(shift) + " bytes off in " + name_of(w, i), i, body);
      }
    }
  }
}

void propose_everywhere(Workshop& w) {
  const auto near = [](const layout::Cache& cache) { return permuted(cache, false, true); };
  for (const std::function<std::vector<Variant>(const layout::Cache&)>& variants : {std::function<std::vector<Variant>(const layout::Cache&)>(near), std::function<std::vector<Variant>(const layout::Cache&)>(renamed), std::function<std::vector<Variant>(const layout::Cache&)>(reblocked), std::function<std::vector<Variant>(const layout::Cache&)>(resized), std::function<std::vector<Variant>(const layout::Cache&)>(rescaled)}) {
    propose_beliefs(w, [&](const layout::Cache& cache, std::size_t) { return variants(cache); });
    if (w.found()) return;
  }
  propose_beliefs(w, [](const layout::Cache& cache, std::size_t) { return restrided(cache, {}); });
  // A table that one memory has in every step.
  for (const auto& [request, r] : w.script().requests) {
    for (const auto& [memory, table] : r.blocks) {
      std::set<std::vector<std::int64_t>> lists;
      for (const auto& [other, ids] : r.blocks) lists.insert(ids);
      for (const auto& [other, q] : w.script().requests) {
        if (const auto ids = q.blocks.find(memory); ids != q.blocks.end()) lists.insert(ids->second);
      }
      std::vector<std::int64_t> ids = table;
      std::reverse(ids.begin(), ids.end());
      lists.insert(ids);
      lists.insert(std::vector<std::int64_t>(table.size(), 0));
      lists.insert(std::vector<std::int64_t>(table.size(), table.empty() ? 0 : table.front()));
      for (std::size_t k = 0; k < table.size(); ++k) {
        ids = table;
        std::fill(ids.begin() + static_cast<std::ptrdiff_t>(k), ids.end(), 0);
        lists.insert(ids);
        ids = table;
        ids[k] = -1;
        lists.insert(ids);
      }
      for (const auto& list : lists) {
        if (list == table) continue;
        Bodies bodies = w.bodies();
        for (auto& body : bodies) {
          for (Action& a : body) {
            if (a.request != request || !through_views(a)) continue;
            if (memory_of(a.from) == memory) a.from_blocks = list;
            if (memory_of(a.to) == memory) a.to_blocks = list;
          }
        }
        w.attempt("wrong-block-id", "wherever " + memory + " is used: blocks " + list_words(list) + " instead of " + list_words(table), std::move(bodies));
      }
    }
  }
}

void propose_layouts(Workshop& w) {
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return recoded(cache); });
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return relaid(cache); });
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return exchanged_parts(cache); });
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return permuted(cache, false, true); });
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return renamed(cache); });
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return reblocked(cache); });
  propose_variants(w, [&](const layout::Cache& cache, std::size_t step) {
    std::vector<std::int64_t> others;  // steps of other views: numbers of another pool
    const Action& a = w.action(step);
    for (const auto* views : {&a.from, &a.to}) {
      for (const View& view : *views) {
        for (const auto& plane : cache_of(view).planes) {
          for (const auto& mode : plane.modes) {
            if (mode.axis == Axis::block || mode.axis == Axis::layer || mode.axis == Axis::kv) others.push_back(mode.stride);
          }
        }
      }
    }
    return restrided(cache, others);
  });
  std::set<std::int64_t> ranks;
  for (const auto& [name, memory] : w.script().memories) ranks.insert(memory.rank);
  propose_variants(w, [&](const layout::Cache& cache, std::size_t) {
    std::vector<Variant> out = resized(cache);
    for (Variant& variant : out) {
      if (ranks.size() > 1 && variant.fault_class == "wrong-stride") variant.fault_class = "head-shard-mapping";  // a row cut by the number of ranks
    }
    return out;
  });
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return repitched(cache); });
}

void propose_scales(Workshop& w) {
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return swizzled(cache); });
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return rescaled(cache); });
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (!through_views(a)) continue;
    std::set<std::int64_t> shifts;
    for (const auto* views : {&a.from, &a.to}) {
      for (const View& view : *views) {
        const layout::Cache cache = cache_of(view);
        for (const auto& plane : cache.planes) {
          for (const auto& mode : plane.modes) {
            for (const std::int64_t k : {1, 2}) shifts.insert(k * mode.stride / 8), shifts.insert(-k * mode.stride / 8);
          }
          for (const auto& other : cache.planes) {
            if (plane.component != Component::data && plane.allocation == other.allocation) shifts.insert((other.offset - plane.offset) / 8);
          }
        }
      }
    }
    for (const std::int64_t shift : shifts) {
      for (const int ends : {1, 2, 3}) {
        if ((ends & 1 && a.from.empty()) || (ends & 2 && a.to.empty()) || shift == 0) continue;
        Action body = a;
        if (ends & 1) {
          for (View& view : body.from) view.scale_offset += shift;
        }
        if (ends & 2) {
          for (View& view : body.to) view.scale_offset += shift;
        }
        w.attempt("scale-misplaced", "scales " + std::to_string(shift) + " bytes off in " + name_of(w, i), i, body);
      }
    }
  }
}

void propose_far_layouts(Workshop& w) {
  w.allow(1000);
  propose_variants(w, [](const layout::Cache& cache, std::size_t) { return permuted(cache, true, true); });
}

void propose_raw(Workshop& w) {
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const Action& a = w.action(i);
    if (a.op != "copy" && a.op != "fill") continue;
    const auto attempt = [&](const std::string& fault_class, const std::string& words, const Action& body) { w.attempt(fault_class, words + " in " + name_of(w, i), i, body); };
    std::set<std::int64_t> lengths, shifts;
    std::int64_t wrong_in_row = 0;
    for (const WrongRange& range : w.evidence().mismatch.ranges) {
      wrong_in_row = range.end - range.begin;
      lengths.insert(a.bytes - wrong_in_row), lengths.insert(a.bytes + wrong_in_row);
      if (lengths.size() > 32) break;
    }
    for (const std::int64_t f : {2, 4, 8}) lengths.insert(a.bytes * f), lengths.insert(a.bytes / f);
    for (const std::int64_t bytes : lengths) {
      if (bytes < 0 || bytes == a.bytes) continue;
      Action body = a;
      body.bytes = bytes;
      attempt(bytes < a.bytes ? "truncated" : "over-read", std::to_string(bytes) + " bytes instead of " + std::to_string(a.bytes), body);
    }
    for (std::int64_t count = 0; count < std::min<std::int64_t>(a.count, 64); ++count) {
      Action body = a;
      body.count = count;
      attempt("truncated", std::to_string(count) + " copies instead of " + std::to_string(a.count), body);
    }
    // Right up to some byte; behind it, what somebody else's memory holds.
    if (a.op == "copy" && a.count == 1) {
      const Place to = w.evidence().arena.place(a.to.at(0).of);
      std::int64_t right = a.bytes;
      for (const WrongRange& range : w.evidence().mismatch.ranges) {
        const std::int64_t at = range.begin - to.offset - a.to_offset;
        if (range.backing == to.backing && at >= 0) right = std::min(right, at);
      }
      const std::int64_t unit = right & -right;  // the cut is at a round number; bytes before it may agree by chance
      for (std::int64_t cut = right; cut > 0 && cut < a.bytes && unit > 0; cut -= std::max<std::int64_t>(1, cut & -cut)) {
        for (const Backing& b : w.evidence().arena.backings()) {
          for (const std::int64_t offset : {std::int64_t{0}, a.from_offset + cut}) {
            Action head = a, tail = a;
            head.bytes = cut;
            tail.from.at(0).of = b.name, tail.from_offset = offset, tail.to_offset = a.to_offset + cut, tail.bytes = a.bytes - cut;
            Bodies bodies = w.bodies();
            bodies[i] = {head, tail};
            w.attempt("truncated", "right for " + std::to_string(cut) + " bytes, then " + b.name + " in " + name_of(w, i), std::move(bodies));
          }
        }
      }
    }
    std::int64_t budget = 500;
    for (const Clue& clue : w.clues().all) {
      if (!clue.wrong || --budget < 0) continue;
      for (const Place& p : w.whereabouts().of(clue.is)) {
        for (const Place& q : w.whereabouts().of(clue.must)) shifts.insert(p.offset - q.offset);
        shifts.insert(clue.offset - p.offset);
      }
      if (clue.is.kind == Who::Kind::poison) {
        for (const Place& q : w.whereabouts().of(clue.must)) shifts.insert(clue.is.offset - q.offset);
      }
      if (shifts.size() > 24) break;
    }
    for (const std::int64_t shift : shifts) {
      Action body = a;
      body.from_offset += shift;
      attempt("wrong-stride", "read " + std::to_string(shift) + " bytes off", body);
      body = a;
      body.to_offset += shift;
      attempt("wrong-stride", "written " + std::to_string(shift) + " bytes off", body);
      if (a.count > 1) {
        body = a;
        body.from_step += shift;
        attempt("wrong-stride", "a step of " + std::to_string(body.from_step) + " bytes instead of " + std::to_string(a.from_step), body);
        body = a;
        body.to_step += shift;
        attempt("wrong-stride", "a step of " + std::to_string(body.to_step) + " bytes instead of " + std::to_string(a.to_step), body);
      }
    }
  }
}

}  // namespace kvcts::script
