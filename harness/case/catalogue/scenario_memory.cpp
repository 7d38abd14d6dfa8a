// Tables of memory, views of it, and requests.
#include "case/catalogue/scenario_table.hpp"
#include "case/catalogue/scenario_values.hpp"

namespace kvcts::catalogue {

using scenario::Arithmetic;
using scenario::Memory;
using scenario::View;

namespace {

Field<View> view_geometry() {
  auto values = map_of(integer_codec(0, many), {"layers", "blocks", "block_size", "heads", "head_dim", "v_head_dim", "kv",
                                                "first_layer", "first_head"});
  values.words = "layers, blocks, block_size, heads, head_dim, v_head_dim, kv, first_layer, first_head -> number";
  return {"geometry",
          false,
          "numbers that replace those of the memory, which replace the case's",
          values.words,
          values.schema,
          [values](View& out, const Node& node) {
            out.geometry = json::object();
            for (const auto& [key, value] : values.read(node)) out.geometry[key] = value;
          },
          [](const View& in) { return in.geometry; }};
}

std::vector<Field<View>> declared_fields() {
  return {
      optional("of", &View::of, text(), "memory whose bytes these are: \"P\", or one of its allocations \"P/kv.L0\""),
      optional("layout", &View::layout, text(),
               "layout of the catalogue, or another project's name for one (flashinfer:HND, NL_X_TWO_NB_BS_NH_HS)"),
      optional("template", &View::text, text(), "a layout written out (grammar: kvcts explain --schema case --reference)"),
      optional("planes", &View::planes, text(),
               "planes written out, a line each: data fp16 a0+0 [B=6:512 N=4:128 H=2:64 C=16:2], bytes"),
      view_geometry(),
      optional("dtype", &View::dtype, identifier(), "cache dtype; default the memory's, and then the case's"),
      optional("offset", &View::offset, offset_codec(), "bytes added to every address"),
      optional("strides", &View::strides, strides_codec(), "outermost stride of the axis, in data planes"),
      optional("scale_strides", &View::scale_strides, strides_codec(), "the same in scale planes"),
      optional("scale_offset", &View::scale_offset, offset_codec(), "bytes added to addresses of scale planes"),
  };
}

void check_view(const View& view, const Node& node) {
  if (!view.layout.empty() + !view.text.empty() + !view.planes.empty() > 1)
    fail(node, "one of layout, template and planes", "remove the others");
  if (view.planes.empty()) return;
  for (const char* key : {"geometry", "dtype"}) {
    if (const Node* given = node.find(key))
      fail(*given, std::string("no '") + key + "' beside planes", "planes say it all, remove it");
  }
}

void check_memory(const Memory& memory, const Node& node) {
  check_view(memory.view, node);
  if (!memory.view.of.empty()) {
    for (const char* key :
         {"bytes", "pool", "gap", "guard_below", "guard_above", "sparse", "boundaries", "base", "holds", "unused_slots"}) {
      if (const Node* given = node.find(key)) {
        fail(*given, std::string("no '") + key + "' in a memory that shares the bytes of '" + memory.view.of + "'",
             "say it there");
      }
    }
    return;
  }
  if (memory.view.layout.empty() && memory.view.text.empty() && memory.view.planes.empty() && memory.bytes == 0) {
    fail(node, "layout, template, planes, bytes or of", "say what lies in it, or how large it is");
  }
  if (memory.view.offset != 0)
    fail(*node.find("offset"), "no 'offset' in memory that owns its bytes",
         "an offset is for views, and for memory with 'of'");
  if (memory.gap != 0 && !memory.pool) fail(*node.find("gap"), "a gap only with pool: true", "add pool: true, or remove it");
  for (std::size_t i = 0; i < memory.boundaries.size(); ++i) {
    if (i && memory.boundaries[i] <= memory.boundaries[i - 1])
      fail(*node.find("boundaries"), "boundaries in ascending order", "sort them");
  }
}

}  // namespace

const Table<Arithmetic>& arithmetic_table() {
  static const Table<Arithmetic> table{
      "an arithmetic",
      {
          optional("bits", &Arithmetic::bits, integer(8, 64), "width of the number"),
          optional("signed", &Arithmetic::is_signed, boolean(), "read back with a sign"),
          optional("unit", &Arithmetic::unit, one_of({"bytes", "elements"}), "what it counts"),
          optional("of", &Arithmetic::of, one_of({"sum", "product"}),
                   "sum: the whole offset; product: index * stride of each mode"),
      }};
  return table;
}

const Table<View>& view_table() {
  static const Table<View> table{"a view",
                                 join(declared_fields(),
                                      {
                                          optional("align", &View::align, integer(1, std::int64_t{1} << 32),
                                                   "every address is rounded down to a multiple of this many bytes"),
                                          optional("arithmetic", &View::arithmetic, arithmetic(),
                                                   "width in which the code computes addresses; default 64 bits"),
                                      }),
                                 [](const View& view, const Node& node) {
                                   if (view.of.empty()) fail_missing_key(node, "a view", "of", "a memory");
                                   check_view(view, node);
                                 }};
  return table;
}

const Table<Memory>& memory_table() {
  static const Table<Memory> table = [] {
    std::vector<Field<Memory>> fields{
        optional("side", &Memory::side, one_of({"producer", "consumer", "staging"}), "whose it is"),
        optional("rank", &Memory::rank, integer(0, 1 << 20), "of which rank"),
    };
    for (const auto& field : declared_fields()) fields.push_back(lift(field, &Memory::view));
    return Table<Memory>{
        "a memory",
        join(fields,
             {
                 optional("bytes", &Memory::bytes, bytes_codec(),
                          "size without a layout, or larger than the layout needs (one allocation)"),
                 optional("pool", &Memory::pool, boolean(),
                          "all allocations in one piece, one behind the other; default each by itself, with guards"),
                 optional("gap", &Memory::gap, bytes_codec(), "bytes between them in a pool"),
                 optional("guard_below", &Memory::guard_below, bytes_codec(), "bytes watched in front of each piece"),
                 optional("guard_above", &Memory::guard_above, bytes_codec(), "bytes watched behind each piece"),
                 optional("sparse", &Memory::sparse, boolean(),
                          "only bytes that a step touches exist, so that pools of many GiB fit; nothing else is watched"),
                 optional("boundaries", &Memory::boundaries, list_of(bytes_codec(1)),
                          "bytes at which one mapping ends and the next begins: no access may straddle one"),
                 optional("base", &Memory::base, bytes_codec(), "address of byte 0; matters for align"),
                 optional("holds", &Memory::holds, one_of({"poison", "zero"}), "before the first step"),
                 optional("unused_slots", &Memory::unused_slots, one_of({"free", "kept"}),
                          "slots behind a request's last token in its last block: free, a step that moves the request here "
                          "may write them, as code that moves whole blocks does; kept, it must not"),
             }),
        check_memory};
  }();
  return table;
}

const Table<scenario::ScenarioRequest>& scenario_request_table() {
  using scenario::ScenarioRequest;
  static const Table<ScenarioRequest> table{
      "a request",
      {
          required("tokens", &ScenarioRequest::tokens, integer(0, many), "tokens in the cache"),
          optional(
              "generation", &ScenarioRequest::generation, generation(),
              "which content it holds; default its own. Requests of one generation share: equal tokens at equal positions"),
          optional("first_token", &ScenarioRequest::first_token, integer(0, many),
                   "position of its first token in the content"),
          optional("blocks", &ScenarioRequest::blocks, tables(block_ids()),
                   "memory -> its block ids there, in order of tokens"),
          optional("positions", &ScenarioRequest::positions, tables(list_of(integer_codec(0, many))),
                   "memory -> which blocks of the request those are; default 0, 1, 2, ..."),
      },
      [](const ScenarioRequest& request, const Node& node) {
        for (const auto& [memory, positions] : request.positions) {
          const auto ids = request.blocks.find(memory);
          if (ids == request.blocks.end() || ids->second.size() != positions.size()) {
            fail(*node.find("positions"), "as many positions as blocks in '" + memory + "'",
                 "say for each block which one of the request it is");
          }
        }
      }};
  return table;
}

}  // namespace kvcts::catalogue
