// Models the token arithmetic of FlashInfer's paged decode: which tokens each thread block gathers, and from where.
//
// Facts (FlashInfer v0.6.9 and fb28d7242: include/flashinfer/page.cuh, attention/decode.cuh:426-432, prefill.cuh):
//   plan(): kv_indptr / kv_indices / kv_last_page_len from the caller's page size; requests are cut into tiles of C tokens
//   run():  page_size and num_heads are taken from the *tensor* under the declared label (NHD: dim -3, -2; HND: dim -2, -3)
//   kv_len  = (pages - 1) * page_size + last_page_len, in the label's page size
//   CUDA-core tile length = min((t + 1) * C, kv_len) - t * C in uint32: it wraps when the tile starts beyond kv_len
// tensor-core tile: the start is clamped to kv_len, so the same mistake ends early and silently
//   protective_get_kv_offset: page index beyond the request's pages -> offset 0, no fault
//
// Options: {label: NHD|HND, variant: cuda-core|tensor-core, tile_tokens: 128}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scene/reader/reader.hpp"

namespace kvcts::reader {

/// The pool as the kernel sees it under a label. Strides in bytes.
struct PagedView {
  std::int64_t page_size{0}, num_heads{0};  ///< under the label
  std::int64_t stride_page{0}, stride_n{0}, stride_h{0}, stride_d{0};
  std::int64_t head_dim{0};
  int itemsize{0};
};

/// Tile lengths of one launch, in thread-block order (request-major), as the kernel computes them.
struct DecodePlan {
  std::uint32_t tile_tokens{128};
  std::vector<std::uint32_t> kv_len;    ///< per request
  std::vector<std::uint32_t> true_len;  ///< per request, as passed to plan()
  struct Tile {
    std::size_t request{0};
    std::uint32_t first{0}, length{0};
  };
  std::vector<Tile> tiles;

  std::vector<std::size_t> runaway() const;  ///< thread blocks whose length exceeds a tile
  std::string text() const;                  ///< one readable line: kv_len, runaway thread blocks
};

/// Throws std::runtime_error when the label is neither NHD nor HND or the tensor has no such dims.
PagedView view_under_label(const layout::TensorView& tensor, const std::string& label);
DecodePlan plan_decode(const std::vector<Request>& requests, std::int64_t plan_page_size, std::int64_t run_page_size,
                       const std::string& variant, std::uint32_t tile_tokens);

class FlashInferDecode final : public Reader {
 public:
  explicit FlashInferDecode(const nlohmann::json& options);
  ReadResult run(const ResolvedCase& view, const std::vector<std::span<std::uint8_t>>& caches,
                 std::span<std::uint8_t> output, process::Progress progress) override;

 private:
  std::string label_, variant_;
  std::uint32_t tile_tokens_{128};
};

}  // namespace kvcts::reader
