// The catalogue against upstream's own code (cases/oracles/README.md). Each backend shape, view and format must match the
// layouts that claim it, and each claim must be confirmed.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "layout/testing/catalogue_reader.hpp"
#include "testing/checkout.hpp"

namespace kvcts::layout::testing {
namespace {

using nlohmann::json;
using Numbers = std::vector<std::int64_t>;

json oracle(const std::string& file) {
  std::ifstream in(checkout::source() + "/cases/oracles/" + file);
  if (!in) throw Error("cannot open the oracle " + file);
  return json::parse(in);
}

const Scheme& fp16() {
  static const Scheme scheme{"fp16", Dtype::fp16, {}, {}};
  return scheme;
}

std::string to_string(const Numbers& n) { return json(n).dump(); }

/// "0.8.5..0.22.1" or one version; compared number by number.
Numbers version(const std::string& text) {
  Numbers out;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, '.');) out.push_back(std::stoll(part));
  return out;
}
bool within(const std::string& range, const std::string& v) {
  const auto dots = range.find("..");
  const std::string low = range.substr(0, dots);
  const std::string high = dots == std::string::npos ? low : range.substr(dots + 2);
  return version(low) <= version(v) && version(v) <= version(high);
}

struct View {
  Numbers shape, strides;  // elements
  bool operator==(const View&) const = default;
};
View view_of(const TensorView& t) {
  View v;
  const std::int64_t itemsize = bits(t.dtype) / 8;
  for (const Dim& d : t.dims) {
    v.shape.push_back(d.extent);
    v.strides.push_back(d.stride / itemsize);
  }
  return v;
}

// ---- vLLM's per-backend shape functions --------------------------------------------------------------------------------

/// The enum name of a backend class, without engine-version suffixes; disambiguates classes that share a name.
std::string backend_name(const std::string& cls, const json& name) {
  static const std::map<std::string, std::string> by_class{{"AiterFlashAttentionBackend", "ROCM_AITER_FA"},
                                                           {"XFormersAttentionBackend", "XFORMERS_V1"},
                                                           {"DeepseekV32IndexerBackend", "DEEPSEEK_V32_INDEXER"},
                                                           {"DeepseekV4IndexerBackend", "DEEPSEEK_V4_INDEXER"}};
  if (const auto it = by_class.find(cls); it != by_class.end()) return it->second;
  if (name.is_null()) return cls;
  std::string out = name.get<std::string>();
  for (const char* suffix : {"_VLLM_V1"}) {
    if (out.ends_with(suffix)) out.resize(out.size() - std::string(suffix).size());
  }
  return out;
}

/// Entries without a shape to compare, by reason. Everything else must match a layout.
const std::map<std::string, std::string>& skipped() {
  static const std::map<std::string, std::string> reasons{
      {"NotImplementedError", "abstract classes and state caches (Mamba, GDN, linear, short convolution) have no KV shape"},
      {"AssertionError", "the class refuses the probe's geometry (odd head count; compressor states)"},
      {"AttributeError", "an enum, not a backend"},
      {"ValueError: Unknown TurboQuant", "TurboQuant accepts only its own presets, which the probe did not pass"},
      {"null", "the class could not be imported without a GPU"},
      {"[1,1,1,1,1]", "the placeholder of attention-free models holds no KV"}};
  return reasons;
}
bool skip(const json& shape) {
  const std::string text = shape.is_string() ? shape.get<std::string>() : shape.dump();
  return std::any_of(skipped().begin(), skipped().end(), [&](const auto& s) { return text.starts_with(s.first); });
}

struct Observation {
  std::string version, backend, cls, hint;  // hint "" = the layout setting has no effect
  View view;
};

