// Right steps with other ids: of blocks, layers, heads, K and V, channels and tokens.
#include <algorithm>
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Component;

namespace {

// Ids, or slots (`slots` per block), that were kept in a number too narrow for them.
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
        Narrow narrow{std::string(unit == 1 ? " (ids" : " (slots") + " cut to " + std::to_string(bits) + " bits" +
                          (is_signed ? ", signed)" : ")"),
                      table};
        for (auto& id : narrow.ids) {
          if (id < 0 || range % unit != 0) continue;
          std::int64_t number = id * unit % range;
          if (is_signed && number >= range / 2) number -= range;
          id = number / unit;
        }
        if (narrow.ids != table && std::ranges::none_of(out, [&](const Narrow& other) { return other.ids == narrow.ids; }))
          out.push_back(std::move(narrow));
      }
    }
  }
  return out;
}

// A table that passed through a number too narrow for its ids, at one end or both.
void generate_narrow_ids(HypothesisSearch& search, std::size_t i) {
  const Action& a = search.action(i);
  const auto at_end = [&](bool at_source) {
    const auto& views = at_source ? a.from : a.to;
    const auto table = views.empty() ? std::nullopt : table_at(search, i, at_source);
    return table ? narrowed(*table, slots_of(views.front())) : std::vector<Narrow>{};
  };
  const auto from = at_end(true), to = at_end(false);
  const auto attempt = [&](const Narrow* source, const Narrow* destination) {
    Action body = a;
    if (source) body.from_blocks = source->ids;
    if (destination) body.to_blocks = destination->ids;
    const auto& views = source ? a.from : a.to;
    search.attempt(FaultClass::int32_overflow,
                   "blocks " + list_text(source ? source->ids : destination->ids) + " of " + memory_of(views) +
                       (source ? source : destination)->words + (source && destination ? ", at both ends" : "") + " in " +
                       symbol_of(search, i),
                   i, body);
  };
  for (const Narrow& narrow : from) attempt(&narrow, nullptr);
  for (const Narrow& narrow : to) attempt(nullptr, &narrow);
  for (const Narrow& source : from) {
    for (const Narrow& destination : to) {
      if (source.words == destination.words) attempt(&source, &destination);
    }
  }
}

/// Other ids of one step.
class OtherIds {
 public:
  OtherIds(HypothesisSearch& search, std::size_t step)
      : w_(search), i_(step), a_(search.action(step)), observed_moves_(search.observed_moves(step)) {}

  /// Where whole layers, heads, halves and channels went, as observed.
  void axes();
  void tokens();
  /// Lists of block ids that result from one plain mistake, at each end.
  void lists();
  /// The list that the bytes show, whatever it is.
  void shown_lists();
  /// Both tables from memories that the step does not name.
  void other_tables();
  /// 64-bit entries read as 32-bit ones: every second one is 0.
  void wide_entries();

 private:
  template <class Axis>
  void axis(Axis axis, Picks StepSelection::* member, const char* what,
            const std::function<FaultClass(const Mapping&)>& class_of);
  const std::vector<View>& views(bool at_source) const { return at_source ? a_.from : a_.to; }
  std::optional<Ids> table(bool at_source) const {
    return views(at_source).empty() ? std::nullopt : table_at(w_, i_, at_source);
  }
  void list(bool at_source, const Ids& table, const Ids& ids, const std::string& why);
  void mistaken_list(bool at_source, const Ids& table);
  void list_of_another(bool at_source, const Ids& table);
  Action with(bool at_source, Ids ids) const {
    Action body = a_;
    (at_source ? body.from_blocks : body.to_blocks) = std::move(ids);
    return body;
  }

  HypothesisSearch& w_;
  std::size_t i_;
  const Action& a_;
  const std::vector<ObservedMove>& observed_moves_;
};

template <class Axis>
void OtherIds::axis(Axis axis, Picks StepSelection::* member, const char* what,
                    const std::function<FaultClass(const Mapping&)>& class_of) {
  const Mapping mapping = mapping_of(observed_moves_, axis);
  if (mapping.empty() || is_identity(mapping)) return;
  Action body = a_;
  std::vector<std::int64_t> from, to;
  if (a_.op == Operation::read) {  // a read places elements by order, not by coordinate
    const auto request = w_.request_at(i_, a_.request);
    if (!request) return;
    const OutputShape output = output_shape(a_, {request->first_token, request->tokens});
    if (output.sections.empty()) return;
    const OutputSection& shape = output.sections.front();
    const auto& all = member == &StepSelection::layers   ? shape.layers
                      : member == &StepSelection::kv     ? shape.kv
                      : member == &StepSelection::heads  ? shape.heads
                      : member == &StepSelection::tokens ? shape.tokens
                                                         : shape.channels;
    for (const std::int64_t value : all) from.push_back(mapping.contains(value) ? mapping.at(value) : value);
    body.pick.*member = from;
    w_.attempt(class_of(mapping), instead_of(what, from, all) + " in " + symbol_of(w_, i_), i_, body);
    return;
  }
  for (const auto& [destination, source] : mapping) to.push_back(destination), from.push_back(source);
  body.pick.*member = from;
  body.pick_to.*member = to;
  w_.attempt(class_of(mapping), went_to(what, from, to) + " in " + symbol_of(w_, i_), i_, body);
}

