// What families of hypotheses have in common: words for steps and lists, what a view has room for, block tables, votes of
// the bytes, keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/workshop.hpp"

namespace kvcts::script {

using Ids = std::vector<std::int64_t>;

/// A step in words: its name in quotes.
std::string name_of(const Workshop& w, std::size_t step);
/// A list in words; of a long one the begin.
std::string list_words(const Ids& list);

/// Elements go through its views: move, read, write, put, get, and a fill of a request.
bool through_views(const Action& a);
/// The memory at an end of a step; of several the first one, "" where there is none.
std::string memory_of(const std::vector<View>& views);
/// Slots of a block.
std::int64_t slots_of(const View& view);
/// First and last + 1 coordinate of an axis.
std::pair<std::int64_t, std::int64_t> domain_of(const View& view, layout::Axis axis);

/// What a request has in a memory at a step, with what was assigned before it.
std::optional<Ids> table_of(const Workshop& w, std::size_t step, const std::string& request, const std::string& memory);
/// What a step has at one of its views: the list that it says itself, or the table of its request.
std::optional<Ids> table_at(const Workshop& w, std::size_t step, bool at_source, std::size_t view = 0);

template <class Key, class Count>
Key most_voted(const std::map<Key, Count>& votes) {
  return std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

/// Position in a table -> id -> how many elements say so.
using TableVotes = std::map<std::int64_t, std::map<std::int64_t, std::int64_t>>;
Ids outvoted(Ids table, const TableVotes& votes);
/// The table at the first view of an end as these elements of the step show it. Empty where there is none.
Ids table_shown(const Workshop& w, std::size_t step, bool at_source, const std::vector<const Sighting*>& part);

/// Ids of a table that the request had before, in the places where they differ from those that it has.
bool outdated(const Workshop& w, std::size_t step, const std::string& memory, const Ids& ids, const Ids& table);

/// Names of all fields of keys that steps use.
std::set<std::string> key_fields(const Workshop& w);
void leave_out_of_keys(Bodies& bodies, const std::string& field);
/// What is kept where a key exists, for all puts: keep | replace.
void let_win(Bodies& bodies, const std::string& how);

}  // namespace kvcts::script