/// All shapes of one class, with the strides of each layout setting.
void observe(const std::string& ver, const json& b, std::vector<Observation>& out, int& skips) {
  const std::string cls = b.at("class");
  const std::string name = backend_name(cls, b.value("name", json()));
  std::set<Numbers> shapes;
  if (b.at("shape").is_null()) {
    ASSERT_TRUE(skip(b.at("shape")));
    ++skips;
    return;
  }
  for (const auto& [dtype, shape] : b.at("shape").items()) {
    if (skip(shape)) {
      ++skips;
      continue;
    }
    ASSERT_TRUE(shape.is_array()) << ver << ' ' << cls << ": this test cannot read the shape " << shape;
    shapes.insert(shape.get<Numbers>());
  }
  for (const Numbers& shape : shapes) {
    for (const char* hint : {"NHD", "HND"}) {
      const json order = b.value(std::string("stride_order_") + hint, json());
      Numbers physical(shape.size());
      for (std::size_t i = 0; i < physical.size(); ++i) physical[i] = static_cast<std::int64_t>(i);
      const bool has_order = order.is_array();
      if (has_order) physical = order.get<Numbers>();
      ASSERT_EQ(physical.size(), shape.size()) << ver << ' ' << cls;
      View view{shape, Numbers(shape.size())};
      std::int64_t stride = 1;
      for (std::size_t i = physical.size(); i-- > 0;) {
        view.strides[static_cast<std::size_t>(physical[i])] = stride;
        stride *= shape[static_cast<std::size_t>(physical[i])];
      }
      out.push_back({ver, name, cls, has_order ? hint : "", view});
      if (!has_order) break;
    }
  }
}

/// What our layout shows for the probe's geometry: 7 blocks of 16, 3 heads of 64; rows of V of 128 where K and V differ.
View ours(const Entry& e, const Numbers& shape) {
  Geometry g{.layers = 2, .blocks = 7, .block_size = 16, .heads = 3, .head_dim = 64};
  if (e.text.find("K=1 C") != std::string::npos && e.tensors.shape.find("KC") != std::string::npos) g.v_head_dim = 128;
  if (e.fixed.contains("heads") && !e.fixed.contains("head_dim")) g.head_dim = shape.back();
  return view_of(instantiate(e.text, with_fixed(g, e), fp16(), e.tensors).tensors.front());
}

void hold(const std::vector<Observation>& seen, const std::vector<Entry>& entries) {
  std::map<std::string, int> confirmed;  // claim -> matches
  for (const Observation& o : seen) {
    std::string candidates;
    bool matched = false;
    for (const Entry& e : entries) {
      for (const UsedBy& u : e.used_by) {
        if (u.system != "vLLM" || u.backend != o.backend || !within(u.versions, o.version)) continue;
        if (!u.hint.empty() && !o.hint.empty() && u.hint != o.hint) continue;
        const View view = ours(e, o.view.shape);
        candidates += "\n  " + e.id + ": " + to_string(view.shape) + " strides " + to_string(view.strides);
        if (view != o.view) continue;
        matched = true;
        ++confirmed[e.id + ' ' + u.backend + ' ' + u.hint + ' ' + o.version];
      }
    }
    EXPECT_TRUE(matched) << "vLLM " << o.version << ' ' << o.cls << " (" << o.backend << ") " << o.hint << ": "
                         << to_string(o.view.shape) << " strides " << to_string(o.view.strides)
                         << " matches none of:" << candidates;
  }
  // Claims: in every version of the oracle where the backend shows a shape, the claimed layout must be among the matches.
  for (const Entry& e : entries) {
    for (const UsedBy& u : e.used_by) {
      if (u.system != "vLLM" || within(u.versions, "0.33.0")) continue;
      bool any = false;
      for (const Observation& o : seen) {
        if (o.backend != u.backend || !within(u.versions, o.version)) continue;
        any = true;
        EXPECT_TRUE(confirmed.contains(e.id + ' ' + u.backend + ' ' + u.hint + ' ' + o.version))
            << e.id << " claims " << u.backend << ' ' << u.hint << " of " << o.version << ", but no shape of it matches";
      }
      EXPECT_TRUE(any) << e.id << " claims " << u.backend << ' ' << u.versions << ", which the oracle never shows";
    }
  }
}

