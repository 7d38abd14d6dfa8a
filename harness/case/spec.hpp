// A case as written: one YAML document of cases/, or one point of a suite's matrix. Both share one schema and one parser
// (catalogue/case_file.hpp); the matrix fills the same fields. Empty optional = default.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/direction.hpp"
#include "case/outcome.hpp"
#include "case/scenario.hpp"
#include "layout/template.hpp"

namespace kvcts {

/// One side: a backend or a layout of the catalogue, or a literal template.
struct SideSpec {
  std::string backend;                        ///< catalogue id; gives layout and arch limits
  std::string layout;                         ///< catalogue id
  std::string text;                           ///< key `template`: template text instead of a layout id
  std::optional<layout::TensorSpec> tensors;  ///< how tensors are shown, if not as the layout says
  std::string dtype;                          ///< scheme, when the sides differ
  std::optional<std::int64_t> block_size, blocks;
  std::int64_t tp{1};  ///< ranks that share the KV heads (tp > heads: heads are replicated)
  // What the connector is given, when it is not the truth:
  std::string claim_layout, claim_text;
  std::optional<layout::TensorSpec> claim_tensors;
};

struct RequestSpec {
  std::int64_t tokens{0};
  std::uint32_t generation{1};
  bool transfer{true};
  std::vector<std::int64_t> producer_blocks, consumer_blocks;  ///< empty: by the case's `ids` rule
};

/// A further KV cache group (other layers, other geometry); the case's own keys define group 0.
struct GroupSpec {
  std::string name;
  std::string geometry;
  nlohmann::json geometry_values;
  SideSpec producer, consumer;
  std::vector<RequestSpec> requests;
};

struct CopySpec {
  std::string from, to;  ///< region names "producer/g0/r0/kv.L0" or a unique tail ("kv.L0")
  std::int64_t from_offset{0}, to_offset{0}, bytes{0};
};

/// A variant with a different expected end (usually PASS): the case with some keys replaced.
struct ControlSpec {
  std::string name;
  nlohmann::json set = nlohmann::json::object();  ///< JSON merge patch on the case document; `steps` by name of the step
  bool as_intended{false};                        ///< every step as intended: a scripted case without its fault
  std::vector<Expected> expected;
};

/// How requests that name no blocks take them, the default first; what each means: case/resolve/block_ids.hpp.
inline const std::vector<std::string> block_id_rules{"shuffled", "identity", "reversed", "gather",
                                                     "scatter",  "gaps",     "edges"};

struct CaseSpec {
  std::string id;  ///< key `case`
  std::string title, notes;
  std::vector<std::string> links;
  std::string arch{"cpu"};
  std::string dtype{"bf16"};
  std::string geometry{"small"};
  nlohmann::json geometry_values = nlohmann::json::object();  ///< overrides of the named geometry
  std::string connector{"reference"};
  std::string engine{"memcpy"};
  nlohmann::json engine_options = nlohmann::json::object();
  Direction op{};
  std::string ids{"shuffled"};  ///< block ids of a request that names none: one of block_id_rules
  std::string content{"tags"};  ///< what the producer holds: tags | golden (bytes of a golden file)
  std::uint64_t seed{1};
  SideSpec producer, consumer;
  std::vector<RequestSpec> requests;  ///< empty: one request of geometry.tokens
  std::vector<GroupSpec> groups;
  std::string reader;
  nlohmann::json reader_options = nlohmann::json::object();
  std::vector<CopySpec> copies;
  scenario::Scenario scenario;                       ///< keys memory, requests (a mapping), steps: a scripted case
  std::map<std::string, std::int64_t> deadlines_ms;  ///< phase name -> ms
  std::optional<std::int64_t> settle_ms, guard_bytes, misalign;
  std::vector<Expected> expected;
  std::vector<ControlSpec> controls;
  std::string declared_by;  ///< source file or suite
};

}  // namespace kvcts
