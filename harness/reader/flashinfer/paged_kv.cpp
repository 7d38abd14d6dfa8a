#include "reader/flashinfer/paged_kv.hpp"

#include "reader/flashinfer/device_words.hpp"

#include <flashinfer/page.cuh>

namespace kvcts::reader::flashinfer {

namespace {

using Cache = ::flashinfer::paged_kv_t<std::uint16_t, std::int32_t>;

Cache cache_of(const Paged& c, std::int32_t* indptr = nullptr, std::int32_t* last = nullptr) {
  const auto layout = c.order == Order::nhd ? ::flashinfer::QKVLayout::kNHD : ::flashinfer::QKVLayout::kHND;
  std::uint16_t* const none = nullptr;
  return c.strides.empty() ? Cache(c.heads, c.page_size, c.head_dim, 1, layout, none, none, nullptr, indptr, last)
                           : Cache(c.heads, c.page_size, c.head_dim, 1, layout, none, none, c.strides.data(), nullptr, indptr, last);
}

}  // namespace

std::uint64_t offset(const Paged& cache, std::uint64_t page, std::uint64_t head, std::uint64_t entry, std::uint64_t feature) {
  return cache_of(cache).get_elem_offset(page, head, entry, feature);
}

std::uint32_t length(const Paged& cache, std::int32_t pages, std::int32_t last) {
  std::int32_t indptr[2] = {0, pages};
  return cache_of(cache, indptr, &last).get_length(0);
}

}  // namespace kvcts::reader::flashinfer