TEST(VllmOracle, MatchesTheShapesOfEveryBackendVersion) {
  const auto entries = layouts();
  std::vector<Observation> seen;
  int skips = 0;
  const json history = oracle("vllm_shapes_history.json");
  for (const auto& [ver, backends] : history.at("versions").items()) {
    for (const json& b : backends) observe(ver, b, seen, skips);
  }
  EXPECT_EQ(history.at("versions").size(), 11U);
  EXPECT_GT(seen.size(), 250U);
  RecordProperty("observations", static_cast<int>(seen.size()));
  RecordProperty("skipped", skips);
  hold(seen, entries);
}

TEST(VllmOracle, SingleVersionFilesAgreeWithTheHistory) {
  const auto entries = layouts();
  for (const char* ver : {"0.10.2", "0.27.1"}) {
    const json file = oracle(std::string("vllm_shapes_") + ver + ".json");
    EXPECT_EQ(file.at("vllm"), ver);
    std::vector<Observation> seen;
    int skips = 0;
    for (const json& b : file.at("backends")) observe(ver, b, seen, skips);
    EXPECT_GT(seen.size(), 20U);
    for (const Observation& o : seen) {
      bool matched = false;
      for (const Entry& e : entries) {
        for (const UsedBy& u : e.used_by) {
          const bool claimed = u.system == "vLLM" && u.backend == o.backend && within(u.versions, o.version) &&
                               (u.hint.empty() || o.hint.empty() || u.hint == o.hint);
          matched = matched || (claimed && ours(e, o.view.shape) == o.view);
        }
      }
      EXPECT_TRUE(matched) << ver << ' ' << o.cls << ' ' << o.hint << ": " << to_string(o.view.shape);
    }
  }
}

/// Stride orders with layers in front (0.27.1): our layouts must also cover the cross-layer pools.
TEST(VllmOracle, CrossLayerOrdersAreCatalogued) {
  std::set<std::string> orders;
  const json file = oracle("vllm_shapes_0.27.1.json");
  for (const json& b : file.at("backends")) {
    if (!b.contains("shape") || !b.at("shape").contains("auto") || !b.at("shape").at("auto").is_array()) continue;
    const std::size_t rank = b.at("shape").at("auto").size();
    // The logical letters of each rank; 4: [L, B, H, N, C] with K in C; 5: [L, B, K, N, H, C]; 3: [L, B, N, C].
    const std::string logical = rank == 4 ? "LBHNC" : rank == 5 ? "LBKNHC" : "LBNC";
    for (const char* hint : {"NHD", "HND"}) {
      const json order = b.value(std::string("stride_order_layers_") + hint, json());
      if (!order.is_array()) continue;
      std::string letters;
      for (const auto& i : order.get<std::vector<std::size_t>>()) letters += logical.at(i);
      orders.insert(letters);
    }
  }
  EXPECT_EQ(orders, (std::set<std::string>{"BHLNC", "BLKNHC", "BLNC", "BLNHC", "LBHNC", "LBNC"}));
  std::set<std::string> known;
  for (const Entry& e : layouts()) {
    std::string letters;
    for (char c : e.text) {
      if (axis_from_letter(c)) letters += c;
    }
    known.insert(letters);
    if (letters.ends_with("KC")) known.insert(letters.erase(letters.size() - 2, 1));  // vLLM folds K into C
  }
  for (const std::string& order : orders) EXPECT_TRUE(known.contains(order)) << order;
}

// ---- vLLM 0.33.0 -------------------------------------------------------------------------------------------------------

