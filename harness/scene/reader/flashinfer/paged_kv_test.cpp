// Our FlashInfer layouts and our model of its decode kernels against FlashInfer's own arithmetic, over every geometry of the
// catalogue.
#include "scene/reader/flashinfer/paged_kv.hpp"

#include <gtest/gtest.h>

#include "case/catalogue/catalogue.hpp"
#include "layout/layout.hpp"
#include "scene/reader/flashinfer_decode.hpp"
#include "testing/checkout.hpp"

namespace kvcts::reader::flashinfer {
namespace {

using layout::Axis;

const catalogue::Catalogue& cases() {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  return catalogue;
}

/// The view of K or V as FlashInfer's bindings pass it: the tensor's strides in elements, without its K dim.
Paged view(const layout::TensorView& tensor, Order order, std::int64_t itemsize) {
  Paged out;
  out.order = order;
  for (const auto& dim : tensor.dims) {
    if (dim.axes == "K") continue;
    if (dim.axes == "H") out.heads = static_cast<std::uint32_t>(dim.extent);
    if (dim.axes == "N") out.page_size = static_cast<std::uint32_t>(dim.extent);
    if (dim.axes == "C")
      out.head_dim = static_cast<std::uint32_t>(dim.extent);
    else
      out.strides.push_back(dim.stride / itemsize);
  }
  return out;
}

struct Compared {
  std::size_t geometries{0}, elements{0}, wrong{0};
};

/// Every `step`th element of every layer of the layout, in every geometry that it can have.
Compared compare(const std::string& id, Order order, bool custom_strides) {
  Compared out;
  const auto& entry = cases().layouts().at(id);
  const layout::Scheme scheme{"bf16", layout::Dtype::bf16, {}, {}};
  for (const auto& [name, numbers] : cases().geometries()) {
    layout::Geometry g = catalogue::geometry_of(numbers);
    if (g.kv != 2 || (g.v_head_dim != 0 && g.v_head_dim != g.head_dim)) continue;
    for (const auto& [key, value] : entry.fixed)
      if (key == "block_size") g.block_size = value;
    const auto cache = layout::instantiate(entry.text, g, scheme, entry.tensors);
    ++out.geometries;
    const std::int64_t all = g.blocks * g.block_size * g.heads * g.head_dim;
    const std::int64_t step = std::max<std::int64_t>(1, all / 20'000) | 1;  // odd: no power of two hides an axis
    for (const auto& tensor : cache.tensors) {
      Paged paged = view(tensor, order, 2);
      EXPECT_EQ(paged.heads, g.heads);
      EXPECT_EQ(paged.page_size, g.block_size);
      std::int64_t to_v = 0;  // in a combined cache V begins where K's first page ends
      bool combined = false;
      for (const auto& dim : tensor.dims)
        if (dim.axes == "K") to_v = dim.stride / 2, combined = true;
      if (!custom_strides) paged.strides.clear();
      for (std::int64_t i = 0; i < all; i += step) {
        layout::Coord at = tensor.origin;
        at[Axis::channel] = i % g.head_dim;
        at[Axis::head] = i / g.head_dim % g.heads;
        at[Axis::slot] = i / g.head_dim / g.heads % g.block_size;
        at[Axis::block] = i / g.head_dim / g.heads / g.block_size;
        for (std::int64_t kv = 0; kv < (combined ? 2 : 1); ++kv) {
          if (combined) at[Axis::kv] = kv;
          const auto ours = layout::locate(cache, layout::Component::data, at);
          const std::uint64_t theirs =
              static_cast<std::uint64_t>(tensor.offset) / 2 + static_cast<std::uint64_t>(kv * to_v) +
              offset(paged, static_cast<std::uint64_t>(at[Axis::block]), static_cast<std::uint64_t>(at[Axis::head]),
                     static_cast<std::uint64_t>(at[Axis::slot]), static_cast<std::uint64_t>(at[Axis::channel]));
          ++out.elements;
          if (!ours || ours->allocation != tensor.allocation || static_cast<std::uint64_t>(ours->bit / 16) != theirs)
            ++out.wrong;
        }
      }
    }
  }
  return out;
}

TEST(FlashInferOracle, OffsetsEqualOurLayout) {
  for (const auto& [id, order] : {std::pair{"flashinfer-nhd", Order::nhd},
                                  {"flashinfer-hnd", Order::hnd},
                                  {"vllm-fa-nhd", Order::nhd},
                                  {"vllm-fa-hnd", Order::nhd}}) {
    const Compared c = compare(id, order, true);
    EXPECT_EQ(c.wrong, 0u) << id << ": of " << c.elements;
    EXPECT_GT(c.geometries, 20u) << id;
    RecordProperty(std::string(id) + "_elements", std::to_string(c.elements));
  }
  for (const auto& [id, order] :
       {std::pair{"flashinfer-nhd-separate", Order::nhd}, {"flashinfer-hnd-separate", Order::hnd}}) {
    for (const bool custom : {false, true}) {
      const Compared c = compare(id, order, custom);
      EXPECT_EQ(c.wrong, 0u) << id << ": of " << c.elements;
      EXPECT_GT(c.geometries, 20u) << id;
    }
  }
}

TEST(FlashInferOracle, DetectsAWrongLabel) {
  const Compared c = compare("flashinfer-hnd-separate", Order::nhd, false);
  EXPECT_GT(c.wrong, c.elements / 4) << "HND bytes under the label NHD";
}

/// Every element of the first and last blocks' slots of every layer of a layout of latents, in every geometry of its width.
/// The first `ckv` channels are the latent, the others rope: two tensors, or two slices of one.
Compared compare_latents(const std::string& id, std::int64_t ckv, bool custom_strides) {
  Compared out;
  const auto& entry = cases().layouts().at(id);
  const layout::Scheme scheme{"bf16", layout::Dtype::bf16, {}, {}};
  for (const auto& [name, numbers] : cases().geometries()) {
    const layout::Geometry g = catalogue::geometry_of(numbers);
    if (g.kv != 1 || g.heads != 1 || g.head_dim <= ckv ||
        (entry.fixed.contains("head_dim") && entry.fixed.at("head_dim") != g.head_dim))
      continue;
    const auto cache = layout::instantiate(entry.text, g, scheme, entry.tensors);
    ++out.geometries;
    for (std::int64_t layer = 0; layer < g.layers; ++layer) {
      const auto place = [&](std::int64_t block, std::int64_t slot, std::int64_t channel) {
        layout::Coord at{};
        at[Axis::layer] = layer, at[Axis::block] = block, at[Axis::slot] = slot, at[Axis::channel] = channel;
        return layout::locate(cache, layout::Component::data, at).value();
      };
      PagedLatents paged{static_cast<std::uint32_t>(g.block_size),
                         static_cast<std::uint32_t>(ckv),
                         static_cast<std::uint32_t>(g.head_dim - ckv),
                         {},
                         {}};
      const auto ckv_first = place(0, 0, 0), rope_first = place(0, 0, ckv);
      if (custom_strides) {  // as the bindings have them: of the tensors, or of the slices
        for (const auto& tensor : cache.tensors) {
          if (tensor.origin[Axis::layer] != layer &&
              std::none_of(tensor.dims.begin(), tensor.dims.end(), [](const auto& d) { return d.axes == "L"; }))
            continue;
          auto& strides = tensor.origin[Axis::channel] == 0 ? paged.ckv_strides : paged.rope_strides;
          for (const auto& dim : tensor.dims)
            if (dim.axes == "B" || dim.axes == "N") strides.push_back(dim.stride / 2);
        }
        if (paged.rope_strides.empty()) paged.rope_strides = paged.ckv_strides;
      }
      for (const std::int64_t block : {std::int64_t{0}, g.blocks / 2, g.blocks - 1}) {
        for (std::int64_t slot = 0; slot < g.block_size; ++slot) {
          for (std::int64_t channel = 0; channel < g.head_dim; ++channel) {
            const auto ours = place(block, slot, channel);
            const auto first = channel < ckv ? ckv_first : rope_first;
            const auto page = static_cast<std::uint64_t>(block), entry_of = static_cast<std::uint64_t>(slot);
            const std::uint64_t theirs = channel < ckv
                                             ? ckv_offset(paged, page, entry_of, static_cast<std::uint64_t>(channel))
                                             : rope_offset(paged, page, entry_of, static_cast<std::uint64_t>(channel - ckv));
            ++out.elements;
            if (ours.allocation != first.allocation || static_cast<std::uint64_t>((ours.bit - first.bit) / 16) != theirs)
              ++out.wrong;
          }
        }
      }
    }
  }
  return out;
}

TEST(FlashInferOracle, OffsetsOfLatentsEqualOurLayout) {
  for (const bool custom : {false, true}) {
    const Compared c = compare_latents("flashinfer-mla-split", 512, custom);
    EXPECT_EQ(c.wrong, 0u) << "flashinfer-mla-split: of " << c.elements;
    EXPECT_GE(c.geometries, 2u);
  }
  for (const auto& [id, ckv] : {std::pair{"flashinfer-mla-joint", 512},
                                {"flashinfer-mla-joint-4d", 512},
                                {"flashinfer-mla-320", 256},
                                {"vllm-mla", 512},
                                {"vllm-mla-cross-layer", 512}}) {
    const Compared c = compare_latents(id, ckv, true);
    EXPECT_EQ(c.wrong, 0u) << id << ": of " << c.elements;
    EXPECT_GE(c.geometries, 1u) << id;
    RecordProperty(std::string(id) + "_elements", std::to_string(c.elements));
  }
}

// Slices of one tensor without their strides: FlashInfer then assumes each is packed.
TEST(FlashInferOracle, DetectsSlicesTakenForTensors) {
  const Compared c = compare_latents("flashinfer-mla-joint", 512, false);
  EXPECT_GT(c.wrong, c.elements / 2);
}

// Before paging, K and V of a request lie as one block of that many tokens would.
TEST(FlashInferOracle, UnpagedOffsetsEqualOneBlock) {
  std::size_t geometries = 0, elements = 0;
  const layout::Scheme scheme{"bf16", layout::Dtype::bf16, {}, {}};
  for (const auto& [id, order] :
       {std::pair{"flashinfer-nhd-separate", Order::nhd}, {"flashinfer-hnd-separate", Order::hnd}}) {
    const auto& entry = cases().layouts().at(id);
    for (const auto& [name, numbers] : cases().geometries()) {
      layout::Geometry g = catalogue::geometry_of(numbers);
      if (g.kv != 2 || (g.v_head_dim != 0 && g.v_head_dim != g.head_dim)) continue;
      g.layers = g.blocks = 1;
      const auto cache = layout::instantiate(entry.text, g, scheme, entry.tensors);
      ++geometries;
      const std::int64_t all = g.block_size * g.heads * g.head_dim, step = std::max<std::int64_t>(1, all / 20'000) | 1;
      std::size_t wrong = 0;
      for (std::int64_t i = 0; i < all; i += step) {
        layout::Coord at{};
        at[Axis::channel] = i % g.head_dim, at[Axis::head] = i / g.head_dim % g.heads,
        at[Axis::slot] = i / g.head_dim / g.heads;
        const auto ours = layout::locate(cache, layout::Component::data, at);
        const auto theirs =
            unpaged_offset(order, static_cast<std::uint32_t>(g.block_size), static_cast<std::uint32_t>(g.heads),
                           static_cast<std::uint32_t>(g.head_dim), static_cast<std::uint32_t>(at[Axis::slot]),
                           static_cast<std::uint32_t>(at[Axis::head]), static_cast<std::uint32_t>(at[Axis::channel]));
        ++elements;
        if (!ours || static_cast<std::uint64_t>(ours->bit / 16) != theirs) ++wrong;
      }
      EXPECT_EQ(wrong, 0u) << id << " " << name;
    }
  }
  EXPECT_GT(geometries, 40u);
  RecordProperty("elements", std::to_string(elements));
}

// Its caches of latents use 32-bit strides (page.cuh, stride_page_ckv), whatever the tensor's are.
TEST(FlashInferOracle, StridesOfLatentsBeyond32BitsAreCut) {
  const std::int64_t wide = (std::int64_t{1} << 32) + 576;
  const PagedLatents cache{16, 512, 64, {wide, 576}, {wide, 576}};
  EXPECT_EQ(ckv_offset(cache, 1, 0, 0), 576u);
  EXPECT_EQ(offset({1, 16, 576, Order::nhd, {wide, 576, 576}}, 1, 0, 0, 0), 576u);
}

// FlashInfer #600: the length is passed in the page size of the tensor under its label.
TEST(FlashInferOracle, LengthsEqualOurReader) {
  for (const std::int64_t tokens : {1, 31, 32, 33, 100, 512, 4095}) {
    for (const std::int64_t planned : {1, 8, 16, 32}) {
      for (const std::int64_t run : {1, 4, 8, 32, 128}) {
        std::vector<Request> request(1);
        request[0].tokens = tokens;
        const auto plan = plan_decode(request, planned, run, "cuda-core", 128);
        const auto pages = static_cast<std::int32_t>((tokens + planned - 1) / planned),
                   last = static_cast<std::int32_t>((tokens - 1) % planned + 1);
        const Paged cache{8, static_cast<std::uint32_t>(run), 128, Order::nhd, {}};
        EXPECT_EQ(plan.kv_len.at(0), length(cache, pages, last))
            << tokens << " tokens, planned " << planned << ", run " << run;
      }
    }
  }
  EXPECT_EQ(length({32, 8, 128, Order::nhd, {}}, 16, 32), 152u) << "512 tokens in pages of 32, read as pages of 8";
}

}  // namespace
}  // namespace kvcts::reader::flashinfer