void OtherIds::axes() {
  axis([](const ViewElement& e) { return std::optional(e.layer); }, &StepSelection::layers, "layers",
       [](const Mapping& m) {
         // All in place but one, which has another's place: two layers share a buffer.
         const auto astray = std::ranges::count_if(m, [](const auto& p) { return p.first != p.second; });
         const auto guest = std::ranges::find_if(m, [](const auto& p) { return p.first != p.second; });
         const bool shared = astray == 1 && m.size() > 1 && !m.contains(guest->second);
         return shared ? FaultClass::region_aliasing : FaultClass::layer_misrouted;
       });
  axis([](const ViewElement& e) { return std::optional(e.head); }, &StepSelection::heads, "heads",
       [](const Mapping&) { return FaultClass::head_shard_mapping; });
  axis([](const ViewElement& e) { return std::optional(e.kv); }, &StepSelection::kv, "kv",
       [](const Mapping& m) {
         const bool exchanged = m.size() == 2 && m.begin()->second == 1 && std::next(m.begin())->second == 0;
         return exchanged ? FaultClass::kv_split_vs_interleaved : FaultClass::region_aliasing;
       });
  axis([](const ViewElement& e) { return e.component == Component::data ? std::optional(e.channel) : std::nullopt; },
       &StepSelection::channels, "channels",
       [&](const Mapping& m) {
         std::set<std::int64_t> sources;
         for (const auto& [to, from] : m) sources.insert(from);
         if (sources.size() == m.size()) return FaultClass::axis_permuted;
         // The same part twice: replicas taken for a row; of one latent row, a part that lies where another does.
         std::size_t parts = 0;
         for (const auto* views : {&a_.from, &a_.to}) {
           for (const View& view : *views)
             for (const auto& plane : cache_of(view).planes)
               parts += plane.component == Component::data && layout::domain(plane).lo[layout::Axis::channel] > 0;
         }
         return parts > 0 ? FaultClass::region_aliasing : FaultClass::head_shard_mapping;
       });
}

void OtherIds::tokens() {
  const Component asked = a_.parts == "scales" ? Component::scale : Component::data;
  axis([&](const ViewElement& e) { return e.component == asked ? e.token : std::nullopt; }, &StepSelection::tokens, "tokens",
       [&](const Mapping& m) {
         if (asked == Component::scale) return FaultClass::scale_misplaced;
         const std::int64_t n =
             std::min(a_.from.empty() ? 1 : slots_of(a_.from.front()), a_.to.empty() ? 1 : slots_of(a_.to.front()));
         const bool by_block = std::ranges::all_of(m, [&](const auto& p) { return (p.first - p.second) % n == 0; });
         return by_block || n == 1 ? FaultClass::wrong_block_id : FaultClass::wrong_block_size;
       });
}

void OtherIds::list(bool at_source, const Ids& table, const Ids& ids, const std::string& why) {
  if (ids == table) return;
  const std::string memory = memory_of(views(at_source));
  const bool old = outdated(w_, i_, memory, ids, table);
  w_.attempt(old ? FaultClass::stale_block : FaultClass::wrong_block_id,
             "blocks " + list_text(ids) + " instead of " + list_text(table) + " of " + memory +
                 (old ? " (those of an older table)" : why) + " in " + symbol_of(w_, i_),
             i_, with(at_source, ids));
}

void OtherIds::shown_lists() {
  constexpr double each_id = 0.6;
  for (const bool at_source : {true, false}) {
    const auto ids = table(at_source);
    if (!ids || ids->empty()) continue;
    std::vector<const ObservedMove*> all;
    for (const ObservedMove& s : observed_moves_) all.push_back(&s);
    const Ids shown = table_shown(w_, i_, at_source, all);
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < std::min(shown.size(), ids->size()); ++k) wrong += shown[k] != (*ids)[k];
    // Those of an older table are one mistake.
    const bool old = outdated(w_, i_, memory_of(views(at_source)), shown, *ids);
    w_.penalty(old ? 0 : each_id * (static_cast<double>(wrong) - 1));
    list(at_source, *ids, shown, "");
  }
}

