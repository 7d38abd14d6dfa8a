#include "case/case.hpp"
#include "case/footprint.hpp"
#include "case/serialized_case.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace kvcts {

using nlohmann::json;

constexpr std::array<std::string_view, 3> performer_text{"machine", "engine", "program"};

std::string_view name(Side side) { return side == Side::producer ? "producer" : "consumer"; }

std::string_view name(Performer performer) { return performer_text[static_cast<std::size_t>(performer)]; }

namespace {

Performer performer_from_name(std::string_view word) {
  const auto* found = std::find(performer_text.begin(), performer_text.end(), word);
  if (found == performer_text.end())
    throw std::runtime_error("performer: expected a word, found '" + std::string(word) + "'");
  return static_cast<Performer>(found - performer_text.begin());
}

json scheme_to_json(const layout::Scheme& scheme) {
  json out{{"name", scheme.name}, {"data", layout::name(scheme.data)}};
  if (scheme.scale) out["scale"] = {{"dtype", layout::name(scheme.scale->dtype)}, {"group", scheme.scale->group}};
  if (scheme.global_scale) out["global_scale"] = layout::name(*scheme.global_scale);
  return out;
}

layout::Scheme scheme_from_json(const json& in) {
  layout::Scheme scheme;
  scheme.name = in.at("name").get<std::string>();
  scheme.data = layout::dtype_from_name(in.at("data").get_ref<const std::string&>());
  if (auto it = in.find("scale"); it != in.end()) {
    scheme.scale = layout::ScaleSpec{layout::dtype_from_name(it->at("dtype").get_ref<const std::string&>()),
                                     it->at("group").get<std::int64_t>()};
  }
  if (auto it = in.find("global_scale"); it != in.end()) {
    scheme.global_scale = layout::dtype_from_name(it->get_ref<const std::string&>());
  }
  return scheme;
}

// Field order of a geometry on the wire; one place for both directions.
template <class G, class F>
void each_geometry_field(G& g, F&& f) {
  f(g.layers), f(g.blocks), f(g.block_size), f(g.heads), f(g.head_dim), f(g.v_head_dim), f(g.kv), f(g.first_layer),
      f(g.first_head);
}

json geometry_to_json(const layout::Geometry& geometry) {
  json out = json::array();
  each_geometry_field(geometry, [&](std::int64_t value) { out.push_back(value); });
  return out;
}

layout::Geometry geometry_from_json(const json& in) {
  layout::Geometry geometry;
  std::size_t i = 0;
  each_geometry_field(geometry, [&](std::int64_t& value) { value = in.at(i++).get<std::int64_t>(); });
  return geometry;
}

json side_to_json(const SideCache& side, bool with_truth) {
  json ranks = json::array();
  for (const auto& rank : side.ranks) {
    json r{{"geometry", geometry_to_json(rank.geometry)}};
    const bool same = rank.truth == rank.claim;
    if (with_truth) r["truth"] = layout::to_text(rank.truth);
    if (!with_truth || !same) r["claim"] = layout::to_text(rank.claim);
    ranks.push_back(std::move(r));
  }
  json out{{"scheme", scheme_to_json(side.scheme)}, {"ranks", std::move(ranks)}};
  if (with_truth) out["layout"] = side.layout, out["text"] = side.text;
  return out;
}

SideCache side_from_json(const json& in) {
  SideCache side;
  side.layout = in.value("layout", "");
  side.text = in.value("text", "");
  side.scheme = scheme_from_json(in.at("scheme"));
  for (const auto& r : in.at("ranks")) {
    RankCache rank;
    rank.geometry = geometry_from_json(r.at("geometry"));
    if (auto it = r.find("truth"); it != r.end()) rank.truth = layout::cache_from_text(it->get_ref<const std::string&>());
    auto claim = r.find("claim");
    rank.claim = claim == r.end() ? rank.truth : layout::cache_from_text(claim->get_ref<const std::string&>());
    side.ranks.push_back(std::move(rank));
  }
  return side;
}

json groups_to_json(const ResolvedCase& c, bool with_truth) {
  json groups = json::array();
  for (const auto& group : c.groups) {
    json requests = json::array();
    for (const auto& request : group.requests) {
      if (!with_truth && !request.transfer) continue;  // code under test never sees requests that do not concern it
      requests.push_back({{"generation", request.generation},
                          {"tokens", request.tokens},
                          {"transfer", request.transfer},
                          {"producer_blocks", request.producer_blocks},
                          {"consumer_blocks", request.consumer_blocks}});
    }
    groups.push_back({{"name", group.name},
                      {"producer", side_to_json(group.producer, with_truth)},
                      {"consumer", side_to_json(group.consumer, with_truth)},
                      {"requests", std::move(requests)}});
  }
  return groups;
}

json copies_to_json(const std::vector<Copy>& copies) {
  json out = json::array();
  for (const auto& c : copies) out.push_back({c.src, c.src_offset, c.dst, c.dst_offset, c.bytes});
  return out;
}

// What code under test may know.
json shared_fields(const ResolvedCase& c, bool with_truth) {
  return {{"arch", c.arch},
          {"dtype", c.dtype},
          {"op", c.op},
          {"groups", groups_to_json(c, with_truth)},
          {"connector", {{"name", c.connector.name}, {"kind", c.connector.kind}, {"options", c.connector.options}}},
          {"engine",
           {{"name", c.engine.name},
            {"plugin", c.engine.plugin},
            {"processes", c.engine.processes},
            {"options", c.engine.options},
            {"environment", c.engine.environment}}},
          {"reader", {{"name", c.reader.name}, {"kind", c.reader.kind}, {"options", c.reader.options}}},
          {"copies", copies_to_json(c.copies)}};
}

json expected_to_json(const Expected& e) {
  json out{{"outcome", name(e.outcome)}};
  if (e.fault_class != FaultClass::none) out["class"] = e.fault_class;
  if (e.phase) out["phase"] = name(*e.phase);
  if (!e.contains.empty()) out["contains"] = e.contains;
  return out;
}

Expected expected_from_json(const json& in) {
  Expected e;
  e.outcome = outcome_from_name(in.at("outcome").get_ref<const std::string&>()).value();
  e.fault_class = in.value("class", FaultClass::none);
  if (auto it = in.find("phase"); it != in.end()) e.phase = phase_from_name(it->get_ref<const std::string&>());
  e.contains = in.value("contains", "");
  return e;
}

// Everything that decides execution (not id, title, facts or expected outcome).
json executed_fields(const ResolvedCase& c, bool with_arch) {
  json out = shared_fields(c, true);
  out["seed"] = c.seed;
  out["passes"] = c.passes;
  out["guard"] = c.guard_bytes;
  out["misalign"] = c.misalign;
  out["settle_ms"] = c.settle_ms;
  out["deadline_ms"] = c.deadline_ms;
  out["content"] = {{"kind", c.content.kind}};
  if (c.content.kind != "tags") {
    out["content"].update(
        {{"producer", c.content.producer}, {"consumer", c.content.consumer}, {"digest", c.content.digest}});
  }
  if (!c.scenario.empty()) out["script"] = scenario::to_json(c.scenario);
  if (!with_arch) out.erase("arch");
  return out;
}

std::string digest_of(const json& executed) {
  const std::string text = executed.dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return hex;
}

/// Adds transport-only fields to the executed ones.
void complete(json& out, const ResolvedCase& c) {
  out["id"] = c.id;
  out["title"] = c.title;
  out["facts"] = c.facts;
  out["performer"] = name(c.performer);
  out["content"]["folder"] = c.content.folder;
  out["expected"] = json::array();
  for (const auto& e : c.expected) out["expected"].push_back(expected_to_json(e));
}

}  // namespace

