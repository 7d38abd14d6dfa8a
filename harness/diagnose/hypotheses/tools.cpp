#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;

std::string symbol_of(const HypothesisSearch& search, std::size_t step) {
  return "'" + search.scenario().steps[step].name + "'";
}

namespace {

std::string of_axis(const std::string& axis, const Ids& values, bool named = true) {
  if (axis != "kv") return (named ? axis + " " : "") + list_text(values);
  std::string out;
  for (const std::int64_t value : values) out += (out.empty() ? "" : " and ") + std::string(value == 0 ? "K" : "V");
  return out;
}

}  // namespace

std::string went_to(const std::string& axis, const Ids& from, const Ids& to) {
  if (axis == "kv" && from.size() == 2 && from[0] == to[1] && from[1] == to[0]) return "K and V are exchanged";
  return of_axis(axis, from) + " went to " + of_axis(axis, to, false);
}

std::string instead_of(const std::string& axis, const Ids& is, const Ids& was) {
  return of_axis(axis, is) + " instead of " + of_axis(axis, was, false);
}

std::string list_text(const Ids& list) {
  std::string out = "[";
  for (std::size_t i = 0; i < list.size() && i < 12; ++i)
    out += (i ? ", " : "") + (list[i] == no_block ? "none" : std::to_string(list[i]));
  return out + (list.size() > 12 ? ", ...]" : "]");
}

bool through_views(const Action& a) {
  return a.op == Operation::move || a.op == Operation::read || a.op == Operation::write || a.op == Operation::put ||
         a.op == Operation::get || (a.op == Operation::fill && !a.request.empty());
}

bool brings(const Action& a) {
  return a.op == Operation::move || a.op == Operation::get || a.op == Operation::put || a.op == Operation::copy;
}

bool alone_to_its_memory(const HypothesisSearch& search, std::size_t step) {
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i)
    if (i != step && brings(search.action(i)) && memory_of(search.action(i).to) == memory_of(search.action(step).to))
      return false;
  return true;
}

std::string memory_of(const std::vector<View>& views) { return views.empty() ? "" : memory_of(views.front()); }

std::int64_t slots_of(const View& view) {
  std::int64_t n = 1;
  for (const auto& plane : cache_of(view).planes) n = std::max(n, layout::domain(plane).hi[Axis::slot]);
  return n;
}

std::pair<std::int64_t, std::int64_t> domain_of(const View& view, Axis axis) {
  std::pair<std::int64_t, std::int64_t> out{INT64_MAX, INT64_MIN};
  for (const auto& plane : cache_of(view).planes) {
    const layout::Box box = layout::domain(plane);
    out.first = std::min(out.first, box.lo[axis]), out.second = std::max(out.second, box.hi[axis]);
  }
  return out;
}

std::int64_t entry_of(const ScenarioRequest& request, const View& view, std::int64_t token) {
  if (token < request.first_token) return -1;
  const std::int64_t position = (token - request.first_token) / slots_of(view);
  const Ids positions = positions_in(request, view);
  if (positions.empty()) return position;
  const auto found = std::ranges::find(positions, position);
  return found == positions.end() ? -1 : found - positions.begin();
}

std::optional<Ids> table_of(const HypothesisSearch& search, std::size_t step, const std::string& request,
                            const std::string& memory) {
  const auto r = search.request_at(step, request);
  if (!r) return std::nullopt;
  const auto t = r->blocks.find(memory);
  return t == r->blocks.end() ? std::nullopt : std::optional(t->second);
}

std::optional<Ids> table_at(const HypothesisSearch& search, std::size_t step, bool at_source, std::size_t view) {
  const Action& a = search.action(step);
  const auto& given = at_source ? a.from_blocks : a.to_blocks;
  const auto& views = at_source ? a.from : a.to;
  if (given || view >= views.size()) return given;
  return table_of(search, step, a.request, memory_of(views[view]));
}

Ids outvoted(Ids table, const TableVotes& votes) {
  for (const auto& [position, counts] : votes) {
    if (position >= 0 && position < static_cast<std::int64_t>(table.size()))
      table[static_cast<std::size_t>(position)] = most_voted(counts);
  }
  return table;
}

Ids table_shown(const HypothesisSearch& search, std::size_t step, bool at_source,
                const std::vector<const ObservedMove*>& part) {
  const Action& a = search.action(step);
  const auto& views = at_source ? a.from : a.to;
  const auto table = table_at(search, step, at_source);
  const auto request = search.request_at(step, a.request);
  if (!table || !request || views.empty()) return table.value_or(Ids{});
  const auto entry = [&](std::int64_t token) { return entry_of(*request, views.front(), token); };
  TableVotes votes;
  for (const ObservedMove* s : part) {
    if (!s->from || !s->at) continue;
    if (at_source && s->asked.token && s->from->block >= 0) ++votes[entry(*s->asked.token)][s->from->block];
    if (!at_source && s->from->token && s->at->block >= 0)
      ++votes[entry(picked_destination(a.pick.tokens, a.pick_to.tokens, *s->from->token))][s->at->block];
  }
  return outvoted(*table, votes);
}

bool outdated(const HypothesisSearch& search, std::size_t step, const std::string& memory, const Ids& ids,
              const Ids& table) {
  for (const auto& old : search.older_tables(step, search.action(step).request, memory)) {
    bool all = ids.size() == table.size() && ids != table;
    for (std::size_t k = 0; k < ids.size() && all; ++k) all = ids[k] == table[k] || (k < old.size() && ids[k] == old[k]);
    if (all) return true;
  }
  return false;
}

std::set<std::string> key_fields(const HypothesisSearch& search) {
  std::set<std::string> out;
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    const Action& a = search.action(i);
    if (a.op != Operation::put && a.op != Operation::get) continue;
    for (const auto& [field, value] : a.key) out.insert(field);
  }
  return out;
}

void leave_out_of_keys(CandidateSteps& bodies, const std::string& field) {
  for (auto& body : bodies) {
    for (Action& a : body) a.key.erase(field);
  }
}

void let_win(CandidateSteps& bodies, const std::string& how) {
  for (auto& body : bodies) {
    for (Action& a : body) {
      if (a.op == Operation::put) a.on_exists = how;
    }
  }
}

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

}  // namespace kvcts::scenario