TEST(VllmOracle, MatchesTheViewsOf0330) {
  const json file = oracle("vllm_shapes_0.33.0.json");
  const auto entries = layouts();
  const std::map<std::string, Dtype> dtypes{{"torch.float16", Dtype::fp16},
                                            {"torch.bfloat16", Dtype::bf16},
                                            {"torch.float8_e4m3fn", Dtype::e4m3fn},
                                            {"torch.uint8", Dtype::uint8}};
  int held = 0;
  for (const json& v : file.at("views")) {
    const std::string name = v.at("layout");
    const bool mla = v.at("spec") == "mla";
    ASSERT_TRUE(mla || v.at("spec") == "full") << v;
    Geometry g{.layers = 2, .blocks = 7, .block_size = 16, .heads = 3, .head_dim = 64};
    if (mla) g = {.layers = 2, .blocks = 7, .block_size = 16, .heads = 1, .head_dim = 576, .kv = 1};
    const Dtype dtype = dtypes.at(v.at("dtype"));
    int matched = 0;
    for (const Entry& e : entries) {
      const bool claims = std::any_of(e.used_by.begin(), e.used_by.end(), [](const UsedBy& u) {
        return u.backend == "KVCacheLayout" && within(u.versions, "0.33.0");
      });
      if (!claims || e.names.at("vllm") != name) continue;
      const Cache cache = instantiate(e.text, g, {"", dtype, {}, {}}, e.tensors);
      ASSERT_EQ(cache.tensors.size(), 2U);
      const View view = view_of(cache.tensors[0]);
      EXPECT_EQ(view.shape, v.at("shape").get<Numbers>()) << e.id << ' ' << v;
      EXPECT_EQ(view.strides, v.at("stride").get<Numbers>()) << e.id << ' ' << v;
      const std::int64_t itemsize = bits(dtype) / 8;
      // One allocation per layer: vLLM cuts them from one buffer, back to back.
      const std::int64_t second =
          cache.tensors[1].offset + (cache.tensors[1].allocation == 1 ? cache.allocations[0].bytes : 0);
      EXPECT_EQ(second / itemsize, v.at("layer1_offset_elems").get<std::int64_t>()) << e.id << ' ' << v;
      // page_bytes: what a block of one layer holds.
      EXPECT_EQ(g.kv * g.block_size * g.heads * g.head_dim * itemsize, v.at("page_bytes").get<std::int64_t>());
      ++matched;
    }
    EXPECT_EQ(matched, 1) << name;
    ++held;
  }
  EXPECT_EQ(held, 32);
}

TEST(VllmOracle, MatchesTheLayoutEnumOf0330) {
  const json file = oracle("vllm_shapes_0.33.0.json");
  for (const auto& [name, order] : file.at("layouts").items()) {
    // The enum gives the stride order over logical [L, B, H, N, C]; the name is the letters in that order.
    std::string letters;
    for (std::size_t i : order.get<std::vector<std::size_t>>()) letters += std::string("LBHNC").at(i);
    EXPECT_EQ(letters, name);
    const std::string text = template_from_name(name);
    EXPECT_EQ(names_of(text).vllm, name);
    const auto entries = layouts();
    EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), [&](const Entry& e) { return e.text == text; })) << name;
  }
  for (const json& b : file.at("backends")) {
    const json supported = b.value("supported_kv_cache_layouts", json());
    if (supported.is_null()) continue;  // any layout, or not importable
    for (const auto& name : supported) EXPECT_TRUE(file.at("layouts").contains(name.get<std::string>())) << b.at("enum");
  }
}

// ---- LMCache -----------------------------------------------------------------------------------------------------------

/// The one layout of the catalogue that claims an LMCache format.
Entry lmcache_layout(const std::string& format) {
  std::vector<Entry> claims;
  for (const Entry& e : layouts()) {
    const bool lmcache =
        std::any_of(e.used_by.begin(), e.used_by.end(), [](const UsedBy& u) { return u.backend == "EngineKVFormat"; });
    if (lmcache && e.names.contains("lmcache") && e.names.at("lmcache") == format) claims.push_back(e);
  }
  EXPECT_EQ(claims.size(), 1U) << format;
  return claims.empty() ? Entry{} : claims.front();
}