const RankCache& rank_of(const ResolvedCase& resolved, const RegionRef& region) {
  const Group& group = resolved.groups.at(static_cast<std::size_t>(region.group));
  return (region.side == Side::producer ? group.producer : group.consumer).ranks.at(static_cast<std::size_t>(region.rank));
}

std::vector<RegionRef> regions(const ResolvedCase& resolved, Side side) {
  std::vector<RegionRef> out;
  for (std::size_t g = 0; g < resolved.groups.size(); ++g) {
    const auto& caches = side == Side::producer ? resolved.groups[g].producer : resolved.groups[g].consumer;
    for (std::size_t r = 0; r < caches.ranks.size(); ++r) {
      // The worker's view has no truth; allocations of claim and truth agree by construction (resolve()).
      const auto& rank = caches.ranks[r];
      const auto& allocations = rank.truth.allocations.empty() ? rank.claim.allocations : rank.truth.allocations;
      for (std::size_t a = 0; a < allocations.size(); ++a) {
        out.push_back(
            {side, static_cast<int>(g), static_cast<int>(r), static_cast<int>(a),
             std::string(name(side)) + "/g" + std::to_string(g) + "/r" + std::to_string(r) + "/" + allocations[a].name,
             allocations[a].bytes});
      }
    }
  }
  return out;
}

