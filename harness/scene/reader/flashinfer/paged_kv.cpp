#include "scene/reader/flashinfer/paged_kv.hpp"

#include "scene/reader/flashinfer/device_words.hpp"

#include <flashinfer/page.cuh>

namespace kvcts::reader::flashinfer {

namespace {

using Cache = ::flashinfer::paged_kv_t<std::uint16_t, std::int32_t>;

::flashinfer::QKVLayout label(Order order) {
  return order == Order::nhd ? ::flashinfer::QKVLayout::kNHD : ::flashinfer::QKVLayout::kHND;
}

Cache cache_of(const Paged& c, std::int32_t* indptr = nullptr, std::int32_t* last = nullptr) {
  const auto layout = label(c.order);
  std::uint16_t* const none = nullptr;
  return c.strides.empty()
             ? Cache(c.heads, c.page_size, c.head_dim, 1, layout, none, none, nullptr, indptr, last)
             : Cache(c.heads, c.page_size, c.head_dim, 1, layout, none, none, c.strides.data(), nullptr, indptr, last);
}

using Latents = ::flashinfer::paged_kv_mla_t<std::uint16_t, std::int32_t>;

Latents latents_of(const PagedLatents& c) {
  std::uint16_t* const none = nullptr;
  return c.ckv_strides.empty() ? Latents(c.page_size, c.ckv, c.rope, 1, none, none, nullptr, nullptr, nullptr)
                               : Latents(c.page_size, c.ckv, c.rope, 1, none, c.ckv_strides.data(), none,
                                         c.rope_strides.data(), nullptr, nullptr, nullptr);
}

}  // namespace

std::uint64_t offset(const Paged& cache, std::uint64_t page, std::uint64_t head, std::uint64_t entry,
                     std::uint64_t feature) {
  return cache_of(cache).get_elem_offset(page, head, entry, feature);
}

std::uint32_t length(const Paged& cache, std::int32_t pages, std::int32_t last) {
  std::int32_t indptr[2] = {0, pages};
  return cache_of(cache, indptr, &last).get_length(0);
}

std::uint64_t ckv_offset(const PagedLatents& cache, std::uint64_t page, std::uint64_t entry, std::uint64_t feature) {
  return latents_of(cache).get_elem_offset_ckv(page, entry, feature);
}

std::uint64_t rope_offset(const PagedLatents& cache, std::uint64_t page, std::uint64_t entry, std::uint64_t feature) {
  return latents_of(cache).get_elem_offset_kpe(page, entry, feature);
}

std::uint64_t unpaged_offset(Order order, std::uint32_t tokens, std::uint32_t heads, std::uint32_t head_dim,
                             std::uint32_t token, std::uint32_t head, std::uint32_t feature) {
  return ::flashinfer::tensor_info_t(tokens, tokens, heads, heads, label(order), head_dim)
      .get_kv_elem_offset(token, head, feature);
}

}  // namespace kvcts::reader::flashinfer
