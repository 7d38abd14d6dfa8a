#include "run/store/merge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "case/text.hpp"
#include "run/store/store.hpp"

namespace kvcts::store {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Part {
  fs::path folder;
  RunReader reader;
  RunInfo info;
};

/// What must be equal in all parts of a plan, under display names.
std::map<std::string, std::string> plan_of(const RunInfo& info) {
  std::map<std::string, std::string> out{{"suite", info.suite},
                                         {"selection", info.part.value("selection", "")},
                                         {"seed", fmt::to_string(info.seed)},
                                         {"kvcts", info.version},
                                         {"number of shards", fmt::to_string(info.part.value("shards", 0))},
                                         {"tries", fmt::format("{}, of failed cases {} more", info.repeat, info.retries)},
                                         {"number of cases", fmt::to_string(info.part.value("whole", std::int64_t{0}))}};
  for (const char* key : {"commit", "cases", "golden"}) out[key] = info.provenance.value(key, "");
  return out;
}

void expect_one_cut(const Part& part, const Part& first) {
  if (part.info.part.value("times", "") == first.info.part.value("times", "")) return;
  throw Error(
      fmt::format("run {}: expected the shards of {}, found a cut by other times; run all shards with the same copy of "
                  "the file of --shard-times, or all without it",
                  part.folder.string(), first.folder.string()));
}

/// A store's seals are no secret: what was read is a part of some plan only if its figures agree.
void expect_place_of_each_case(const json& part, const RunReader& reader, const fs::path& folder) {
  const int shard = part.value("shard", 0), shards = part.value("shards", 0), whole = part.value("whole", 0);
  const json places = part.value("places", json::array());
  const bool sound = shard >= 1 && shard <= shards && std::ssize(places) == reader.counts().planned &&
                     std::all_of(places.begin(), places.end(), [&](const json& place) { return place < whole; });
  if (!sound) {
    throw Error(
        fmt::format("run {}: expected a shard of its plan with a place in it for each case, found shard {} of {} with {} "
                    "places of {}; run that shard again",
                    folder.string(), shard, shards, text::thousands(std::ssize(places)), text::thousands(whole)));
  }
}

std::vector<Part> open_parts(const std::vector<fs::path>& folders) {
  std::vector<Part> parts;
  for (const fs::path& folder : folders) {
    RunReader reader = RunReader::open(folder);
    RunInfo info = reader.info();
    if (!reader.planned())
      throw Error(fmt::format("run {}: has no plan because it was killed too early; start it again", folder.string()));
    if (info.part.empty())
      throw Error(fmt::format("run {}: expected a shard (kvcts run --shard i/n), found a whole run", folder.string()));
    expect_place_of_each_case(info.part, reader, folder);
    parts.push_back({folder, std::move(reader), std::move(info)});
  }
  const auto first = plan_of(parts.front().info);
  for (const Part& part : parts) {
    for (const auto& [what, value] : plan_of(part.info)) {
      if (value != first.at(what)) {
        throw Error(
            fmt::format("run {}: expected the plan of {}, found another {} ('{}', there '{}'); merge shards of one plan",
                        part.folder.string(), parts.front().folder.string(), what, value, first.at(what)));
      }
    }
    expect_one_cut(part, parts.front());
  }
  return parts;
}

/// Requires every shard at least once; more than once if one of them is incomplete.
void expect_all_shards(const std::vector<Part>& parts) {
  constexpr std::ptrdiff_t named = 10;
  std::set<int> there;
  std::set<std::int64_t> places;
  for (const Part& part : parts) {
    there.insert(part.info.part.value("shard", 0));
    for (const auto& place : part.info.part.at("places")) places.insert(place.get<std::int64_t>());
  }
  const int shards = parts.front().info.part.value("shards", 0);
  const auto whole = parts.front().info.part.value("whole", std::int64_t{0});
  const auto missing = shards - std::ssize(there);
  if (missing == 0 || std::ssize(places) == whole) return;  // a shard without a case has no run
  std::vector<int> first;  // the number of shards is what a file says: no loop goes that far
  for (int shard = 1; std::ssize(first) < std::min(named, missing); ++shard) {
    if (!there.contains(shard)) first.push_back(shard);
  }
  const bool one = missing == 1;
  const std::string more = missing > named ? fmt::format(" ... and {} more", text::thousands(missing - named)) : "";
  throw Error(fmt::format("shard{} {}{} of {} {} missing, and with {} {} of {} planned cases; give {}, too", one ? "" : "s",
                          fmt::join(first, ", "), more, text::thousands(shards), one ? "is" : "are", one ? "it" : "them",
                          text::thousands(whole - std::ssize(places)), text::thousands(whole),
                          one ? "its run" : "their runs"));
}

struct Chosen {
  std::int64_t place;
  Row row;
  const Part* part;
};

/// All cases in the order of the whole plan.
std::vector<Chosen> collect(const std::vector<Part>& parts) {
  std::unordered_map<std::string, std::size_t> at;
  std::vector<Chosen> all;
  std::vector<std::string> twice;
  const Part *one = nullptr, *other = nullptr;
  for (const Part& part : parts) {
    const json& places = part.info.part.at("places");
    part.reader.for_each([&](const Row& row) {
      const auto [found, fresh] = at.try_emplace(row.planned.id, all.size());
      if (fresh) {
        all.push_back({places.at(static_cast<std::size_t>(row.ordinal)).get<std::int64_t>(), row, &part});
        return;
      }
      Chosen& before = all[found->second];
      if (before.row.decided && row.decided) {
        if (twice.empty()) one = before.part, other = &part;
        twice.push_back(row.planned.id);
      } else if (row.decided) {
        before.row = row, before.part = &part;
      }
    });
  }
  if (!twice.empty()) {
    throw Error(fmt::format(
        "'{}'{} decided in {} and in {}; give each shard once", twice.front(),
        twice.size() == 1 ? " is" : fmt::format(" and {} more cases are", text::thousands(std::ssize(twice) - 1)),
        one->folder.string(), other->folder.string()));
  }
  std::sort(all.begin(), all.end(), [](const Chosen& x, const Chosen& y) { return x.place < y.place; });
  return all;
}

/// Info of the whole run: what the parts share, the earliest start, and all hosts.
RunInfo info_of(const std::vector<Part>& parts) {
  RunInfo out = parts.front().info;
  out.selection = out.part.value("selection", "");
  out.part = json::object();
  out.left_out = 0;
  std::vector<std::string> hosts;
  for (const Part& part : parts) {
    if (!why_not_isolated(part.info).empty()) out.provenance["isolation"] = part.info.provenance["isolation"];
    out.started_ms = std::min(out.started_ms, part.info.started_ms);
    out.left_out += part.info.left_out;
    const std::string host = part.info.provenance.value("host", "");
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  if (!out.provenance.empty()) out.provenance["host"] = fmt::format("{}", fmt::join(hosts, ", "));
  return out;
}

/// Writes the parts as one store to `made`.
void write(const fs::path& made, const std::vector<Part>& parts, const std::vector<Chosen>& all,
           const std::vector<std::string>& argv) {
  RunStore store = RunStore::create(made, info_of(parts), argv);
  std::vector<PlannedCase> planned;
  planned.reserve(all.size());
  for (const Chosen& chosen : all) planned.push_back(chosen.row.planned);
  store.plan(planned);
  for (const Chosen& chosen : all) {
    if (chosen.row.decided) store.record(chosen.row.result);
  }
  Ending ending = Ending::complete;
  std::string reason;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const std::vector<Session> sessions = part->reader.sessions();
    store.adopt(sessions);
    if (sessions.empty() || sessions.back().ending == Ending::complete) continue;
    ending = sessions.back().ending.value_or(Ending::interrupted);
    reason = fmt::format("{} is incomplete{}", part->folder.filename().string(),
                         sessions.back().reason.empty() ? "" : " (" + sessions.back().reason + ")");
  }
  store.finish(ending, reason);
}

}  // namespace

void merge(const fs::path& out, const std::vector<fs::path>& folders, const std::vector<std::string>& argv) {
  if (fs::exists(out) && !fs::is_empty(out))
    throw Error(
        fmt::format("{}: expected a new or an empty folder, found one with files in it; choose another", out.string()));
  const std::vector<Part> parts = open_parts(folders);
  expect_all_shards(parts);
  const std::vector<Chosen> all = collect(parts);

  const fs::path made = fs::path(out).concat(".merging");
  fs::remove_all(made);
  try {
    write(made, parts, all, argv);
  } catch (const DiskFull&) {
    fs::remove_all(made);
    throw DiskFull(
        fmt::format("{}: no room left, or the disk refuses writes; nothing was written, the parts are unchanged: free "
                    "space and merge again",
                    out.string()));
  }
  if (fs::exists(out)) fs::remove(out);
  fs::rename(made, out);
}

}  // namespace kvcts::store