void expect_structure(const Entry& e, const json& format, const json& sizes) {
  const json& s = format.at("structure");
  const auto levels = s.at("list_levels").get<Numbers>();
  const auto& spec = format.at("spec_methods");
  Geometry g{.layers = spec.at("num_layers"),
             .blocks = sizes.at("NB"),
             .block_size = sizes.at("BS"),
             .heads = sizes.at("NH"),
             .head_dim = sizes.at("HS")};
  g = with_fixed(g, e);
  if (e.fixed.contains("heads")) g.head_dim = spec.at("head_size");
  const Cache cache = instantiate(e.text, g, fp16(), e.tensors);
  const View view = view_of(cache.tensors.front());
  EXPECT_EQ(view.shape, s.at("tensor_shape").get<Numbers>()) << e.id;
  EXPECT_EQ(view.strides, s.at("tensor_strides").get<Numbers>()) << e.id;
  std::int64_t tensors = 1, elements = 0;
  for (std::int64_t level : levels) tensors *= level;
  EXPECT_EQ(static_cast<std::int64_t>(cache.tensors.size()), tensors) << e.id;
  EXPECT_EQ(e.tensors.list.empty(), levels.empty()) << e.id;
  for (const Plane& p : cache.planes) elements += element_count(p);
  EXPECT_EQ(elements, spec.at("elements_per_layer").get<std::int64_t>() * g.layers) << e.id;
}

TEST(LmcacheOracle, MatchesEveryFormat) {
  const json file = oracle("lmcache_formats.json");
  // Not built by the probe, so there is no structure to compare; the layouts are catalogued from the source instead.
  const std::map<std::string, std::string> no_structure{
      {"NL_X_NB_BSV_BSS", "the probe did not build blocked scales"},
      {"NL_X_NP_X_NB_BS_ONE_HS", "the probe did not build tuples of planes"}};
  EXPECT_EQ(file.at("formats").size(), 19U);
  for (const auto& [name, format] : file.at("formats").items()) {
    const Entry e = lmcache_layout(name);
    ASSERT_TRUE(e.id.starts_with("lmcache-" + std::to_string(format.at("id").get<int>()) + '-')) << e.id;
    if (format.contains("structure"))
      expect_structure(e, format, file.at("geometry"));
    else
      EXPECT_TRUE(no_structure.contains(name)) << name << " has no structure, and no reason is on the list";
  }
}

// ---- SGLang ------------------------------------------------------------------------------------------------------------

/// Dims of extent 1 have no meaningful stride.
View without_ones(const View& v) {
  View out;
  for (std::size_t i = 0; i < v.shape.size(); ++i)
    if (v.shape[i] != 1) out.shape.push_back(v.shape[i]), out.strides.push_back(v.strides[i]);
  return out;
}

/// Tensors as the pool's class allocated them: shape, strides, place, and which share an allocation.
void hold(const std::string& layout, const Geometry& geometry, const json& tensors) {
  const auto entries = layouts();
  const auto e = std::find_if(entries.begin(), entries.end(), [&](const Entry& one) { return one.id == layout; });
  ASSERT_NE(e, entries.end()) << layout;
  const Cache cache = instantiate(e->text, with_fixed(geometry, *e), fp16(), e->tensors);
  ASSERT_EQ(cache.tensors.size(), tensors.size()) << layout;
  std::map<int, int> numbers;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& t = cache.tensors[i];
    const View seen{tensors[i].at("shape"), tensors[i].at("stride")};
    EXPECT_EQ(view_of(t).shape, seen.shape) << layout << ' ' << t.name;
    EXPECT_EQ(without_ones(view_of(t)), without_ones(seen)) << layout << ' ' << t.name;
    EXPECT_EQ(t.offset / 2, tensors[i].at("offset").get<std::int64_t>()) << layout << ' ' << t.name;
    const int number = numbers.emplace(t.allocation, static_cast<int>(numbers.size())).first->second;
    EXPECT_EQ(number, tensors[i].at("allocation").get<int>()) << layout << ' ' << t.name << ": which allocation";
  }
}