std::int64_t memory_needed(const ResolvedCase& resolved) {
  // In double: a case may ask for more than 2^63 bytes.
  double files = 0, largest = 0;
  for (const auto side : {Side::producer, Side::consumer}) {
    for (const auto& region : regions(resolved, side)) {
      const double bytes = static_cast<double>(region.bytes) + 2.0 * static_cast<double>(resolved.guard_bytes);
      files += bytes;
      if (side == Side::consumer) largest = std::max(largest, bytes);
    }
  }
  return static_cast<std::int64_t>(std::min(1.5 * files + 3 * largest + scenario::memory_needed(resolved.scenario), 9e18));
}

json to_json(const ResolvedCase& c) {
  json out = executed_fields(c, true);
  complete(out, c);
  return out;
}

SerializedCase serialize(const ResolvedCase& c) {
  SerializedCase out{executed_fields(c, true), {}, {}};
  json& document = out.document;
  out.digest = digest_of(document);
  json arch = std::move(document["arch"]);
  document.erase("arch");
  out.execution = digest_of(document);
  document["arch"] = std::move(arch);
  complete(document, c);
  return out;
}

ResolvedCase case_from_json(const json& in) {
  ResolvedCase c;
  c.id = in.value("id", "");
  c.title = in.value("title", "");
  c.arch = in.value("arch", "cpu");
  c.dtype = in.at("dtype").get<std::string>();
  c.op = in.at("op").get<Direction>();
  c.seed = in.value("seed", std::uint64_t{1});
  c.passes = in.value("passes", 1);
  c.performer = performer_from_name(in.value("performer", name(Performer::engine)));
  if (const auto it = in.find("script"); it != in.end()) c.scenario = scenario::scenario_from_json(*it);
  for (const auto& g : in.at("groups")) {
    Group group;
    group.name = g.at("name").get<std::string>();
    group.producer = side_from_json(g.at("producer"));
    group.consumer = side_from_json(g.at("consumer"));
    for (const auto& r : g.at("requests")) {
      group.requests.push_back({r.at("generation").get<std::uint32_t>(), r.at("tokens").get<std::int64_t>(),
                                r.at("transfer").get<bool>(), r.at("producer_blocks").get<std::vector<std::int64_t>>(),
                                r.at("consumer_blocks").get<std::vector<std::int64_t>>()});
    }
    c.groups.push_back(std::move(group));
  }
  const auto& connector = in.at("connector");
  c.connector = {connector.at("name").get<std::string>(), connector.at("kind").get<std::string>(), connector.at("options")};
  const auto& engine = in.at("engine");
  c.engine = {engine.at("name").get<std::string>(),
              engine.at("plugin").get<std::string>(),
              engine.at("processes").get<int>(),
              engine.at("options"),
              engine.at("environment"),
              {},
              false};
  const auto& reader = in.at("reader");
  c.reader = {reader.at("name").get<std::string>(), reader.at("kind").get<std::string>(), reader.at("options")};
  for (const auto& v : in.at("copies")) {
    c.copies.push_back({v.at(0).get<int>(), v.at(1).get<std::int64_t>(), v.at(2).get<int>(), v.at(3).get<std::int64_t>(),
                        v.at(4).get<std::int64_t>()});
  }
  if (auto it = in.find("expected"); it != in.end()) {
    for (const auto& e : *it) c.expected.push_back(expected_from_json(e));
  }
  if (auto it = in.find("deadline_ms"); it != in.end()) c.deadline_ms = it->get<std::array<std::int64_t, phase_count>>();
  c.settle_ms = in.value("settle_ms", c.settle_ms);
  c.guard_bytes = in.value("guard", c.guard_bytes);
  c.misalign = in.value("misalign", c.misalign);
  if (auto it = in.find("content"); it != in.end()) {
    c.content = {it->value("kind", "tags"), it->value("folder", ""), it->value("producer", ""), it->value("consumer", ""),
                 it->value("digest", "")};
  }
  c.facts = in.value("facts", json::object());
  return c;
}

json worker_view(const ResolvedCase& resolved) { return shared_fields(resolved, false); }

std::string digest(const ResolvedCase& resolved, bool with_arch) { return digest_of(executed_fields(resolved, with_arch)); }

}  // namespace kvcts
