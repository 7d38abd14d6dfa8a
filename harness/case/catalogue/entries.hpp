// What the YAML files of cases/ hold, as values. tables.cpp has the keys of each kind; nothing here knows YAML.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/outcome.hpp"
#include "layout/scheme.hpp"
#include "layout/template.hpp"

namespace kvcts::catalogue {

/// Where a fact comes from. `how`: "ran" (executed), "read" (in the source), "inferred".
struct Source {
  std::string project, version, file, how, link;
};

/// A system that uses a layout.
struct Usage {
  std::string system, backend, versions, hint;
};

/// A geometry condition that a layout demands, in the expression language of the matrix.
struct Requirement {
  std::string that, because;
};

struct LayoutEntry {
  std::string id, title, text;  ///< key `template`
  layout::TensorSpec tensors;
  std::map<std::string, std::int64_t> fixed;  ///< geometry values this layout demands
  std::vector<std::string> dtypes;            ///< schemes it can hold; empty = all
  std::vector<Requirement> requires_;         ///< key `requires`
  std::map<std::string, std::string> names;   ///< published names: vllm, flashinfer, lmcache, kvbm
  std::vector<Usage> used_by;
  std::vector<Source> source;
  std::string notes, file;
};

struct SchemeEntry {
  std::string id, title, data;
  struct Scale {
    std::string dtype;
    std::int64_t group{0};
  };
  std::optional<Scale> scale;
  std::string global_scale;
  nlohmann::json facts = nlohmann::json::object();
  std::vector<Source> source;
  std::string notes, file;
};
/// The scheme as the layout library takes it. Throws layout::Error on an unknown element dtype.
layout::Scheme scheme_of(const SchemeEntry& entry);

struct GeometryEntry {
  std::string id, title;
  std::int64_t layers{1}, blocks{1}, block_size{1}, heads{1}, head_dim{1}, v_head_dim{0}, kv{2}, tokens{1};
  std::int64_t q_heads{0};  ///< of the model, for readers; 0 = heads
  std::string notes, file;
};
layout::Geometry geometry_of(const GeometryEntry& entry);

/// An attention backend of a system: its cache layout and where it runs. Empty lists = no limit.
struct BackendEntry {
  std::string id, title, system, name, layout;
  std::map<std::string, std::string> hints;  ///< layout setting (NHD, HND, LBNHC, ...) -> layout id; `layout` is the default
  std::vector<std::string> dtypes, archs;
  std::string min_arch, max_arch;
  std::vector<std::int64_t> block_sizes, head_dims;
  std::string versions;
  std::vector<Source> source;
  std::string notes, file;
};

/// Facts of a GPU architecture (or the CPU, which does everything in software).
struct ArchEntry {
  std::string id, title;
  std::int64_t cc{0};  ///< 10 * major + minor; 0 = cpu
  bool bf16{false}, bf16_arith{false}, fp8_convert{false}, fp4_convert{false}, cp_async{false}, tma{false}, ldmatrix{false},
      wide_access{false}, wgmma{false}, tcgen05{false}, flash_attention_2{false}, flash_attention_3{false}, nvcc13{false};
  std::int64_t smem_kib{0}, threads_per_sm{0};
  std::vector<std::string> cards;
  std::vector<Source> source;
  std::string notes, file;
};

struct ConnectorEntry {
  std::string id, title, kind;  ///< kind: reference | contract | explicit | none
  nlohmann::json options = nlohmann::json::object();
  std::vector<std::string> grants;  ///< as an engine's, for a program that moves bytes itself
  bool any_layout{true};            ///< relayouts: takes pairs whose layouts differ
  bool any_block_size{true};        ///< takes pairs whose block sizes differ
  bool any_tp{true};                ///< takes pairs whose tensor-parallel degrees differ
  bool between_hosts{false};        ///< of a program: its two sides can be on two hosts
  std::vector<Source> source;
  std::string notes, file;
  /// Python environments of its programs: the words "{python:NAME}" of its commands.
  std::vector<std::string> environments() const;
};

struct EngineEntry {
  std::string id, title, plugin;
  std::int64_t processes{1};
  nlohmann::json options = nlohmann::json::object();
  nlohmann::json environment = nlohmann::json::object();
  nlohmann::json path = nlohmann::json::object();  ///< what its facts must say about a passing case
  std::vector<std::string> grants;                 ///< what else its sandbox may see and do
  std::vector<std::string> needs;                  ///< what the machine must have ("ucx", "gpu"); otherwise SKIPPED
  bool between_hosts{false};                       ///< its two workers can be on two hosts
  std::int64_t setup_ms{0};                        ///< rough cost of a case besides its bytes, for budgets
  std::int64_t piece_us{0};                        ///< rough cost of a copy, however short; 0 = negligible
  std::string notes, file;
};

/// When `when` holds, a point ends as `outcome` (UNSUPPORTED or REFUSED), for the given reason.
struct ConstraintEntry {
  std::string id, when, reason;  ///< the reason may name facts: "needs sm_89, this is {arch}"
  Outcome outcome{Outcome::unsupported};
  std::vector<Source> source;
  std::string file;
};

/// One block of a suite's matrix: the product of its axes, less what `where` leaves out.
struct MatrixBlock {
  std::string title;
  std::map<std::string, std::vector<std::string>> axes;  ///< axis -> values or globs ("*", "vllm-*", "!vllm-mla*")
  std::string where;
  std::int64_t cover{0};   ///< t > 0: a covering array of strength t instead of the whole product
  std::int64_t sample{0};  ///< n > 0: n points, chosen by the hash of their ids
  std::string reason;      ///< why the block exists; required in a profile
};

struct SuiteEntry {
  std::string id, title;
  std::map<std::string, std::int64_t> deadlines_ms;
  std::vector<std::string> include;  ///< other suites
  std::vector<std::string> files;    ///< globs of case files, relative to cases/
  std::vector<std::string> ids;      ///< globs of case ids: selects only these of the files' cases, each with its controls
  std::vector<MatrixBlock> matrix;
  std::vector<std::string>
      optional;  ///< names or globs of engines, needs, connectors, environments: cases that lack them may be skipped
  std::string notes, file;
};

/// A known failure. Every key given in `match` must agree.
struct WaiverMatch {
  std::string id;            ///< glob over case ids
  std::string where;         ///< axis expression
  FaultClass fault_class{};  ///< key `class`
  std::string outcome;       ///< FAIL, HANG, ...
};
struct WaiverEntry {
  std::string id;
  WaiverMatch match;
  std::string reason, owner, link, expires;
  std::string file;
};

}  // namespace kvcts::catalogue
