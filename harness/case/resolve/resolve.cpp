#include "case/resolve/resolve.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>

#include "case/passes.hpp"
#include "case/resolve/block_ids.hpp"
#include "case/resolve/model.hpp"
#include "case/resolve/resolve_scenario.hpp"
#include "case/text.hpp"
#include "golden/golden.hpp"
#include "layout/checked.hpp"

namespace kvcts {

using layout::checked::ceil_div;
using nlohmann::json;
using text::fail;

namespace {

// ---- one side ------------------------------------------------------------------------------------------------------

struct LayoutChoice {
  std::string name, text;
  layout::TensorSpec tensors;
  std::map<std::string, std::int64_t> fixed;
};

LayoutChoice choice_of(const std::string& id, const catalogue::Catalogue& catalogue) {
  const auto& entry = catalogue.layouts().at(id);
  return {id, entry.text, entry.tensors, entry.fixed};
}

LayoutChoice choose(const SideSpec& side, const char* which, const catalogue::Catalogue& catalogue) {
  LayoutChoice choice;
  if (!side.text.empty()) {
    choice = {"(template)", side.text, {}, {}};
  } else if (!side.layout.empty()) {
    choice = choice_of(side.layout, catalogue);
  } else if (!side.backend.empty()) {
    choice = choice_of(catalogue.backends().at(side.backend).layout, catalogue);
  } else {
    fail(std::string(which) + ": expected one of backend, layout or template, found none");
  }
  if (side.tensors) choice.tensors = *side.tensors;
  return choice;
}

// Layouts that require numbers (MLA: one latent of 576) require them of the model, so of both sides.
void apply_fixed(const LayoutChoice& choice, Model& model, std::map<std::string, std::string>& fixed_by) {
  for (const auto& [key, value] : choice.fixed) {
    auto* field = field_of(model, key);
    if (!field) fail("layout " + choice.name + ": `fixed` has no such key '" + key + "'");
    if (auto it = fixed_by.find(key); it != fixed_by.end() && *field != value) {
      fail("layout " + choice.name + " demands " + key + " = " + std::to_string(value) + ", layout " + it->second +
           " demands " + std::to_string(*field) + "; these two cannot hold the same model");
    }
    *field = value;
    fixed_by[key] = choice.name;
  }
}

// Heads of one rank: shards, or replicas if there are more ranks than KV heads.
layout::Geometry shard(layout::Geometry g, std::int64_t rank, std::int64_t ranks) {
  if (g.heads % ranks == 0) {
    g.heads /= ranks;
    g.first_head += rank * g.heads;
  } else if (ranks % g.heads == 0) {
    g.first_head += rank * g.heads / ranks;
    g.heads = 1;
  } else {
    fail(std::to_string(g.heads) + " KV heads cannot be shared by " + std::to_string(ranks) +
         " ranks: expected one to divide the other");
  }
  return g;
}

SideCache side_of(const SideSpec& spec, const LayoutChoice& choice, const Model& model, const std::string& dtype,
                  const std::string& prefix, const catalogue::Catalogue& catalogue) {
  SideCache side;
  side.layout = choice.name;
  side.text = choice.text;
  side.scheme = catalogue::scheme_of(catalogue.dtypes().at(spec.dtype.empty() ? dtype : spec.dtype));
  layout::Geometry g = model.geometry;
  if (spec.block_size) {
    // The same pool in other blocks, unless the case gives a number.
    if (*spec.block_size < 1) fail("block_size: expected at least 1, found " + std::to_string(*spec.block_size));
    std::int64_t slots = 0;
    if (__builtin_mul_overflow(g.blocks, g.block_size, &slots))
      fail("geometry: " + std::to_string(g.blocks) + " blocks of " + std::to_string(g.block_size) +
           " tokens do not fit into 64 bits");
    g.blocks = slots / *spec.block_size + (slots % *spec.block_size != 0);
    g.block_size = *spec.block_size;
  }
  if (spec.blocks) g.blocks = *spec.blocks;
  // Each allocation of each rank is a memory file.
  constexpr std::int64_t most_ranks = 4096;
  constexpr std::size_t most_allocations = 100'000;
  if (spec.tp < 1 || spec.tp > most_ranks)
    fail("tp: expected 1.." + std::to_string(most_ranks) + ", found " + std::to_string(spec.tp));
  for (std::int64_t r = 0; r < spec.tp; ++r) {
    RankCache rank;
    rank.geometry = shard(g, r, spec.tp);
    rank.truth = layout::instantiate(choice.text, rank.geometry, side.scheme, choice.tensors);
    layout::validate(rank.truth);
    if (rank.truth.allocations.size() * static_cast<std::size_t>(spec.tp) > most_allocations) {
      fail(std::to_string(spec.tp) + " ranks of " + std::to_string(rank.truth.allocations.size()) +
           " allocations each: expected at most " + std::to_string(most_allocations) +
           " allocations; use fewer layers or ranks");
    }
    rank.claim = rank.truth;
    if (!spec.claim_layout.empty() || !spec.claim_text.empty() || spec.claim_tensors) {
      LayoutChoice claim = choice;
      if (!spec.claim_layout.empty()) claim = choice_of(spec.claim_layout, catalogue);
      if (!spec.claim_text.empty()) claim = {"(template)", spec.claim_text, {}, {}};
      if (spec.claim_tensors) claim.tensors = *spec.claim_tensors;
      rank.claim = layout::instantiate(claim.text, rank.geometry, side.scheme, claim.tensors);
      // A claim is about existing memory: as many allocations, of the same sizes.
      const auto &have = rank.truth.allocations, &want = rank.claim.allocations;
      bool same = have.size() == want.size();
      for (std::size_t a = 0; same && a < have.size(); ++a) same = have[a].bytes == want[a].bytes;
      if (!same) {
        fail("claim '" + claim.text + "': describes other allocations than the layout '" + choice.text +
             "' has; a claim re-reads the same memory, so sizes must agree");
      }
      for (std::size_t a = 0; a < have.size(); ++a) rank.claim.allocations[a].name = have[a].name;
    }
    for (auto* cache : {&rank.truth, &rank.claim}) {
      if (prefix.empty()) continue;
      for (auto& a : cache->allocations) a.name = prefix + a.name;
    }
    side.ranks.push_back(std::move(rank));
  }
  return side;
}

// ---- requests ------------------------------------------------------------------------------------------------------

std::set<std::int64_t> named_blocks(const std::vector<RequestSpec>& requests, bool producer) {
  std::set<std::int64_t> out;
  for (const auto& r : requests) {
    const auto& ids = producer ? r.producer_blocks : r.consumer_blocks;
    out.insert(ids.begin(), ids.end());
  }
  return out;
}

std::vector<Request> requests_of(std::vector<RequestSpec> specs, const Model& model, const Group& group,
                                 const std::string& ids, std::uint64_t seed) {
  const auto& pg = group.producer.ranks.at(0).geometry;
  const auto& cg = group.consumer.ranks.at(0).geometry;
  const bool by_default = specs.empty();
  if (by_default) specs.push_back({model.tokens, 1, true, {}, {}});
  BlockIds producer(ids, true, pg.blocks, seed * 2 + 1, named_blocks(specs, true));
  BlockIds consumer(ids, false, cg.blocks, seed * 2 + 2, named_blocks(specs, false));
  std::vector<Request> out;
  for (const auto& s : specs) {
    if (s.tokens < 0) fail("request tokens: expected 0 or more, found " + std::to_string(s.tokens));
    Request r{s.generation, s.tokens, s.transfer, s.producer_blocks, s.consumer_blocks};
    if (r.producer_blocks.empty()) r.producer_blocks = producer.take(ceil_div(s.tokens, pg.block_size), "producer");
    if (r.consumer_blocks.empty() && s.transfer)
      r.consumer_blocks = consumer.take(ceil_div(s.tokens, cg.block_size), "consumer");
    const auto check = [&](const std::vector<std::int64_t>& list, std::int64_t blocks, std::int64_t size, const char* side) {
      for (auto id : list) {
        if (id < 0 || id >= blocks)
          fail(std::string(side) + "_blocks: expected ids in 0.." + std::to_string(blocks - 1) + ", found " +
               std::to_string(id));
      }
      if (static_cast<std::int64_t>(list.size()) < s.tokens / size + (s.tokens % size != 0)) {
        fail(std::string(side) + "_blocks: " + std::to_string(list.size()) + " blocks of " + std::to_string(size) +
             " cannot hold " + std::to_string(s.tokens) + " tokens");
      }
    };
    check(r.producer_blocks, pg.blocks, pg.block_size, "producer");
    if (s.transfer) check(r.consumer_blocks, cg.blocks, cg.block_size, "consumer");
    out.push_back(std::move(r));
  }
  // A bystander: another request's block on the producer, whose bytes must not appear anywhere on the consumer.
  if (by_default && producer.left() > 0) out.push_back({2, pg.block_size, false, producer.take(1, "producer"), {}});
  return out;
}

// ---- golden content ------------------------------------------------------------------------------------------------

// The numbers of a golden case are those of its tensors: geometry, tokens, block table, seed. Opening a file takes a child
// process (30 ms), so a program reads each file once and keeps the numbers, not the bytes.
struct GoldenNumbers {
  golden::GoldenTensor tensor;
  std::string digest;
};
const GoldenNumbers& golden_numbers(const std::filesystem::path& folder, const std::string& layout,
                                    const std::string& dtype) {
  static std::mutex mutex;
  static std::map<std::string, GoldenNumbers> known;
  std::unique_lock lock(mutex);
  const auto key = [&](const std::string& of_dtype) { return folder.string() + '\n' + layout + '\n' + of_dtype; };
  if (const auto at = known.find(key(dtype)); at != known.end()) return at->second;
  lock.unlock();  // several threads read several files at once; reading one twice is harmless
  const auto manifest = golden::read_manifest(folder);
  const auto file = golden::file_of(manifest, layout);
  if (file == manifest.files.end() || !file->second.dtypes.contains(dtype)) {
    fail("content golden: there is no golden tensor of layout " + layout + " in " + dtype +
         "; make it with golden/generate.py");
  }
  auto tensors = golden::load_all(folder, layout);
  lock.lock();
  for (auto& tensor : tensors) {
    tensor.allocations = {}, tensor.planes = {}, tensor.token_table = {};
    const std::string name = tensor.dtype;
    known.emplace(key(name), GoldenNumbers{std::move(tensor), file->second.dtypes.at(name)});
  }
  return known.at(key(dtype));
}

void use_golden(CaseSpec& spec, ContentSpec& content, const catalogue::Catalogue& catalogue) {
  auto folder = catalogue.directory().parent_path() / "golden";  // beside cases/, in the source tree and when installed
  if (!std::filesystem::exists(folder)) folder = std::filesystem::canonical(catalogue.directory()).parent_path() / "golden";
  const auto name_of = [&](const SideSpec& side) {
    return !side.layout.empty()   ? side.layout
           : side.backend.empty() ? std::string()
                                  : catalogue.backends().at(side.backend).layout;
  };
  content = {"golden", folder.string(), name_of(spec.producer), name_of(spec.consumer), ""};
  const auto& producer = golden_numbers(folder, content.producer, spec.dtype);
  const auto& consumer = golden_numbers(folder, content.consumer, spec.dtype);
  const auto &p = producer.tensor, &q = consumer.tensor;
  if (!(p.geometry == q.geometry) || p.tokens != q.tokens || p.block_table != q.block_table || p.seed != q.seed) {
    fail("content golden: the golden tensors of " + content.producer + " (" + p.geometry_name + ") and " + content.consumer +
         " (" + q.geometry_name + ") were made with different numbers; pair layouts of one geometry");
  }
  if (spec.producer.tp != 1 || spec.consumer.tp != 1 || !spec.groups.empty() || spec.producer.block_size ||
      spec.consumer.block_size) {
    fail(
        "content golden: golden tensors have one rank, one group and their own block size; leave tp, groups and block_size "
        "out");
  }
  const auto& g = p.geometry;
  spec.geometry_values = {{"layers", g.layers}, {"blocks", g.blocks},     {"block_size", g.block_size},
                          {"heads", g.heads},   {"head_dim", g.head_dim}, {"v_head_dim", g.v_head_dim},
                          {"kv", g.kv},         {"tokens", p.tokens}};
  const std::vector<std::int64_t> table(p.block_table.begin(), p.block_table.end());
  spec.requests = {{p.tokens, p.generation, true, table, table}};
  spec.seed = p.seed;
  content.digest = producer.digest + " " + consumer.digest + " ";
}

// ---- plan ----------------------------------------------------------------------------------------------------------

int passes_of(const ResolvedCase& c) {
  int passes = 1;
  for (const auto& group : c.groups) {
    for (const auto* side : {&group.producer, &group.consumer})
      passes = std::max(passes, deciding_passes(side->ranks.at(0).truth));
  }
  return passes;
}

int region_index(const ResolvedCase& c, Side side, const std::string& region) {
  const auto all = regions(c, side);
  int found = -1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& full = all[i].name;
    const bool tail = full.size() > region.size() && full.ends_with("/" + region);
    if (full != region && !tail) continue;
    if (found >= 0) fail("copies: region '" + region + "' is ambiguous; write it in full, e.g. " + all[i].name);
    found = static_cast<int>(i);
  }
  if (found < 0) {
    std::string names;
    for (const auto& r : all) names += (names.empty() ? "" : ", ") + r.name;
    fail("copies: no " + std::string(name(side)) + " region is called '" + region + "'; there are " + names);
  }
  return found;
}

// Deadlines are generous: a shared machine may stall for seconds, a hang lasts forever.
constexpr std::int64_t default_deadline_ms = 60000;

// A case with memory and steps: no sides, no plan, no engine.
void resolve_scenario_case(const CaseSpec& spec, const catalogue::Catalogue& catalogue, ResolvedCase& c) {
  c.performer = Performer::machine;
  c.scenario = resolve_scenario(spec, catalogue);
  c.settle_ms = 0;
  c.facts = {{"scripted", true}, {"dtype", spec.dtype}, {"geometry", spec.geometry}, {"arch", spec.arch}};
}

void add_groups(const CaseSpec& spec, const catalogue::Catalogue& catalogue, ResolvedCase& c) {
  const auto add_group = [&](const std::string& name, const std::string& geometry, const json& values,
                             const SideSpec& producer, const SideSpec& consumer, const std::vector<RequestSpec>& requests,
                             const std::string& prefix) {
    Group group;
    group.name = name;
    Model model = model_of(geometry, values, catalogue);
    const auto p = choose(producer, "producer", catalogue), q = choose(consumer, "consumer", catalogue);
    std::map<std::string, std::string> fixed_by;
    apply_fixed(p, model, fixed_by);
    apply_fixed(q, model, fixed_by);
    group.producer = side_of(producer, p, model, spec.dtype, prefix, catalogue);
    group.consumer = side_of(consumer, q, model, spec.dtype, prefix, catalogue);
    group.requests = requests_of(requests, model, group, spec.ids, spec.seed + c.groups.size());
    c.groups.push_back(std::move(group));
  };
  add_group("", spec.geometry, spec.geometry_values, spec.producer, spec.consumer, spec.requests, "");
  for (const auto& g : spec.groups) {
    add_group(
        g.name, g.geometry.empty() ? spec.geometry : g.geometry, g.geometry_values,
        g.producer.layout.empty() && g.producer.text.empty() && g.producer.backend.empty() ? spec.producer : g.producer,
        g.consumer.layout.empty() && g.consumer.text.empty() && g.consumer.backend.empty() ? spec.consumer : g.consumer,
        g.requests, g.name + ".");
  }
}

void resolve_sides(CaseSpec& spec, const catalogue::Catalogue& catalogue, ResolvedCase& c) {
  if (spec.content == "golden")
    use_golden(spec, c.content, catalogue);
  else
    c.content.kind = spec.content;
  c.seed = spec.seed;
  c.op = spec.op;

  add_groups(spec, catalogue, c);
  const auto& connector = catalogue.connectors().at(spec.copies.empty() ? spec.connector : "explicit");
  c.connector = {connector.id, connector.kind, connector.options, connector.between_hosts};
  c.performer = connector.kind == "program" ? Performer::program : Performer::engine;
  const auto& engine = catalogue.engines().at(spec.engine);
  c.engine = {engine.id,   engine.plugin,       static_cast<int>(engine.processes), engine.options, engine.environment,
              engine.path, engine.between_hosts};
  std::set<std::string> granted(engine.grants.begin(), engine.grants.end());
  granted.insert(connector.grants.begin(), connector.grants.end());
  c.grants.assign(granted.begin(), granted.end());
  if (!spec.engine_options.empty()) {  // differs from its catalogue entry in some way
    c.engine.options.update(spec.engine_options);
    c.engine.path = nlohmann::json::object();
  }
  if (!spec.reader.empty()) c.reader = {spec.reader, spec.reader, spec.reader_options};
  for (const auto& copy : spec.copies) {
    constexpr std::int64_t most = std::int64_t{1} << 56;
    for (const auto n : {copy.from_offset, copy.to_offset, copy.bytes}) {
      if (n < -most || n > most) fail("copies: expected offsets and bytes up to 2^56, found " + std::to_string(n));
    }
    c.copies.push_back({region_index(c, Side::producer, copy.from), copy.from_offset,
                        region_index(c, Side::consumer, copy.to), copy.to_offset, copy.bytes});
  }
  c.passes = c.content.kind == "golden" ? 1 : passes_of(c);  // a golden tensor is one content
  c.facts = {{"producer", c.groups[0].producer.layout},
             {"consumer", c.groups[0].consumer.layout},
             {"dtype", spec.dtype},
             {"geometry", spec.geometry},
             {"arch", spec.arch},
             {"connector", c.connector.name},
             {"engine", c.engine.name},
             {"op", spec.op},
             {"ptp", spec.producer.tp},
             {"ctp", spec.consumer.tp}};
}

}  // namespace

