#include "matrix/axes.hpp"

#include <algorithm>

namespace kvcts::matrix {

namespace {

using Texts = std::vector<std::string>;

void set_side(SideSpec& side, const std::string& value, const Catalogue& catalogue) {
  (catalogue.layouts().contains(value) ? side.layout : side.backend) = value;
}
std::string side_name(const SideSpec& side) { return !side.layout.empty() ? side.layout : side.backend; }
// A separate block size; the pool keeps about its tokens, with two blocks to spare.
void set_block_size(CaseSpec& spec, SideSpec& side, const std::string& value, const Catalogue& catalogue) {
  const auto& geometry = catalogue.geometries().at(spec.geometry);
  side.block_size = value == "geometry" ? geometry.block_size : std::stoll(value);
  const auto blocks = [&](std::int64_t tokens) { return (tokens + *side.block_size - 1) / *side.block_size; };
  side.blocks = *side.block_size == geometry.block_size
                    ? geometry.blocks
                    : std::max(blocks(geometry.blocks * geometry.block_size), blocks(geometry.tokens) + 2);
}

Texts sides(const Catalogue& catalogue) {
  Texts out = catalogue.layouts().ids();
  const Texts backends = catalogue.backends().ids();
  out.insert(out.end(), backends.begin(), backends.end());
  return out;
}

// One screen: every axis, its default, what it means, what it sets.
constexpr std::int64_t block_limit = 1 << 20;
constexpr std::array<Axis, axis_count> table{{
    {AxisId::producer, "producer", "", "layout or backend of the side whose cache is filled", false, 0, 0, sides,
     [](CaseSpec& c, const std::string& v, const Catalogue& k) { set_side(c.producer, v, k); },
     [](const CaseSpec& c) { return side_name(c.producer); }},
    {AxisId::consumer, "consumer", "same", "layout or backend of the other side", false, 0, 0, sides,
     [](CaseSpec& c, const std::string& v, const Catalogue& k) { set_side(c.consumer, v, k); },
     [](const CaseSpec& c) { return side_name(c.consumer); }},
    {AxisId::dtype, "dtype", "bf16", "cache dtype of both sides", false, 0, 0,
     [](const Catalogue& k) { return k.dtypes().ids(); },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.dtype = v; }, [](const CaseSpec& c) { return c.dtype; }},
    {AxisId::geometry, "geometry", "small", "layers, blocks, heads, ... of the model", false, 0, 0,
     [](const Catalogue& k) { return k.geometries().ids(); },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.geometry = v; },
     [](const CaseSpec& c) { return c.geometry; }},
    {AxisId::pbs, "pbs", "geometry", "tokens of a producer block", true, 1, block_limit,
     [](const Catalogue&) { return Texts{"geometry", "1", "8", "16", "32", "64", "128"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue& k) { set_block_size(c, c.producer, v, k); },
     [](const CaseSpec& c) { return c.producer.block_size ? std::to_string(*c.producer.block_size) : "geometry"; }},
    {AxisId::cbs, "cbs", "geometry", "tokens of a consumer block", true, 1, block_limit,
     [](const Catalogue&) { return Texts{"geometry", "1", "8", "16", "32", "64", "128"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue& k) { set_block_size(c, c.consumer, v, k); },
     [](const CaseSpec& c) { return c.consumer.block_size ? std::to_string(*c.consumer.block_size) : "geometry"; }},
    {AxisId::ptp, "ptp", "1", "ranks that share the producer's KV heads", true, 1, 64,
     [](const Catalogue&) { return Texts{"1", "2", "4", "8"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.producer.tp = std::stoll(v); },
     [](const CaseSpec& c) { return std::to_string(c.producer.tp); }},
    {AxisId::ctp, "ctp", "1", "ranks that share the consumer's KV heads", true, 1, 64,
     [](const Catalogue&) { return Texts{"1", "2", "4", "8"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.consumer.tp = std::stoll(v); },
     [](const CaseSpec& c) { return std::to_string(c.consumer.tp); }},
    {AxisId::connector, "connector", "reference", "who makes the plan", false, 0, 0,
     [](const Catalogue& k) { return k.connectors().ids(); },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.connector = v; },
     [](const CaseSpec& c) { return c.connector; }},
    {AxisId::engine, "engine", "memcpy", "who moves the bytes", false, 0, 0,
     [](const Catalogue& k) { return k.engines().ids(); },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.engine = v; }, [](const CaseSpec& c) { return c.engine; }},
    {AxisId::op, "op", "write", "write: the producer pushes; read: the consumer pulls", false, 0, 0,
     [](const Catalogue&) { return Texts{"write", "read"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.op = direction_from_name(v).value(); },
     [](const CaseSpec& c) { return std::string(name(c.op)); }},
    {AxisId::ids, "ids", "shuffled", "block ids", false, 0, 0, [](const Catalogue&) { return block_id_rules; },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.ids = v; }, [](const CaseSpec& c) { return c.ids; }},
    {AxisId::arch, "arch", "cpu", "GPU architecture whose facts apply", false, 0, 0,
     [](const Catalogue& k) { return k.archs().ids(); },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.arch = v; }, [](const CaseSpec& c) { return c.arch; }},
    {AxisId::misalign, "misalign", "0", "bytes by which each allocation's base is off a page", true, 0, 1 << 20,
     [](const Catalogue&) { return Texts{"0", "64", "256"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.misalign = std::stoll(v); },
     [](const CaseSpec& c) { return std::to_string(c.misalign.value_or(0)); }},
    {AxisId::content, "content", "tags",
     "what the producer holds: tags, the bytes of a golden file, or tags with NaN, -0 and subnormals among them", false, 0,
     0, [](const Catalogue&) { return Texts{"tags", "golden", "specials"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.content = v; },
     [](const CaseSpec& c) { return c.content; }},
    {AxisId::seed, "seed", "1", "of tags, poison and shuffles", true, 0, std::int64_t{1} << 62,
     [](const Catalogue&) { return Texts{"1"}; },
     [](CaseSpec& c, const std::string& v, const Catalogue&) { c.seed = std::stoull(v); },
     [](const CaseSpec& c) { return std::to_string(c.seed); }},
}};
static_assert(std::ranges::all_of(table, [](const Axis& a) { return &a == &table[static_cast<std::size_t>(a.id)] && a.of; }),
              "an axis has no row, or one at another place");

}  // namespace

const std::array<Axis, axis_count>& axes() { return table; }
const Axis& axis(AxisId id) { return table[static_cast<std::size_t>(id)]; }

const Axis* find_axis(std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const Axis& a) { return a.name == name; });
  return it == table.end() ? nullptr : &*it;
}

std::vector<std::string> axis_names() {
  std::vector<std::string> out;
  for (const auto& a : table) out.emplace_back(a.name);
  return out;
}

std::string axes_reference() {
  std::string out = "| axis | default | meaning |\n| --- | --- | --- |\n";
  for (const auto& a : table)
    out += "| `" + std::string(a.name) + "` | " +
           (a.fallback.empty() ? "(always written)" : "`" + std::string(a.fallback) + "`") + " | " + std::string(a.doc) +
           (a.open ? " (" + std::to_string(a.low) + " to " + std::to_string(a.high) + ")" : "") + " |\n";
  return out;
}

}  // namespace kvcts::matrix
