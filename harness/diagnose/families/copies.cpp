// A transfer as its list of copies: other lengths, copies joined or posted twice, a truncated list. Each hypothesis is the
// intended list with one change, so it also explains logs of raw copies that no view of a memory can make.
#include <algorithm>
#include <numeric>

#include "diagnose/families/tools.hpp"

namespace kvcts::script {

namespace {

using Copies = std::vector<Action>;

/// One copy, and where in the arena it is. A fill comes from nowhere: from backing -1, at the offset where it goes.
struct Copy {
  Place from, to;
  std::int64_t bytes{0};
};

// What a move copies, or a fill sets, when it runs as written, in order. Nothing if it moves halves of bytes, or goes
// through a buffer.
std::vector<Copy> copies_of(Workshop& w, std::size_t step) {
  const Evidence& e = w.evidence();
  const Tape tape = record(w.script(), e.arena, {Play{w.script().steps[step].name, w.action(step)}}, w.locators());
  std::vector<Copy> out;
  for (const Op& op : tape.ops) {
    if (op.kind == Op::Kind::check) continue;
    if (op.kind == Op::Kind::pattern && op.src == 0 && op.dst_backing < static_cast<int>(tape.own)) {
      out.push_back({{-1, op.dst}, {op.dst_backing, op.dst}, op.n});
      continue;
    }
    if (op.kind != Op::Kind::copy || op.src_backing >= static_cast<int>(tape.own) ||
        op.dst_backing >= static_cast<int>(tape.own))
      return {};
    out.push_back({{op.src_backing, op.src}, {op.dst_backing, op.dst}, op.n});
  }
  return out;
}

// The longest stretches that are adjacent at both ends, in the order of their first bytes to be moved.
std::vector<Copy> stretches(const std::vector<Copy>& list) {
  std::vector<std::size_t> order(list.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(list[i].to.backing, list[i].to.offset); });
  std::vector<std::pair<std::size_t, Copy>> found;
  for (const std::size_t i : order) {
    const auto follows = [&](const Place& before, const Place& here) {
      return before.backing == here.backing && before.offset + found.back().second.bytes == here.offset;
    };
    if (!found.empty() && follows(found.back().second.to, list[i].to) && follows(found.back().second.from, list[i].from)) {
      found.back().first = std::min(found.back().first, i);
      found.back().second.bytes += list[i].bytes;
    } else {
      found.emplace_back(i, list[i]);
    }
  }
  std::ranges::sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<Copy> out;
  for (const auto& [first, copy] : found) out.push_back(copy);
  return out;
}

Copies written_out(const Workshop& w, std::size_t step, const std::vector<Copy>& list) {
  Copies out;
  for (const Copy& copy : list) {
    Action a;
    a.op = copy.from.backing < 0 ? Operation::fill : Operation::copy;
    a.splits = w.action(step).splits, a.otherwise = w.action(step).otherwise;
    a.value = w.action(step).value;
    a.to.resize(1);
    if (copy.from.backing >= 0) {
      a.from.resize(1);
      a.from[0].of = w.evidence().arena.backings()[static_cast<std::size_t>(copy.from.backing)].name,
      a.from_offset = copy.from.offset;
    }
    a.to[0].of = w.evidence().arena.backings()[static_cast<std::size_t>(copy.to.backing)].name, a.to_offset = copy.to.offset;
    a.bytes = copy.bytes;
    out.push_back(std::move(a));
  }
  return out;
}

/// The intended list, and what is wrong.
struct List {
  Workshop& w;
  std::size_t step;
  std::vector<Copy> meant;
  std::vector<WrongRange> wrong;
  std::string what;
};

bool attempt(const List& list, FaultClass fault_class, const std::string& words, const std::vector<Copy>& copies) {
  Bodies bodies = list.w.bodies();
  bodies[list.step] = written_out(list.w, list.step, copies);
  return list.w.attempt(fault_class, words + " in " + name_of(list.w, list.step), std::move(bodies));
}

// Right bytes from the start of a copy; all if none of it is wrong.
std::int64_t right_head(const List& list, const Copy& copy) {
  std::int64_t right = copy.bytes;
  for (const WrongRange& range : list.wrong) {
    if (range.backing == copy.to.backing && range.end > copy.to.offset && range.begin < copy.to.offset + copy.bytes)
      right = std::min(right, std::max<std::int64_t>(0, range.begin - copy.to.offset));
  }
  return right;
}

// Wrong bytes after the end of a copy.
std::int64_t wrong_tail(const List& list, const Copy& copy) {
  const std::int64_t end = copy.to.offset + copy.bytes;
  for (const WrongRange& range : list.wrong) {
    if (range.backing == copy.to.backing && range.begin <= end && range.end > end) return range.end - end;
  }
  return 0;
}

// All copies of one length, or only those where it shows.
void shorter(const List& list) {
  std::vector<Copy> own = list.meant;
  std::set<std::int64_t> lengths;
  std::size_t changed = 0;
  for (Copy& copy : own) {
    const std::int64_t head = right_head(list, copy);
    if (head == copy.bytes) continue;
    lengths.insert(head);
    copy.bytes = head;
    ++changed;
  }
  if (changed == 0) return;
  for (const std::int64_t length : lengths) {
    if (length == 0) continue;
    std::vector<Copy> all = list.meant;
    for (Copy& copy : all) copy.bytes = std::min(copy.bytes, length);
    attempt(list, FaultClass::truncated,
            list.what + " of " + std::to_string(length) + " bytes instead of " + std::to_string(list.meant.front().bytes),
            all);
  }
  std::erase_if(own, [](const Copy& copy) { return copy.bytes == 0; });
  if (lengths == std::set<std::int64_t>{0})
    return;  // none is too short: some are missing entirely, and propose_pieces knows what they have in common
  attempt(list, FaultClass::truncated,
          std::to_string(changed) + " of " + std::to_string(list.meant.size()) + " " + list.what + " are too short", own);
}

void longer(const List& list) {
  std::set<std::int64_t> lengths;
  std::vector<Copy> own = list.meant;
  std::size_t changed = 0;
  for (Copy& copy : own) {
    const std::int64_t tail = wrong_tail(list, copy);
    if (tail == 0) continue;
    lengths.insert(copy.bytes + tail);
    for (const std::int64_t f : {2, 3, 4, 8, 16}) lengths.insert(copy.bytes * f);
    copy.bytes += tail;
    ++changed;
  }
  if (changed == 0) return;
  attempt(list, FaultClass::over_read,
          std::to_string(changed) + " of " + std::to_string(list.meant.size()) + " " + list.what + " are too long", own);
  for (const std::int64_t times : {2, 4}) {  // the size of another element
    std::vector<Copy> all = list.meant;
    for (Copy& copy : all) copy.bytes *= times;
    attempt(list, FaultClass::over_read, list.what + " " + std::to_string(times) + " times as long", all);
  }
  for (const std::int64_t length : lengths) {
    std::vector<Copy> all = list.meant;
    for (Copy& copy : all) copy.bytes = std::max(copy.bytes, length);
    attempt(list, FaultClass::over_read,
            list.what + " of " + std::to_string(length) + " bytes instead of " + std::to_string(list.meant.front().bytes),
            all);
  }
}

// Consecutive copies in the list, taken for one stretch at both ends.
void joined(const List& list) {
  const auto join = [&](const std::function<bool(const Copy&, const Copy&)>& follows, const std::string& words) {
    std::vector<Copy> joint;
    const Copy* last = nullptr;
    for (const Copy& copy : list.meant) {
      if (last && last->from.backing == copy.from.backing && last->to.backing == copy.to.backing && follows(*last, copy))
        joint.back().bytes += copy.bytes;
      else
        joint.push_back(copy);
      last = &copy;
    }
    if (joint.size() < list.meant.size()) attempt(list, FaultClass::wrong_stride, words, joint);
  };
  std::set<std::int64_t> steps;  // from one to the next, at the source: a block, padded
  for (std::size_t i = 1; i < list.meant.size(); ++i)
    steps.insert(list.meant[i].from.offset - list.meant[i - 1].from.offset);
  for (const std::int64_t step : steps) {
    if (step <= 0 || steps.size() > 16) continue;
    join([&](const Copy& a, const Copy& b) { return b.from.offset - a.from.offset == step && b.to.offset > a.to.offset; },
         "neighbours at the source joined to one copy, padding between them left out");
  }
  steps.clear();
  for (std::size_t i = 1; i < list.meant.size(); ++i) steps.insert(list.meant[i].to.offset - list.meant[i - 1].to.offset);
  for (const std::int64_t step : steps) {
    if (step <= 0 || steps.size() > 16) continue;
    join([&](const Copy& a, const Copy& b) { return b.to.offset - a.to.offset == step; },
         "neighbours at the destination joined to one copy");
  }
}

// The list ends early.
void cut(const List& list) {
  for (std::size_t n = 1; n < list.meant.size() && n < 64; ++n) {
    attempt(list, FaultClass::truncated,
            "only the first " + std::to_string(n) + " of " + std::to_string(list.meant.size()) + " " + list.what,
            {list.meant.begin(), list.meant.begin() + static_cast<std::ptrdiff_t>(n)});
  }
}

}  // namespace

void propose_copies(Workshop& w) {
  for (std::size_t i = 0; i < w.script().steps.size() && !w.spent(); ++i) {
    const bool fills = w.action(i).op == Operation::fill;
    if (w.action(i).op != Operation::move && !fills) continue;
    std::vector<Copy> meant;
    try {
      meant = copies_of(w, i);
    } catch (const std::exception&) {
      continue;
    }
    if (!meant.empty() && meant.size() <= 4096) {
      List list{w, i, fills ? stretches(meant) : std::move(meant), {}, fills ? "fills" : "copies"};
      for (const WrongRange& range : w.evidence().mismatch.ranges) {
        if (range.check == w.clues().check) list.wrong.push_back(range);
      }
      shorter(list), longer(list), cut(list);
      if (!fills) joined(list);
      List whole{w, i, stretches(list.meant), list.wrong, list.what};
      if (!w.found() && whole.meant.size() < list.meant.size()) shorter(whole), longer(whole), cut(whole);
    }
  }
}

}  // namespace kvcts::script
