// Steps that happened at another time.
#include <algorithm>
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

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