ResolvedCase resolve(const CaseSpec& given, const catalogue::Catalogue& catalogue) {
  CaseSpec spec = given;
  ResolvedCase c;
  c.id = spec.id;
  c.title = spec.title;
  c.arch = spec.arch;
  catalogue.archs().at(spec.arch);
  c.dtype = spec.dtype;
  c.seed = spec.seed;
  if (spec.scenario.empty())
    resolve_sides(spec, catalogue, c);
  else
    resolve_scenario_case(spec, catalogue, c);
  c.expected = spec.expected;
  if (c.expected.empty()) c.expected.push_back({});
  c.deadline_ms.fill(default_deadline_ms);
  for (const auto& [phase, ms] : spec.deadlines_ms) {
    const auto known = phase_from_name(phase);
    if (!known) fail("deadlines: expected the name of a phase, found '" + phase + "'");
    c.deadline_ms[static_cast<std::size_t>(*known)] = ms;
  }
  if (spec.settle_ms) c.settle_ms = *spec.settle_ms;
  if (spec.guard_bytes) c.guard_bytes = *spec.guard_bytes;
  if (spec.misalign) c.misalign = *spec.misalign;
  if (!spec.links.empty()) c.facts["links"] = spec.links;
  if (!spec.declared_by.empty()) c.facts["declared_by"] = spec.declared_by;
  return c;
}

}  // namespace kvcts
