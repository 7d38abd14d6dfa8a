// Every layout of cases/layouts/ over several geometries and every cache scheme that it can hold.
#include <gtest/gtest.h>

#include "layout/testing/catalogue_reader.hpp"

namespace kvcts::layout::testing {
namespace {

std::vector<Geometry> geometries() {
  return {{.layers = 2, .blocks = 5, .block_size = 16, .heads = 3, .head_dim = 64},
          {.layers = 1, .blocks = 2, .block_size = 2, .heads = 2, .head_dim = 128, .first_layer = 3, .first_head = 8},
          {.layers = 3, .blocks = 3, .block_size = 1, .heads = 1, .head_dim = 40},
          {.layers = 2, .blocks = 2, .block_size = 128, .heads = 1, .head_dim = 128, .kv = 1},
          {.layers = 2, .blocks = 3, .block_size = 8, .heads = 2, .head_dim = 192, .v_head_dim = 128}};
}

/// Bytes of the data and scale codes of a cache.
std::int64_t code_bytes(const Cache& cache, std::size_t allocation) {
  std::int64_t sum = 0;
  for (const Plane& p : cache.planes) {
    if (p.allocation == static_cast<int>(allocation)) sum += element_count(p) * bits(p.dtype);
  }
  return sum / 8;
}

void instantiates_soundly(const Entry& e) {
  check_template(e.text);
  int built = 0;
  for (const auto& [name, scheme] : schemes()) {
    if (!e.dtypes.empty() && std::find(e.dtypes.begin(), e.dtypes.end(), name) == e.dtypes.end()) continue;
    for (Geometry g : geometries()) {
      g = with_fixed(g, e);
      if (!meets(e, g, scheme)) continue;
      const std::string what =
          e.id + " x " + name + " D=" + std::to_string(g.head_dim) + " V=" + std::to_string(g.v_head_dim);
      Cache cache;
      try {
        cache = instantiate(e.text, g, scheme, e.tensors);
      } catch (const Error& error) {
        // The only reasons not to fit: a row that does not divide into groups or bytes, and K and V of different widths.
        const std::string why = error.what();
        const bool fits = why.find("divide into") == std::string::npos && why.find("one width") == std::string::npos &&
                          why.find("different width") == std::string::npos && why.find("whole bytes") == std::string::npos &&
                          why.find("differs between its parts") == std::string::npos &&
                          why.find("one strided") == std::string::npos;
        const bool unlike = g.v_head_dim != 0 && g.v_head_dim != g.head_dim;
        const bool ordinary = scheme.scale == std::nullopt && bits(scheme.data) >= 8 && !unlike;
        EXPECT_FALSE(fits || ordinary) << what << ": " << why;
        continue;
      }
      ++built;
      ASSERT_NO_THROW(validate(cache)) << what;
      EXPECT_FALSE(cache.tensors.empty()) << what;
      for (std::size_t a = 0; a < cache.allocations.size(); ++a) {
        EXPECT_TRUE(overlaps(cache, static_cast<int>(a)).empty()) << what << '\n' << to_text(cache);
        std::int64_t free = 0;
        for (const ByteRange& hole : holes(cache, static_cast<int>(a))) free += hole.end - hole.begin;
        EXPECT_EQ(free + code_bytes(cache, a), cache.allocations[a].bytes) << what;
        EXPECT_TRUE(free == 0 || e.text.find("pad") != std::string::npos) << what << " has holes but no pad";
      }
      EXPECT_EQ(cache_from_text(to_text(cache)), cache) << what;
      EXPECT_TRUE(same_map(cache, instantiate(e.text, g, scheme, {}))) << what;
    }
  }
  EXPECT_GT(built, 0) << e.id << ": no geometry and scheme fits";
}

std::int64_t kv_of(const Entry& e) { return e.fixed.contains("kv") ? e.fixed.at("kv") : 2; }

/// Published names are derived, not looked up: what the file says must follow from its template.
void names_follow(const Entry& e) {
  const Names derived = names_of(e.text);
  const auto message = [&](const char* key) { return e.names.contains(key) ? e.names.at(key) : std::string(); };
  EXPECT_EQ(message("vllm"), derived.vllm);
  EXPECT_EQ(message("flashinfer"), derived.flashinfer);
  EXPECT_EQ(message("kvbm"), derived.kvbm);
  if (message("lmcache") == "NL_X_NP_X_NB_BS_ONE_HS") {
    EXPECT_THROW(template_from_name("NL_X_NP_X_NB_BS_ONE_HS"), Error);  // the name does not give the widths
    return;
  }
  if (message("lmcache").empty() || message("lmcache") == derived.lmcache) {
    EXPECT_EQ(message("lmcache"), derived.lmcache);
    return;
  }
  EXPECT_EQ(message("lmcache").find("TWO") != std::string::npos, kv_of(e) == 2) << e.id << ": TWO is K and V";
  // LMCache has several names for one map (ONE, NBBS, TWO_HS beside CS): the other name must read as the same map.
  Geometry g = with_fixed({.layers = 2, .blocks = 3, .block_size = 4, .heads = 2, .head_dim = 16}, e);
  const Scheme scheme{"fp16", Dtype::fp16, {}, {}};
  EXPECT_TRUE(same_map(instantiate(template_from_name(message("lmcache")), g, scheme), instantiate(e.text, g, scheme)))
      << e.id << ": " << message("lmcache") << " is not " << e.text << " (derived: " << derived.lmcache << ")";
}

/// The coordinate of an element of a view, from the letters of its dims alone; the origin is the element [0, ..., 0].
Coord coordinate(const TensorView& view, const std::vector<std::int64_t>& index, const Geometry& g) {
  const auto extent = [&](Axis a, bool v) -> std::int64_t {
    const std::int64_t width = v && g.v_head_dim != 0 ? g.v_head_dim : g.head_dim;
    return std::array<std::int64_t, axis_count>{
        g.layers, g.kv, g.blocks, g.block_size, g.heads, width}[static_cast<std::size_t>(a)];
  };
  std::map<Axis, std::int64_t> digits;  // an axis over several dims: outer digits first
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    const std::string& axes = view.dims[d].axes;
    if (axes == "1") continue;
    if (axes.size() == 1) {
      std::int64_t& sum = digits[*axis_from_letter(axes[0])];
      sum = sum * view.dims[d].extent + index[d];
      continue;
    }
    std::int64_t rest = index[d];
    bool v = false;
    if (axes == "KC") {  // K and V may differ in width
      v = rest >= extent(Axis::channel, false);
      digits[Axis::kv] = v ? 1 : 0;
      digits[Axis::channel] = v ? rest - extent(Axis::channel, false) : rest;
      continue;
    }
    for (std::size_t i = axes.size(); i-- > 0;) {
      const Axis axis = *axis_from_letter(axes[i]);
      digits[axis] = i == 0 ? rest : rest % extent(axis, v);
      rest /= extent(axis, v);
    }
  }
  Coord coord = view.origin;
  for (const auto& [axis, value] : digits) coord[axis] += value;
  return coord;
}

/// The shape and strides that a connector sees lead to the same bytes as the map.
TEST(Catalogue, ViewsReachTheSameBytesAsThePlanes) {
  const auto all = schemes();
  std::uint64_t random = 88172645463325252ULL;
  int views = 0;
  for (const Entry& e : layouts()) {
    const Scheme& scheme = all.at(e.dtypes.empty() ? "fp16" : e.dtypes.front());
    for (Geometry g : geometries()) {
      g = with_fixed(g, e);
      const bool unlike = g.v_head_dim != 0 && g.v_head_dim != g.head_dim;
      if (!meets(e, g, scheme) || bits(scheme.data) < 8 || (unlike && e.text.find("K=1 C }") == std::string::npos)) continue;
      const Cache cache = instantiate(e.text, g, scheme, e.tensors);
      for (const TensorView& view : cache.tensors) {
        bool letters = view.component == Component::data;
        for (const Dim& d : view.dims) letters = letters && d.axes.find_first_of("*(") == std::string::npos;
        if (!letters) continue;
        ++views;
        for (int n = 0; n < 40; ++n) {
          std::vector<std::int64_t> index;
          std::int64_t byte = view.offset;
          for (const Dim& d : view.dims) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            index.push_back(static_cast<std::int64_t>(random % static_cast<std::uint64_t>(d.extent)));
            byte += index.back() * d.stride;
          }
          const Coord coord = coordinate(view, index, g);
          const auto found = locate(cache, Component::data, coord);
          ASSERT_TRUE(found) << e.id << ' ' << view.name;
          EXPECT_EQ(*found, (Location{view.allocation, 8 * byte, bits(view.dtype)})) << e.id << ' ' << view.name << '\n'
                                                                                     << to_text(cache);
        }
      }
    }
  }
  EXPECT_GT(views, 500);
}

TEST(Catalogue, EveryLayoutInstantiatesSoundly) {
  for (const Entry& e : layouts()) {
    SCOPED_TRACE(e.id);
    instantiates_soundly(e);
  }
}

TEST(Catalogue, NamesFollowFromTheTemplate) {
  for (const Entry& e : layouts()) {
    SCOPED_TRACE(e.id);
    names_follow(e);
  }
}

TEST(Dtypes, CoverEveryListedCacheScheme) {
  const auto all = schemes();
  for (const char* id : {"fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "int8", "uint8",
                         "int4", "nvfp4", "mxfp4", "mxfp8", "fp8_per_token_head", "int8_per_token_head"}) {
    EXPECT_TRUE(all.contains(id)) << id;
  }
  EXPECT_EQ(all.at("nvfp4").scale, (ScaleSpec{Dtype::e4m3fn, 16}));
  EXPECT_EQ(all.at("mxfp4").scale, (ScaleSpec{Dtype::e8m0, 32}));
  EXPECT_EQ(all.at("int8_per_token_head").scale, (ScaleSpec{Dtype::fp32, 0}));
}

}  // namespace
}  // namespace kvcts::layout::testing
