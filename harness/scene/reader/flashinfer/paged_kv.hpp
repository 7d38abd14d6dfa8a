// FlashInfer's own offset arithmetic (include/flashinfer/page.cuh, structs paged_kv_t and paged_kv_mla_t; layout.cuh, struct
// tensor_info_t) with a CUDA-free interface: an oracle for the layouts and the reader's model that shares no code with
// either.
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
  /// Strides of the K or V view [pages, ...]: page, then the two dims in label order; none = packed.
  std::vector<std::int64_t> strides;
};

/// paged_kv_t::get_elem_offset.
std::uint64_t offset(const Paged& cache, std::uint64_t page, std::uint64_t head, std::uint64_t entry, std::uint64_t feature);

/// paged_kv_t::get_length of a request with `pages` pages, `last` tokens in the last one.
std::uint32_t length(const Paged& cache, std::int32_t pages, std::int32_t last);

/// A paged cache of latents (MLA): ckv and rope, separate or slices of one tensor. Numbers are elements.
struct PagedLatents {
  std::uint32_t page_size{0}, ckv{0}, rope{0};
  /// Strides of page and slot in each of the two; none = packed, two tensors.
  std::vector<std::int64_t> ckv_strides, rope_strides;
};

/// paged_kv_mla_t::get_elem_offset_ckv, and get_elem_offset_kpe for rope. Each counts from its own first element.
std::uint64_t ckv_offset(const PagedLatents& cache, std::uint64_t page, std::uint64_t entry, std::uint64_t feature);
std::uint64_t rope_offset(const PagedLatents& cache, std::uint64_t page, std::uint64_t entry, std::uint64_t feature);

/// tensor_info_t::get_kv_elem_offset: K or V of one request's `tokens` in one piece, as prefill has them before they are in
/// pages (ragged: the request's first token is added to the pointer).
std::uint64_t unpaged_offset(Order order, std::uint32_t tokens, std::uint32_t heads, std::uint32_t head_dim,
                             std::uint32_t token, std::uint32_t head, std::uint32_t feature);

}  // namespace kvcts::reader::flashinfer
