// FlashInfer's own offset arithmetic (include/flashinfer/page.cuh, struct paged_kv_t), behind a face without CUDA: an oracle for the layouts
// and for the reader's model that shares no code with either.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace kvcts::reader::flashinfer {

enum class Order { nhd, hnd };

/// K or V of a paged cache as FlashInfer's kernels address it. Numbers are elements.
struct Paged {
  std::uint32_t heads{0}, page_size{0}, head_dim{0};
  Order order{Order::nhd};
  /// Strides of the K or V view [pages, ...]: page, then the two dims in the order of the label; none = packed.
  std::vector<std::int64_t> strides;
};

/// paged_kv_t::get_elem_offset.
std::uint64_t offset(const Paged& cache, std::uint64_t page, std::uint64_t head, std::uint64_t entry, std::uint64_t feature);

/// paged_kv_t::get_length of a request with `pages` pages, `last` tokens in the last one.
std::uint32_t length(const Paged& cache, std::int32_t pages, std::int32_t last);

}  // namespace kvcts::reader::flashinfer
