// A transfer as its list of copies: other lengths, copies joined or posted twice, a truncated list. Each hypothesis is the
// intended list with one change, so it also explains logs of raw copies that no view of a memory can make.
#include <algorithm>

#include "diagnose/hypotheses/copy_list.hpp"

namespace kvcts::scenario {

namespace {

/// The intended list, and what is wrong.
struct List {
  HypothesisSearch& search;
  std::size_t step;
  std::vector<ListedCopy> meant;
  std::vector<WrongRange> wrong;
  std::string what;
};

bool attempt(const List& list, FaultClass fault_class, const std::string& words, const std::vector<ListedCopy>& copies) {
  CandidateSteps bodies = list.search.bodies();
  bodies[list.step] = written_out(list.search, list.step, copies);
  return list.search.attempt(fault_class, words + " in " + symbol_of(list.search, list.step), std::move(bodies));
}

// Right bytes from the start of a copy; all if none of it is wrong.
std::int64_t right_head(const List& list, const ListedCopy& copy) {
  std::int64_t right = copy.bytes;
  for (const WrongRange& range : list.wrong) {
    if (range.buffer == copy.to.buffer && range.end > copy.to.offset && range.begin < copy.to.offset + copy.bytes)
      right = std::min(right, std::max<std::int64_t>(0, range.begin - copy.to.offset));
  }
  return right;
}

// Wrong bytes after the end of a copy.
std::int64_t wrong_tail(const List& list, const ListedCopy& copy) {
  const std::int64_t end = copy.to.offset + copy.bytes;
  for (const WrongRange& range : list.wrong) {
    if (range.buffer == copy.to.buffer && range.begin <= end && range.end > end) return range.end - end;
  }
  return 0;
}

// All copies of one length, or only those where it shows.
void shorter(const List& list) {
  std::vector<ListedCopy> own = list.meant;
  std::set<std::int64_t> lengths;
  std::size_t changed = 0;
  for (ListedCopy& copy : own) {
    const std::int64_t head = right_head(list, copy);
    if (head == copy.bytes) continue;
    lengths.insert(head);
    copy.bytes = head;
    ++changed;
  }
  if (changed == 0) return;
  for (const std::int64_t length : lengths) {
    if (length == 0) continue;
    std::vector<ListedCopy> all = list.meant;
    for (ListedCopy& copy : all) copy.bytes = std::min(copy.bytes, length);
    attempt(list, FaultClass::truncated,
            list.what + " of " + std::to_string(length) + " bytes instead of " + std::to_string(list.meant.front().bytes),
            all);
  }
  std::erase_if(own, [](const ListedCopy& copy) { return copy.bytes == 0; });
  if (lengths == std::set<std::int64_t>{0})
    return;  // none is too short: some are missing entirely, and generate_pieces knows what they have in common
  attempt(list, FaultClass::truncated,
          std::to_string(changed) + " of " + std::to_string(list.meant.size()) + " " + list.what + " are too short", own);
}

void longer(const List& list) {
  std::set<std::int64_t> lengths;
  std::vector<ListedCopy> own = list.meant;
  std::size_t changed = 0;
  for (ListedCopy& copy : own) {
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
    std::vector<ListedCopy> all = list.meant;
    for (ListedCopy& copy : all) copy.bytes *= times;
    attempt(list, FaultClass::over_read, list.what + " " + std::to_string(times) + " times as long", all);
  }
  for (const std::int64_t length : lengths) {
    std::vector<ListedCopy> all = list.meant;
    for (ListedCopy& copy : all) copy.bytes = std::max(copy.bytes, length);
    attempt(list, FaultClass::over_read,
            list.what + " of " + std::to_string(length) + " bytes instead of " + std::to_string(list.meant.front().bytes),
            all);
  }
}

// Consecutive copies in the list, taken for one stretch at both ends.
void joined(const List& list) {
  const auto join = [&](const std::function<bool(const ListedCopy&, const ListedCopy&)>& follows, const std::string& words) {
    std::vector<ListedCopy> joint;
    const ListedCopy* last = nullptr;
    for (const ListedCopy& copy : list.meant) {
      if (last && last->from.buffer == copy.from.buffer && last->to.buffer == copy.to.buffer && follows(*last, copy))
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
    join([&](const ListedCopy& a,
             const ListedCopy& b) { return b.from.offset - a.from.offset == step && b.to.offset > a.to.offset; },
         "neighbours at the source joined to one copy, padding between them left out");
  }
  steps.clear();
  for (std::size_t i = 1; i < list.meant.size(); ++i) steps.insert(list.meant[i].to.offset - list.meant[i - 1].to.offset);
  for (const std::int64_t step : steps) {
    if (step <= 0 || steps.size() > 16) continue;
    join([&](const ListedCopy& a, const ListedCopy& b) { return b.to.offset - a.to.offset == step; },
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

void generate_copies(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const bool fills = search.action(i).op == Operation::fill;
    if (search.action(i).op != Operation::move && !fills) continue;
    std::vector<ListedCopy> meant;
    try {
      meant = copies_of(search, i);
    } catch (const std::exception&) {
      continue;
    }
    if (!meant.empty() && meant.size() <= 4096) {
      List list{search, i, fills ? join_contiguous(meant) : std::move(meant), {}, fills ? "fills" : "copies"};
      for (const WrongRange& range : search.evidence().mismatch.ranges) {
        if (range.check == search.attributions().check) list.wrong.push_back(range);
      }
      shorter(list), longer(list), cut(list);
      if (!fills) joined(list);
      List whole{search, i, join_contiguous(list.meant), list.wrong, list.what};
      if (!search.found() && whole.meant.size() < list.meant.size()) shorter(whole), longer(whole), cut(whole);
    }
  }
}

}  // namespace kvcts::scenario
