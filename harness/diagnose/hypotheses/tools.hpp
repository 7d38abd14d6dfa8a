// Shared by the generators: words for steps and lists, the extents of a view, block tables, votes of the bytes, keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/hypothesis_search.hpp"

namespace kvcts::scenario {

using Ids = std::vector<std::int64_t>;

/// A step in words: its name in quotes.
std::string symbol_of(const HypothesisSearch& search, std::size_t step);
/// A list in words; only the start of a long one.
std::string list_text(const Ids& list);
/// "heads [2, 3] went to [0, 1]", "K went to V", "K and V are exchanged". `axis`: "layers", "kv", ...
std::string went_to(const std::string& axis, const Ids& from, const Ids& to);
std::string instead_of(const std::string& axis, const Ids& is, const Ids& was);

/// Handles elements through its views: move, read, write, put, get, and a fill of a request.
bool through_views(const Action& a);
/// Moves, puts, gets or copies.
bool brings(const Action& a);
/// No other step brings anything to the memory that this one does.
bool alone_to_its_memory(const HypothesisSearch& search, std::size_t step);
/// Whether a success, or a failure, was reported.
bool reported_done(const HypothesisSearch& search);
bool reported_failure(const HypothesisSearch& search);
/// For a missed assignment that only sets a request's number of tokens: too many or too few from then on. None for others.
FaultClass class_of_length(const HypothesisSearch& search, std::size_t step);
/// The meaning of missing steps: the only ones, some of several kinds, scales.
FaultClass class_of_absence(const HypothesisSearch& search, const std::set<std::size_t>& steps);
/// The memory at one end of a step: the first of several, "" when there is none.
std::string memory_of(const std::vector<View>& views);
/// Slots per block.
std::int64_t slots_of(const View& view);
/// First and last + 1 coordinate of an axis.
std::pair<std::int64_t, std::int64_t> domain_of(const View& view, layout::Axis axis);

/// The entry of a request's table in a view's memory that has a token; -1: none has.
std::int64_t entry_of(const ScenarioRequest& request, const View& view, std::int64_t token);
/// A request's table in a memory at a step, including earlier assignments.
std::optional<Ids> table_of(const HypothesisSearch& search, std::size_t step, const std::string& request,
                            const std::string& memory);
/// A step's table at one of its views: its own list, or the table of its request.
std::optional<Ids> table_at(const HypothesisSearch& search, std::size_t step, bool at_source, std::size_t view = 0);

template <class Key, class Count>
Key most_voted(const std::map<Key, Count>& votes) {
  return std::ranges::max_element(votes, [](const auto& a, const auto& b) { return a.second < b.second; })->first;
}

/// Coordinate at the destination -> the one that is there.
using Mapping = std::map<std::int64_t, std::int64_t>;

/// What each coordinate of an axis holds, by most of its elements that come from the source at all.
template <class Axis>
Mapping mapping_of(const std::vector<ObservedMove>& observed_moves, Axis axis) {
  std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> votes;
  for (const ObservedMove& s : observed_moves) {
    if (!s.from || !s.taken) continue;
    const std::optional<std::int64_t> at = axis(*s.at), from = axis(*s.from);
    if (at && from) ++votes[*at][*from];
  }
  Mapping out;
  for (const auto& [at, counts] : votes) out[at] = most_voted(counts);
  return out;
}

inline bool is_identity(const Mapping& mapping) {
  return std::ranges::all_of(mapping, [](const auto& pair) { return pair.first == pair.second; });
}

/// Position in a table -> id -> number of elements that vote for it.
using TableVotes = std::map<std::int64_t, std::map<std::int64_t, std::int64_t>>;
Ids outvoted(Ids table, const TableVotes& votes);
/// The table at the first view of an end as these elements of the step show it. Empty when they show none.
Ids table_shown(const HypothesisSearch& search, std::size_t step, bool at_source,
                const std::vector<const ObservedMove*>& part);

/// Ids of a table that the request had before, at the positions where they differ from the current ones.
bool outdated(const HypothesisSearch& search, std::size_t step, const std::string& memory, const Ids& ids, const Ids& table);

/// Names of all key fields that steps use.
std::set<std::string> key_fields(const HypothesisSearch& search);
void leave_out_of_keys(CandidateSteps& bodies, const std::string& field);
/// What all puts do when a key exists: keep | replace.
void let_win(CandidateSteps& bodies, const std::string& how);

}  // namespace kvcts::scenario