void OtherIds::mistaken_list(bool at_source, const Ids& table) {
  constexpr double unlikely = 1;
  const auto attempt = [&](const Ids& ids, const std::string& why) { list(at_source, table, ids, why); };
  Ids ids = table;
  std::ranges::reverse(ids);
  attempt(ids, " (reversed)");
  ids = table;
  std::ranges::sort(ids);
  attempt(ids, " (sorted)");
  for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = table.front() + static_cast<std::int64_t>(k);
  attempt(ids, " (the first id and those that follow it)");
  for (std::size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<std::int64_t>(k);
  attempt(ids, " (positions taken for ids)");
  for (const std::int64_t shift : {1, -1}) {
    ids = table;
    for (auto& id : ids)
      if (id != no_block) id += shift;
    attempt(ids, " (ids shifted by " + std::to_string(shift) + ")");
    ids = table;
    std::rotate(ids.begin(), shift > 0 ? ids.begin() + 1 : ids.end() - 1, ids.end());
    attempt(ids, " (shifted by one position)");
  }
  for (std::size_t k = 1; k < table.size(); ++k)
    attempt({table.begin() + static_cast<std::ptrdiff_t>(k), table.end()},
            " (the first " + std::to_string(k) + " left out)");
  for (std::size_t k = 0; k < table.size(); ++k) {  // a null id
    ids = table;
    ids[k] = no_block;
    w_.penalty(table[k] == 0 ? 0 : unlikely);  // nothing makes another id look like none
    attempt(ids, " (one treated as none)");
    w_.penalty(0);
    ids[k] = 0;
    attempt(ids, " (block 0 instead of one)");
  }
}

void OtherIds::list_of_another(bool at_source, const Ids& table) {
  const std::string memory = memory_of(views(at_source));
  const ScenarioRequest request = *w_.request_at(i_, a_.request);
  const auto attempt = [&](const Ids& ids, const std::string& whose) {
    list(at_source, table, ids, " (those of " + whose + ")");
  };
  if (const auto& across = views(!at_source); !across.empty()) {
    if (const auto other = table_of(w_, i_, a_.request, memory_of(across))) attempt(*other, memory_of(across));
  }
  for (const auto& [name, r] : w_.scenario().requests) {
    if (name == a_.request) continue;
    if (const auto other = r.blocks.find(memory); other != r.blocks.end()) attempt(other->second, name);
  }
  for (const auto& [name, other] : request.blocks) {
    if (name != memory) attempt(other, name);
  }
}

void OtherIds::lists() {
  for (const bool at_source : {true, false}) {
    const auto ids = table(at_source);
    if (!ids || ids->empty()) continue;
    mistaken_list(at_source, *ids);
    list_of_another(at_source, *ids);
    for (std::size_t k = 1; k < ids->size(); ++k) {
      w_.attempt(
          FaultClass::truncated,
          "only the first " + std::to_string(k) + " blocks of " + memory_of(views(at_source)) + " in " + symbol_of(w_, i_),
          i_, with(at_source, {ids->begin(), ids->begin() + static_cast<std::ptrdiff_t>(k)}));
    }
  }
}

void OtherIds::other_tables() {
  if (a_.from.empty() || a_.to.empty()) return;
  const auto tables = w_.request_at(i_, a_.request)->blocks;
  for (const auto& [p, from] : tables) {
    for (const auto& [q, to] : tables) {
      if (p == memory_of(a_.from) || q == memory_of(a_.to) || p == q) continue;
      Action body = a_;
      body.from_blocks = from, body.to_blocks = to;
      w_.attempt(FaultClass::wrong_block_id, "blocks of " + p + " and " + q + " in " + symbol_of(w_, i_), i_, body);
    }
  }
}

void OtherIds::wide_entries() {
  const auto r = w_.request_at(i_, a_.request);
  if (!r || r->tokens < 2) return;
  std::vector<std::int64_t> to, from;
  for (std::int64_t t = 0; t < r->tokens; ++t)
    to.push_back(r->first_token + t), from.push_back(t % 2 ? 0 : r->first_token + t / 2);
  Action body = a_;
  body.pick.tokens = from;
  if (a_.op == Operation::move) body.pick_to.tokens = to;
  w_.attempt(FaultClass::dtype_reinterpreted, "positions of 64 bits read as positions of 32 in " + symbol_of(w_, i_), i_,
             body);
  for (const bool at_source : {true, false}) {
    const auto table = views(at_source).empty() ? std::nullopt : table_of(w_, i_, a_.request, memory_of(views(at_source)));
    if (!table || table->size() < 2) continue;
    Ids ids;
    for (std::size_t k = 0; k < table->size(); ++k) ids.push_back(k % 2 ? 0 : (*table)[k / 2]);
    w_.attempt(FaultClass::dtype_reinterpreted, "block ids of 64 bits read as ids of 32 in " + symbol_of(w_, i_), i_,
               with(at_source, std::move(ids)));
  }
}

}  // namespace

void generate_lists(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!through_views(a)) continue;
    generate_narrow_ids(search, i);
    OtherIds other(search, i);
    const bool moves = a.op == Operation::move, gathers = moves || a.op == Operation::read;
    if (gathers) other.axes();
    other.lists();
    if (moves) other.other_tables();
    if (gathers) other.wide_entries();
    if (gathers) other.tokens();
  }
}

void generate_shown_lists(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    if (through_views(search.action(i))) OtherIds(search, i).shown_lists();
  }
}

}  // namespace kvcts::scenario
