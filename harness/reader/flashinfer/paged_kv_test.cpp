// Our FlashInfer layouts and our model of its decode kernels, held against FlashInfer's own arithmetic over every geometry of the catalogue.
#include "reader/flashinfer/paged_kv.hpp"

#include <gtest/gtest.h>

#include "catalogue/catalogue.hpp"
#include "layout/layout.hpp"
#include "reader/flashinfer_decode.hpp"

namespace kvcts::reader::flashinfer {
namespace {

using layout::Axis;

const catalogue::Catalogue& cases() {
  static const catalogue::Catalogue catalogue(std::string(KVCTS_SOURCE_DIR) + "/cases");
  return catalogue;
}

/// The view of K or of V as FlashInfer's bindings pass it on: the tensor's strides in elements, without its K dim.
Paged view(const layout::TensorView& tensor, Order order, std::int64_t itemsize) {
  Paged out;
  out.order = order;
  for (const auto& dim : tensor.dims) {
    if (dim.axes == "K") continue;
    if (dim.axes == "H") out.heads = static_cast<std::uint32_t>(dim.extent);
    if (dim.axes == "N") out.page_size = static_cast<std::uint32_t>(dim.extent);
    if (dim.axes == "C") out.head_dim = static_cast<std::uint32_t>(dim.extent);
    else out.strides.push_back(dim.stride / itemsize);
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
          const std::uint64_t theirs = static_cast<std::uint64_t>(tensor.offset) / 2 + static_cast<std::uint64_t>(kv * to_v) +
                                       offset(paged, static_cast<std::uint64_t>(at[Axis::block]), static_cast<std::uint64_t>(at[Axis::head]),
                                              static_cast<std::uint64_t>(at[Axis::slot]), static_cast<std::uint64_t>(at[Axis::channel]));
          ++out.elements;
          if (!ours || ours->allocation != tensor.allocation || static_cast<std::uint64_t>(ours->bit / 16) != theirs) ++out.wrong;
        }
      }
    }
  }
  return out;
}

TEST(FlashInferOracle, OffsetsAreOurs) {
  for (const auto& [id, order] : {std::pair{"flashinfer-nhd", Order::nhd}, {"flashinfer-hnd", Order::hnd}, {"vllm-fa-nhd", Order::nhd}, {"vllm-fa-hnd", Order::nhd}}) {
    const Compared c = compare(id, order, true);
    EXPECT_EQ(c.wrong, 0u) << id << ": of " << c.elements;
    EXPECT_GT(c.geometries, 20u) << id;
    RecordProperty(std::string(id) + "_elements", std::to_string(c.elements));
  }
  for (const auto& [id, order] : {std::pair{"flashinfer-nhd-separate", Order::nhd}, {"flashinfer-hnd-separate", Order::hnd}}) {
    for (const bool custom : {false, true}) {
      const Compared c = compare(id, order, custom);
      EXPECT_EQ(c.wrong, 0u) << id << ": of " << c.elements;
      EXPECT_GT(c.geometries, 20u) << id;
    }
  }
}

TEST(FlashInferOracle, AWrongLabelIsSeen) {
  const Compared c = compare("flashinfer-hnd-separate", Order::nhd, false);
  EXPECT_GT(c.wrong, c.elements / 4) << "HND bytes under the label NHD";
}

// FlashInfer #600: the length is told in the page size of the tensor under its label.
TEST(FlashInferOracle, LengthsAreThoseOfOurReader) {
  for (const std::int64_t tokens : {1, 31, 32, 33, 100, 512, 4095}) {
    for (const std::int64_t planned : {1, 8, 16, 32}) {
      for (const std::int64_t run : {1, 4, 8, 32, 128}) {
        std::vector<Request> request(1);
        request[0].tokens = tokens;
        const auto plan = plan_decode(request, planned, run, "cuda-core", 128);
        const auto pages = static_cast<std::int32_t>((tokens + planned - 1) / planned), last = static_cast<std::int32_t>((tokens - 1) % planned + 1);
        const Paged cache{8, static_cast<std::uint32_t>(run), 128, Order::nhd, {}};
        EXPECT_EQ(plan.kv_len.at(0), length(cache, pages, last)) << tokens << " tokens, planned " << planned << ", run " << run;
      }
    }
  }
  EXPECT_EQ(length({32, 8, 128, Order::nhd, {}}, 16, 32), 152u) << "512 tokens in pages of 32, read as pages of 8";
}

}  // namespace
}  // namespace kvcts::reader::flashinfer
