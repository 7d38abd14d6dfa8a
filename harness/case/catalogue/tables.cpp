#include "case/catalogue/tables.hpp"

#include "process/grants.hpp"

namespace kvcts::catalogue {

std::vector<std::string> outcome_names() {
  std::vector<std::string> out;
  for (int i = 0; i < outcome_count; ++i) out.emplace_back(name(static_cast<Outcome>(i)));
  return out;
}

std::vector<std::string> phase_names() {
  std::vector<std::string> out;
  for (int i = 0; i < phase_count; ++i) out.emplace_back(name(static_cast<Phase>(i)));
  return out;
}

Codec<Direction> direction_codec() { return word_of<Direction>({"write", "read"}, direction_from_name); }

Codec<FaultClass> fault_class_codec() {
  std::vector<std::string> names;
  for (const FaultClass fault : fault_classes()) names.emplace_back(name(fault));
  return word_of<FaultClass>(std::move(names), fault_class_from_name);
}

Codec<Outcome> outcome_codec(std::vector<std::string> allowed) {
  return word_of<Outcome>(std::move(allowed), outcome_from_name);
}

Codec<std::map<std::string, std::int64_t>> deadlines() { return map_of(duration(), phase_names()); }

namespace {

std::vector<std::string> geometry_keys() {
  return {"layers", "blocks", "block_size", "heads", "head_dim", "v_head_dim", "kv"};
}

const Table<Usage>& usage_table() {
  static const Table<Usage> table{"a use of a layout",
                                  {
                                      required("system", &Usage::system, text(), "vLLM, SGLang, FlashInfer, ..."),
                                      optional("backend", &Usage::backend, any_text(), "its name there"),
                                      optional("versions", &Usage::versions, any_text(), "range seen, e.g. 0.8.5..0.22.1"),
                                      optional("hint", &Usage::hint, any_text(), "setting under which it is used, e.g. HND"),
                                  }};
  return table;
}

const Table<Requirement>& requirement_table() {
  static const Table<Requirement> table{
      "a requirement",
      {
          required("that", &Requirement::that, text(),
                   "expression over geometry (head_dim, block_size, ... or L B N H D V x G)"),
          optional("because", &Requirement::because, any_text(), "why, for the reader of a report"),
      }};
  return table;
}

// "cond" or {that: cond, because: text}.
Codec<Requirement> requirement() {
  const Codec<Requirement> full = object<Requirement>(requirement_table);
  return {"a condition, or a mapping {that, because}",
          [full] { return json{{"oneOf", json::array({json{{"type", "string"}}, full.schema()})}}; },
          [full](const Node& node) {
            return node.kind == Node::Kind::mapping ? full.read(node) : Requirement{text().read(node), ""};
          },
          [full](const Requirement& r) -> json { return r.because.empty() ? json(r.that) : full.write(r); }};
}

const Table<SchemeEntry::Scale>& scale_table() {
  static const Table<SchemeEntry::Scale> table{
      "a scale",
      {
          required("dtype", &SchemeEntry::Scale::dtype, identifier(), "element dtype of the scales"),
          optional("group", &SchemeEntry::Scale::group, integer(0, 1 << 20),
                   "channels that share one; 0 = the whole (token, head) row"),
      }};
  return table;
}

// Text, and numbers as written.
Codec<std::string> axis_value() {
  Codec<std::string> out = any_text();
  out.schema = [] { return json{{"type", json::array({"string", "integer"})}}; };
  return out;
}

const Table<WaiverMatch>& match_table() {
  static const Table<WaiverMatch> table{
      "a waiver's match",
      {
          optional("id", &WaiverMatch::id, text(), "glob over case ids"),
          optional("where", &WaiverMatch::where, text(), "axis expression"),
          optional("class", &WaiverMatch::fault_class, fault_class_codec(), "fault class of the result"),
          optional("outcome", &WaiverMatch::outcome, one_of(outcome_names()), "outcome of the result"),
      },
      [](const WaiverMatch& match, const Node& node) {
        if (match.id.empty() && match.where.empty() && match.fault_class == FaultClass::none) {
          fail(node, "a match with id, where or class", "say which cases it is about");
        }
      }};
  return table;
}

}  // namespace

const Table<Source>& source_table() {
  static const Table<Source> table{"a source",
                                   {
                                       required("project", &Source::project, text(), "where the fact comes from"),
                                       optional("version", &Source::version, any_text(), "release or commit"),
                                       optional("file", &Source::file, any_text(), "file, and line or symbol"),
                                       optional("how", &Source::how, one_of({"read", "ran", "inferred"}), "how it is known"),
                                       optional("link", &Source::link, any_text(), "issue or page"),
                                   }};
  return table;
}

const Table<layout::TensorSpec>& tensor_spec_table() {
  static const Table<layout::TensorSpec> table{
      "a tensor spec",
      {
          optional("list", &layout::TensorSpec::list, any_text(), "axes that become separate tensors, e.g. L"),
          optional("shape", &layout::TensorSpec::shape, any_text(),
                   "dims of each tensor, outermost first, e.g. \"K B NHC\""),
      }};
  return table;
}

const Table<LayoutEntry>& layout_table() {
  static const Table<LayoutEntry> table{
      "a layout",
      {
          required("layout", &LayoutEntry::id, identifier(), "id; the file has this name"),
          required("title", &LayoutEntry::title, text(), "one line"),
          required("template", &LayoutEntry::text, text(),
                   "nesting of axes (grammar: kvcts explain --schema case --reference)"),
          optional("tensors", &LayoutEntry::tensors, object<layout::TensorSpec>(tensor_spec_table),
                   "what a connector is handed"),
          optional("fixed", &LayoutEntry::fixed, map_of(integer_codec(0, 1 << 30), geometry_keys()),
                   "geometry values it demands"),
          optional("dtypes", &LayoutEntry::dtypes, list_of(identifier()), "cache dtypes it can hold; default all that fit"),
          optional("requires", &LayoutEntry::requires_, list_of(requirement()), "conditions on the geometry"),
          optional("names", &LayoutEntry::names, map_of(any_text()), "published names: vllm, flashinfer, lmcache, kvbm"),
          optional("used_by", &LayoutEntry::used_by, list_of(object<Usage>(usage_table)), "systems that use it"),
          optional("source", &LayoutEntry::source, list_of(object<Source>(source_table)), "where it is known from"),
          optional("notes", &LayoutEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

const Table<SchemeEntry>& dtype_table() {
  static const Table<SchemeEntry> table{
      "a dtype",
      {
          required("dtype", &SchemeEntry::id, identifier(), "id; the file has this name"),
          required("title", &SchemeEntry::title, text(), "one line"),
          required("data", &SchemeEntry::data, identifier(), "element dtype of the data codes"),
          Field<SchemeEntry>{
              "scale", false, "scales that go with the data", "a scale", [] { return schema(scale_table()); },
              [](SchemeEntry& out, const Node& node) { out.scale = read(scale_table(), node); },
              [](const SchemeEntry& in) -> json { return in.scale ? write(scale_table(), *in.scale) : json(nullptr); }},
          optional("global_scale", &SchemeEntry::global_scale, identifier(), "element dtype of one scale per (layer, kv)"),
          optional("facts", &SchemeEntry::facts, anything(), "flat facts for constraints and filters (family, needs, ...)"),
          optional("source", &SchemeEntry::source, list_of(object<Source>(source_table)), "where it is known from"),
          optional("notes", &SchemeEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

const Table<GeometryEntry>& geometry_table() {
  static const Table<GeometryEntry> table{
      "a geometry",
      {
          required("geometry", &GeometryEntry::id, identifier(), "id"),
          required("title", &GeometryEntry::title, text(), "what is awkward about it"),
          required("layers", &GeometryEntry::layers, integer(1, 4096), "layers"),
          required("blocks", &GeometryEntry::blocks, integer(1, 1 << 26), "blocks of the pool"),
          required("block_size", &GeometryEntry::block_size, integer(1, 1 << 20), "tokens of a block"),
          required("heads", &GeometryEntry::heads, integer(1, 4096), "KV heads of the model"),
          required("head_dim", &GeometryEntry::head_dim, integer(1, 1 << 16), "channels of a head"),
          optional("v_head_dim", &GeometryEntry::v_head_dim, integer(0, 1 << 16), "channels of a V head; 0 = head_dim"),
          optional("kv", &GeometryEntry::kv, integer(1, 2), "2 = K and V, 1 = one latent (MLA)"),
          required("tokens", &GeometryEntry::tokens, integer(0, std::int64_t{1} << 40), "tokens of the (first) request"),
          optional("q_heads", &GeometryEntry::q_heads, integer(0, 1 << 16), "query heads, for readers; 0 = heads"),
          optional("notes", &GeometryEntry::notes, any_text(), "anything else"),
      },
      [](const GeometryEntry& g, const Node& node) {
        if (g.kv == 1 && g.v_head_dim != 0) fail(*node.find("v_head_dim"), "no v_head_dim where kv is 1", "remove it");
        if ((g.tokens + g.block_size - 1) / g.block_size > g.blocks) {
          fail(*node.find("tokens"),
               "tokens that fit in " + std::to_string(g.blocks) + " blocks of " + std::to_string(g.block_size),
               "lower tokens or add blocks");
        }
      }};
  return table;
}

const Table<BackendEntry>& backend_table() {
  static const Table<BackendEntry> table{
      "a backend",
      {
          required("backend", &BackendEntry::id, identifier(), "id; no layout may have it, too"),
          required("title", &BackendEntry::title, text(), "one line"),
          required("system", &BackendEntry::system, text(), "vLLM, SGLang, TensorRT-LLM, FlashInfer, ..."),
          optional("name", &BackendEntry::name, any_text(), "its name there"),
          required("layout", &BackendEntry::layout, identifier(), "layout of its cache by default"),
          optional("hints", &BackendEntry::hints, map_of(identifier()), "layout setting (NHD, HND, ...) -> layout"),
          optional("dtypes", &BackendEntry::dtypes, list_of(identifier()), "cache dtypes it takes; default all"),
          optional("archs", &BackendEntry::archs, list_of(identifier()),
                   "archs it runs on; default all from min_arch to max_arch (and cpu, modelled)"),
          optional("min_arch", &BackendEntry::min_arch, identifier(), "lowest arch"),
          optional("max_arch", &BackendEntry::max_arch, identifier(), "highest arch"),
          optional("block_sizes", &BackendEntry::block_sizes, list_of(integer_codec(1, 1 << 20)),
                   "block sizes it takes; default all"),
          optional("head_dims", &BackendEntry::head_dims, list_of(integer_codec(1, 1 << 16)),
                   "head sizes it takes; default all"),
          optional("versions", &BackendEntry::versions, any_text(), "range of the system's versions"),
          required("source", &BackendEntry::source, list_of(object<Source>(source_table)), "where it is known from"),
          optional("notes", &BackendEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

const Table<ArchEntry>& arch_table() {
  static const Table<ArchEntry> table{
      "an arch",
      {
          required("arch", &ArchEntry::id, identifier(), "sm_NN, or cpu"),
          required("title", &ArchEntry::title, text(), "one line"),
          required("cc", &ArchEntry::cc, integer(0, 999), "compute capability, 10 * major + minor; 0 = cpu"),
          optional("bf16", &ArchEntry::bf16, boolean(), "bf16 conversion and fma"),
          optional("bf16_arith", &ArchEntry::bf16_arith, boolean(), "bf16 add and mul by themselves"),
          optional("fp8_convert", &ArchEntry::fp8_convert, boolean(), "conversion from and to fp8"),
          optional("fp4_convert", &ArchEntry::fp4_convert, boolean(),
                   "conversion from and to fp4, fp6, ue8m0 (a/f targets)"),
          optional("cp_async", &ArchEntry::cp_async, boolean(), "cp.async and mbarrier"),
          optional("tma", &ArchEntry::tma, boolean(), "bulk copies and tensor maps"),
          optional("ldmatrix", &ArchEntry::ldmatrix, boolean(), "ldmatrix"),
          optional("wide_access", &ArchEntry::wide_access, boolean(), "256-bit global loads and stores"),
          optional("wgmma", &ArchEntry::wgmma, boolean(), "warp-group mma (the a target)"),
          optional("tcgen05", &ArchEntry::tcgen05, boolean(), "fifth-generation tensor cores (a/f targets)"),
          optional("flash_attention_2", &ArchEntry::flash_attention_2, boolean(), "FlashAttention-2 runs there"),
          optional("flash_attention_3", &ArchEntry::flash_attention_3, boolean(), "FlashAttention-3 runs there"),
          optional("nvcc13", &ArchEntry::nvcc13, boolean(), "nvcc 13.0 compiles for it (else NVRTC 12.9)"),
          optional("smem_kib", &ArchEntry::smem_kib, integer(0, 4096), "shared memory of a block, opt-in, KiB"),
          optional("threads_per_sm", &ArchEntry::threads_per_sm, integer(0, 8192), "threads of an SM"),
          optional("cards", &ArchEntry::cards, list_of(text()), "well-known cards"),
          required("source", &ArchEntry::source, list_of(object<Source>(source_table)), "where the facts are known from"),
          optional("notes", &ArchEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

const Table<ConnectorEntry>& connector_table() {
  static const Table<ConnectorEntry> table{
      "a connector",
      {
          required("connector", &ConnectorEntry::id, identifier(), "id"),
          required("title", &ConnectorEntry::title, text(), "one line"),
          required("kind", &ConnectorEntry::kind, one_of({"reference", "blocks", "contract", "explicit", "none", "program"}),
                   "which code makes the plan; program: a process of its own, which also moves the bytes"),
          optional("options", &ConnectorEntry::options, anything(),
                   "for that code; of a program: command, environment, ports, start_ms, options"),
          optional("grants", &ConnectorEntry::grants, list_of(one_of(process::grant_names())),
                   "what a program's sandbox lets it see and do beside, as an engine's grants"),
          optional("any_layout", &ConnectorEntry::any_layout, boolean(), "takes pairs whose layouts differ"),
          optional("any_block_size", &ConnectorEntry::any_block_size, boolean(), "takes pairs whose block sizes differ"),
          optional("any_tp", &ConnectorEntry::any_tp, boolean(), "takes pairs whose tensor-parallel degrees differ"),
          optional("between_hosts", &ConnectorEntry::between_hosts, boolean(),
                   "a program whose two sides find each other by KVCTS_ADDRESS and KVCTS_PEER_ADDRESS: `kvcts run --hosts`"),
          optional("source", &ConnectorEntry::source, list_of(object<Source>(source_table)), "the code it models"),
          optional("notes", &ConnectorEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

const Table<EngineEntry>& engine_table() {
  static const Table<EngineEntry> table{
      "an engine",
      {
          required("engine", &EngineEntry::id, identifier(), "id"),
          required("title", &EngineEntry::title, text(), "one line"),
          optional("plugin", &EngineEntry::plugin, identifier(),
                   "stem of the plug-in file, kvcts_engine_<x>; without one, the connector program moves the bytes"),
          optional("processes", &EngineEntry::processes, integer(1, 2),
                   "1: one worker hosts both sides; 2: a worker a side"),
          optional("options", &EngineEntry::options, anything(),
                   "for the plug-in; memory_provider: stem of a plug-in that brings the memory (kvcts_memory.h)"),
          optional("environment", &EngineEntry::environment, anything(), "environment of its workers"),
          optional("path", &EngineEntry::path, anything(),
                   "the way that it is named after: what its own facts must say, or a case that moved its bytes fails"),
          optional("grants", &EngineEntry::grants, list_of(one_of(process::grant_names())),
                   "what its sandbox lets it see and do beside: sys (/sys), process-vm (copies by the kernel between its "
                   "processes), infiniband, cuda, hugepages"),
          optional("needs", &EngineEntry::needs, list_of(identifier()),
                   "what the machine must have; SKIPPED where it has not"),
          optional(
              "between_hosts", &EngineEntry::between_hosts, boolean(),
              "its two workers can be on two hosts (`kvcts run --hosts`): metadata names KVCTS_ADDRESS, or UCX's devices"),
          optional("setup_ms", &EngineEntry::setup_ms, integer(0, 600'000),
                   "rough cost of a case beside its bytes, for budgets"),
          optional("piece_us", &EngineEntry::piece_us, integer(0, 1'000'000),
                   "rough cost of a copy, however short, where it sends a message for each: suites bound the copies of "
                   "their covers by it"),
          optional("notes", &EngineEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

const Table<ConstraintEntry>& constraint_table() {
  static const Table<ConstraintEntry> table{
      "a constraint",
      {
          required("constraint", &ConstraintEntry::id, identifier(), "id"),
          required("when", &ConstraintEntry::when, text(), "axis expression: the points it is about"),
          optional("outcome", &ConstraintEntry::outcome, outcome_codec({"UNSUPPORTED", "REFUSED"}), "how they end"),
          required("reason", &ConstraintEntry::reason, text(), "why; {fact} is replaced by its value"),
          optional("source", &ConstraintEntry::source, list_of(object<Source>(source_table)), "where it is known from"),
      }};
  return table;
}

const Table<MatrixBlock>& block_table() {
  static const Table<MatrixBlock> table{
      "a matrix block",
      {
          optional("title", &MatrixBlock::title, any_text(), "one line"),
          required("axes", &MatrixBlock::axes, map_of(one_or_more_of(axis_value())),
                   "axis -> values or globs; \"!glob\" takes away"),
          optional("where", &MatrixBlock::where, any_text(), "axis expression; other points are not part of the suite"),
          optional("cover", &MatrixBlock::cover, integer(0, 6), "t: a covering array of strength t instead of the product"),
          optional("sample", &MatrixBlock::sample, integer(0, 1'000'000), "n points, chosen by the hash of their ids"),
          optional("reason", &MatrixBlock::reason, text(), "why it is there"),
      }};
  return table;
}

const Table<SuiteEntry>& suite_table() {
  static const Table<SuiteEntry> table{
      "a suite",
      {
          required("suite", &SuiteEntry::id, identifier(), "id"),
          required("title", &SuiteEntry::title, text(), "one line; may begin with a time: 'half a minute; every layout'"),
          optional("deadlines", &SuiteEntry::deadlines_ms, deadlines(), "phase -> deadline, where a case names none"),
          optional("include", &SuiteEntry::include, list_of(identifier()), "suites whose cases come first"),
          optional("files", &SuiteEntry::files, list_of(text()), "globs of case files, relative to cases/"),
          optional("ids", &SuiteEntry::ids, list_of(text()),
                   "globs of case ids: of the files' cases only these, each with its controls; default all"),
          optional("matrix", &SuiteEntry::matrix, list_of(object<MatrixBlock>(block_table)), "products of axes"),
          optional("optional", &SuiteEntry::optional, list_of(text()),
                   "engines, what engines need, connectors, environments (names or globs): this suite accepts their lack, "
                   "and is complete without the cases that it skips"),
          optional("notes", &SuiteEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

const Table<WaiverEntry>& waiver_table() {
  static const Table<WaiverEntry> table{
      "a waiver",
      {
          required("waiver", &WaiverEntry::id, identifier(), "id"),
          required("match", &WaiverEntry::match, object<WaiverMatch>(match_table), "which results; all keys must agree"),
          required("reason", &WaiverEntry::reason, text(), "the known defect, in a sentence"),
          required("owner", &WaiverEntry::owner, text(), "who answers for it"),
          required("link", &WaiverEntry::link, text(), "issue or page"),
          required("expires", &WaiverEntry::expires, date(), "last day on which it holds"),
      }};
  return table;
}

}  // namespace kvcts::catalogue