TEST(SglangOracle, MatchesEveryPool) {
  const json file = oracle("sglang_pools_0.5.23.json");
  const json& n = file.at("sizes");
  Geometry g{.layers = n.at("layers"),
             .blocks = n.at("tokens").get<int>() / n.at("page").get<int>() + 1,
             .block_size = n.at("page"),
             .heads = n.at("heads"),
             .head_dim = n.at("head_dim")};
  const auto both = [](const json& pool) {
    json out = pool.at("k");
    out.insert(out.end(), pool.at("v").begin(), pool.at("v").end());
    return out;
  };
  EXPECT_EQ(file.at("device").size(), 4U);
  hold("sglang-nhd", g, both(file.at("device").at("nhd")));
  hold("sglang-hnd", g, both(file.at("device").at("hnd")));
  Geometry narrow = g;
  narrow.v_head_dim = n.at("v_head_dim");
  hold("sglang-separate", narrow, both(file.at("device").at("separate")));
  Geometry latent = g;
  latent.head_dim = n.at("latent").get<int>() + n.at("rope").get<int>();
  hold("sglang-mla", latent, file.at("device").at("mla").at("latents"));

  EXPECT_EQ(file.at("host").size(), 5U);
  for (const auto& [name, pool] : file.at("host").items()) {
    Geometry host = g;
    host.blocks = pool.at("pages");
    std::string id = "sglang-" + name;
    std::replace(id.begin(), id.end(), '_', '-');
    hold(id, host, json::array({pool.at("pool")}));
  }
}

// ---- Dynamo KVBM, and TensorRT-LLM's pool, which is its OperationalHND --------------------------------------------------

/// Elements of the cache that do not lie where the strides of Dynamo place them.
std::int64_t wrong_elements(const Cache& cache, const Geometry& g, const json& stride) {
  const std::int64_t all = g.layers * 2 * g.blocks * g.block_size * g.heads * g.head_dim;
  std::int64_t wrong = 0;
  for (std::int64_t i = 0, rest = 0; i < all; ++i, rest = i) {
    std::int64_t expected = 0;
    Coord at{};
    for (const auto& [axis, key, extent] : {std::tuple{Axis::channel, "head_dim", g.head_dim},
                                            {Axis::head, "heads", g.heads},
                                            {Axis::slot, "page", g.block_size},
                                            {Axis::kv, "outer", std::int64_t{2}},
                                            {Axis::block, "blocks", g.blocks},
                                            {Axis::layer, "layers", g.layers}}) {
      at[axis] = rest % extent;
      rest /= extent;
      if (stride.contains(key)) expected += at[axis] * stride.at(key).get<std::int64_t>();
    }
    const int allocation = stride.contains("layers") ? 0 : static_cast<int>(at[Axis::layer]);
    const auto ours = locate(cache, Component::data, at);
    wrong += !ours || ours->bit / 16 != expected || ours->allocation != allocation;
  }
  return wrong;
}

TEST(KvbmOracle, MatchesEveryElementOfEveryLayout) {
  const json file = oracle("kvbm_layouts.json");
  const json& n = file.at("sizes");
  const Geometry g{.layers = n.at("layers"),
                   .blocks = n.at("blocks"),
                   .block_size = n.at("page"),
                   .heads = n.at("heads"),
                   .head_dim = n.at("head_dim")};
  std::set<std::string> held;
  for (const Entry& e : layouts()) {
    const auto name = e.names.find("kvbm");
    if (name == e.names.end() || !file.at("strides").contains(name->second)) continue;
    if (const Geometry own = with_fixed(g, e); own.block_size != g.block_size || own.kv != 2)
      continue;  // has separate numbers
    held.insert(e.id);
    const json& stride = file.at("strides").at(name->second);
    const Cache cache = instantiate(e.text, g, fp16(), e.tensors);
    ASSERT_EQ(cache.allocations.size(), stride.contains("layers") ? 1U : static_cast<std::size_t>(g.layers)) << e.id;
    EXPECT_EQ(wrong_elements(cache, g, stride), 0) << e.id << ": " << name->second;
  }
  for (const char* id : {"kvbm-layer-separate", "kvbm-operational-hnd", "kvbm-operational-nhd", "kvbm-universal-pp",
                         "kvbm-universal-tp", "trtllm-pool"})
    EXPECT_TRUE(held.contains(id)) << id;
}

}  // namespace
}  // namespace kvcts::layout::testing
