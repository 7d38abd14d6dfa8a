// A fully resolved case: what the supervisor runs, the checker fills and compares, and the worker hosts.
//
// resolve() (resolve.hpp) makes it from a CaseSpec (spec.hpp) and the catalogue. It holds the truth; the worker receives its
// worker_view(), which has no truth, no expected outcome and no fault.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "case/direction.hpp"
#include "case/outcome.hpp"
#include "case/scenario.hpp"
#include "layout/layout.hpp"
#include "layout/scheme.hpp"
#include "layout/template.hpp"

namespace kvcts {

enum class Side : std::uint8_t { producer, consumer };
std::string_view name(Side side);

/// Who performs the steps of a case.
enum class Performer : std::uint8_t {
  machine,  ///< ours, in the checker: each step, as the case tells it
  engine,   ///< a worker with a connector and an engine
  program,  ///< a connector program below each of two workers
};
std::string_view name(Performer performer);

/// One rank (a tensor-parallel shard) of one side in one group.
struct RankCache {
  layout::Geometry geometry;  ///< of this rank
  layout::Cache truth;        ///< how the attention backend lays it out
  layout::Cache claim;        ///< what the connector is given (tensors included); equals truth unless the case lies
  bool operator==(const RankCache&) const = default;
};

struct SideCache {
  std::string layout;  ///< catalogue id or "(template)"
  std::string text;    ///< template text of the truth
  layout::Scheme scheme;
  std::vector<RankCache> ranks;
  bool operator==(const SideCache&) const = default;
};

/// Tokens of one request and where its blocks are on each side. Position i of the list holds tokens [i * block_size, (i+1) *
/// block_size) of that side's block size. Blocks not named on a side are free.
struct Request {
  std::uint32_t generation{1};
  std::int64_t tokens{0};
  bool transfer{true};  ///< false: written on the producer, not moved (its bytes must not appear anywhere)
  std::vector<std::int64_t> producer_blocks, consumer_blocks;
  bool operator==(const Request&) const = default;
};

/// Layers that share a geometry and a block table (a KV cache group). Most cases have one.
struct Group {
  std::string name;
  SideCache producer, consumer;
  std::vector<Request> requests;
  bool operator==(const Group&) const = default;
};

/// One byte range to move. Regions are numbered per side as in regions().
struct Copy {
  int src{0};
  std::int64_t src_offset{0};
  int dst{0};
  std::int64_t dst_offset{0};
  std::int64_t bytes{0};
  bool operator==(const Copy&) const = default;
};

struct EngineSpec {
  std::string name;    ///< catalogue id
  std::string plugin;  ///< stem of the plug-in file, e.g. "kvcts_engine_memcpy"
  int processes{1};    ///< 1: one worker hosts both sides; 2: one worker per side
  nlohmann::json options = nlohmann::json::object();
  nlohmann::json environment = nlohmann::json::object();  ///< for the worker process (UCX_TLS=...)
  nlohmann::json path = nlohmann::json::object();         ///< what its facts must say when the case passes
  bool between_hosts{false};                              ///< its workers can be on two hosts; no part of a written case
};

struct ConnectorSpec {
  std::string name;
  std::string kind;  ///< "reference", "contract", "explicit", "none"
  nlohmann::json options = nlohmann::json::object();
  bool between_hosts{false};  ///< as an engine's
};

struct ReaderSpec {
  std::string name;  ///< "" = no reader
  std::string kind;
  nlohmann::json options = nlohmann::json::object();
};

/// The source of the content. "tags": tag/1, checked by the oracle. "golden": both sides' bytes are golden tensors (HDF5),
/// without the oracle. "specials": tag/1 mixed with NaN, -0, ...
struct ContentSpec {
  std::string kind{"tags"};
  std::string folder;              ///< of the golden files; a location, so not part of any digest
  std::string producer, consumer;  ///< layouts whose golden tensors are used
  std::string digest;              ///< of both contents, from the manifest
};

struct ResolvedCase {
  std::string id;
  std::string title;
  std::string arch;   ///< "sm_90", "cpu"
  std::string dtype;  ///< catalogue id of the scheme
  Direction op{};     ///< "write": the producer pushes; "read": the consumer pulls
  std::uint64_t seed{1};
  int passes{1};  ///< deciding passes (kernels::deciding_passes)
  ContentSpec content;
  std::vector<Group> groups;
  ConnectorSpec connector;
  EngineSpec engine;
  std::vector<std::string> grants;  ///< what both sandboxes may also see and do (process/grants.hpp)
  ReaderSpec reader;
  std::vector<Copy> copies;     ///< connector kind "explicit"
  scenario::Scenario scenario;  ///< performed by our machine, instead of groups, connector, engine and reader
  Performer performer{Performer::engine};
  std::vector<Expected> expected;
  std::array<std::int64_t, phase_count> deadline_ms{};  ///< per phase
  std::int64_t settle_ms{250};                          ///< how long memory is watched for late writes after the end
  std::int64_t guard_bytes{4096};
  std::int64_t misalign{0};                         ///< bytes by which each allocation's base is off a page
  nlohmann::json facts = nlohmann::json::object();  ///< axis values and links for filters and reports
};

/// Name and place of every allocation of one side, in Copy's numbering: groups, ranks, allocations.
struct RegionRef {
  Side side{};
  int group{0}, rank{0}, allocation{0};
  std::string name;  ///< "consumer/g0/r1/kv.L3"
  std::int64_t bytes{0};
};
std::vector<RegionRef> regions(const ResolvedCase& resolved, Side side);
/// The cache of the rank that owns `region`.
const RankCache& rank_of(const ResolvedCase& resolved, const RegionRef& region);

/// Memory that running the case takes, in bytes: both sides' files, half as much for an engine's copies, and three images of
/// the largest region for comparison. A scripted case: what its steps touch (case/footprint.hpp). A search for a cause is
/// tried only if it fits.
std::int64_t memory_needed(const ResolvedCase& resolved);

nlohmann::json to_json(const ResolvedCase& resolved);
ResolvedCase case_from_json(const nlohmann::json& json);  ///< throws std::runtime_error with the offending key
/// What code under test may know: claims, tensors, ids, connector, engine. No truth, expected, fault, seed or id.
nlohmann::json worker_view(const ResolvedCase& resolved);

/// XXH3-128 (hex) over everything that decides execution. `with_arch` false: cases that differ only in arch share it.
std::string digest(const ResolvedCase& resolved, bool with_arch = true);

}  // namespace kvcts
