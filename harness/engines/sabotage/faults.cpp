#include "engines/sabotage/faults.hpp"

#include <algorithm>

namespace kvcts::engines::sabotage {
namespace {

constexpr Fault none{.name = "none"};

const Fault* find_fault(const std::string& name) {
  if (name == none.name) return &none;
  for (const auto rows : {list_faults(), byte_faults(), time_faults()}) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Fault& row) { return row.name == name; });
    if (found != rows.end()) return &*found;
  }
  throw Failure{KVCTS_E_INVALID, "there is no fault \"" + name + "\"; the rows are in harness/engines/sabotage"};
}

std::int64_t take_signed(const OpenArgs& args, const std::string& key, std::int64_t fallback) {
  const std::string text = args.take(key, std::to_string(fallback));
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
  }
  if (used != text.size() || text.empty())
    throw Failure{KVCTS_E_INVALID, "option " + key + " is \"" + text + "\", expected a whole number"};
  return value;
}

/// One of two words; true: the second.
bool take_choice(const OpenArgs& args, const std::string& key, const std::string& first, const std::string& second) {
  const std::string word = args.take(key, first);
  if (word != first && word != second)
    throw Failure{KVCTS_E_INVALID, key + " is \"" + word + "\", expected " + first + " or " + second};
  return word == second;
}

}  // namespace

std::pair<const std::vector<ByteRange>*, std::size_t> FaultJob::find(Address at) const {
  for (const auto* list : {&remote, &local}) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      if ((*list)[i].holds(at)) return {list, i};
    }
  }
  return {nullptr, 0};
}

bool FaultJob::inside(Address at, std::int64_t shift, std::uint64_t bytes) const {
  const auto [list, i] = find(at);
  if (list == nullptr) return false;
  const auto start = static_cast<std::int64_t>(at - (*list)[i].address) + shift;
  return start >= 0 && static_cast<std::uint64_t>(start) + bytes <= (*list)[i].bytes;
}

InjectedFault take_wrong(const OpenArgs& args, const std::string& prefix) {
  InjectedFault wrong;
  const std::string name = args.take(prefix + "fault", "none");
  wrong.fault = find_fault(name);
  wrong.job.n = take_signed(args, prefix + "n", 1);
  wrong.job.every = take_choice(args, prefix + "pick", "last", "every");
  wrong.job.half = take_choice(args, prefix + "to", "next", "half");
  wrong.job.dtype = args.take(prefix + "dtype", "");
  wrong.delay = std::chrono::microseconds(args.take_number(prefix + "delay_us", 60'000));
  if (wrong.job.n == 0 || ((name == "drop_every" || name == "repeat" || name == "pad") && wrong.job.n < 0)) {
    throw Failure{KVCTS_E_INVALID,
                  prefix + "n is " + std::to_string(wrong.job.n) + ", expected 1 or more for fault " + name};
  }
  return wrong;
}

const FaultMove* last_of(const FaultMoves& moves) {
  const auto last = std::max_element(moves.begin(), moves.end(),
                                     [](const FaultMove& a, const FaultMove& b) { return a.to + a.bytes < b.to + b.bytes; });
  return last == moves.end() ? nullptr : &*last;
}

std::uint64_t bytes_of(const FaultMoves& moves) {
  std::uint64_t bytes = 0;
  for (const FaultMove& move : moves) bytes += move.bytes;
  return bytes;
}

}  // namespace kvcts::engines::sabotage
