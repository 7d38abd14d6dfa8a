#include "scene/reader/flashinfer_decode.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace kvcts::reader {

std::vector<std::size_t> DecodePlan::runaway() const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i].length > tile_tokens) out.push_back(i);
  }
  return out;
}

std::string DecodePlan::text() const {
  std::string out = "kv_len " + std::to_string(kv_len.empty() ? 0 : kv_len[0]) + " instead of " +
                    std::to_string(true_len.empty() ? 0 : true_len[0]);
  if (kv_len == true_len) out = "kv_len " + std::to_string(kv_len.empty() ? 0 : kv_len[0]);
  const auto bad = runaway();
  if (bad.empty()) return out;
  out += "; runaway thread blocks ";
  for (std::size_t i = 0; i < bad.size(); ++i) out += (i ? ", " : "") + std::to_string(bad[i]);
  return out + " (of " + std::to_string(tiles.size()) + "), " + std::to_string(tiles[bad[0]].length) +
         " tokens in the first";
}

PagedView view_under_label(const layout::TensorView& tensor, const std::string& label) {
  if (label != "NHD" && label != "HND") throw std::runtime_error("reader label: expected NHD or HND, found '" + label + "'");
  const auto n = tensor.dims.size();
  if (n < 4) {
    throw std::runtime_error("reader needs a tensor of at least 4 dims (pages, ..., 3 inner dims), found " +
                             std::to_string(n));
  }
  const auto &a = tensor.dims[n - 3], &b = tensor.dims[n - 2], &d = tensor.dims[n - 1];
  const bool nhd = label == "NHD";
  PagedView view;
  view.page_size = nhd ? a.extent : b.extent;
  view.num_heads = nhd ? b.extent : a.extent;
  view.stride_n = nhd ? a.stride : b.stride;
  view.stride_h = nhd ? b.stride : a.stride;
  view.stride_d = d.stride;
  view.stride_page = tensor.dims[0].stride;
  view.head_dim = d.extent;
  view.itemsize = layout::bits(tensor.dtype) / 8;
  return view;
}

DecodePlan plan_decode(const std::vector<Request>& requests, std::int64_t plan_page_size, std::int64_t run_page_size,
                       const std::string& variant, std::uint32_t tile_tokens) {
  if (variant != "cuda-core" && variant != "tensor-core") {
    throw std::runtime_error("reader variant: expected cuda-core or tensor-core, found '" + variant + "'");
  }
  DecodePlan plan;
  plan.tile_tokens = tile_tokens;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const auto tokens = static_cast<std::uint32_t>(requests[r].tokens);
    const auto page = static_cast<std::uint32_t>(plan_page_size);
    const std::uint32_t pages = (tokens + page - 1) / page;
    const std::uint32_t last = tokens - (pages - 1) * page;
    const std::uint32_t kv_len = (pages - 1) * static_cast<std::uint32_t>(run_page_size) + last;
    plan.true_len.push_back(tokens);
    plan.kv_len.push_back(kv_len);
    const std::uint32_t tiles = (tokens + tile_tokens - 1) / tile_tokens;
    for (std::uint32_t t = 0; t < tiles; ++t) {
      std::uint32_t first = t * tile_tokens;
      if (variant == "tensor-core") first = std::min(first, kv_len);
      const std::uint32_t end = std::min((t + 1) * tile_tokens, kv_len);
      plan.tiles.push_back({r, first, end - first});  // wraps by design of the modelled kernel
    }
  }
  return plan;
}

FlashInferDecode::FlashInferDecode(const nlohmann::json& options)
    : label_(options.at("label").get<std::string>()),
      variant_(options.value("variant", "cuda-core")),
      tile_tokens_(options.value("tile_tokens", 128u)) {
  if (tile_tokens_ == 0) throw std::runtime_error("reader tile_tokens: expected at least 1, found 0");
}

namespace {

// One gathered row: K or V of one token and head.
struct Source {
  std::span<const std::uint8_t> bytes;
  PagedView view;
  std::int64_t base{0};
};

void gather_row(const Source& s, std::int64_t page, std::int64_t entry, std::int64_t head, std::uint8_t* out) {
  const std::int64_t at = s.base + page * s.view.stride_page + entry * s.view.stride_n + head * s.view.stride_h;
  for (std::int64_t c = 0; c < s.view.head_dim; ++c) {
    const std::int64_t from = at + c * s.view.stride_d;
    // The modelled kernel would read anything; this model stays inside its region.
    if (from < 0 || from + s.view.itemsize > static_cast<std::int64_t>(s.bytes.size())) return;
    std::memcpy(out + c * s.view.itemsize, s.bytes.data() + from, static_cast<std::size_t>(s.view.itemsize));
  }
}

// K and V of layer 0 of the first rank: one combined tensor with a K dim of 2, or two tensors.
std::vector<Source> sources(const ResolvedCase& view, const std::vector<std::span<std::uint8_t>>& caches,
                            const std::string& label) {
  std::vector<Source> out;
  for (const auto& tensor : view.groups.at(0).consumer.ranks.at(0).claim.tensors) {
    if (tensor.component != layout::Component::data || tensor.origin[layout::Axis::layer] != 0) continue;
    Source s{caches.at(static_cast<std::size_t>(tensor.allocation)), view_under_label(tensor, label), tensor.offset};
    std::int64_t kv_stride = 0, kv = 1;
    for (const auto& d : tensor.dims) {
      if (d.axes == "K") kv = d.extent, kv_stride = d.stride;
      if (d.axes == "B") s.view.stride_page = d.stride;
    }
    for (std::int64_t i = 0; i < kv; ++i) {
      out.push_back(s);
      out.back().base += i * kv_stride;
    }
  }
  if (out.empty()) throw std::runtime_error("reader: the consumer's rank 0 shows no data tensor of layer 0");
  return out;
}

}  // namespace

ReadResult FlashInferDecode::run(const ResolvedCase& view, const std::vector<std::span<std::uint8_t>>& caches,
                                 std::span<std::uint8_t> output, process::Progress progress) {
  const auto& group = view.groups.at(0);
  const auto& geometry = group.consumer.ranks.at(0).geometry;
  const auto kv = sources(view, caches, label_);
  const PagedView& shape = kv.front().view;
  const DecodePlan plan = plan_decode(group.requests, geometry.block_size, shape.page_size, variant_, tile_tokens_);

  ReadResult result;
  result.events.push_back({{"reader", "flashinfer-decode"},
                           {"label", label_},
                           {"kv_len", plan.kv_len},
                           {"true_len", plan.true_len},
                           {"runaway_thread_blocks", plan.runaway()}});
  std::uint64_t done = 0;
  // Output rows: request, then K / V, then token, then head.
  const std::int64_t row = shape.head_dim * shape.itemsize;
  std::vector<std::int64_t> first_row{0};
  for (const auto& r : group.requests) {
    first_row.push_back(first_row.back() + r.tokens * geometry.heads * static_cast<std::int64_t>(kv.size()));
  }
  std::vector<std::uint8_t> scratch(static_cast<std::size_t>(row));
  for (std::size_t block = 0; block < plan.tiles.size(); ++block) {
    const auto& tile = plan.tiles[block];
    const auto& request = group.requests[tile.request];
    progress.note(
        (plan.text() + "; in thread block " + std::to_string(block) + " of " + std::to_string(plan.tiles.size())).c_str());
    progress.set(0, tile.length);
    for (std::uint32_t i = 0; i < tile.length; ++i) {
      const std::uint32_t token = tile.first + i;
      const auto page_index = static_cast<std::size_t>(token / static_cast<std::uint32_t>(shape.page_size));
      const std::int64_t entry = token % static_cast<std::uint32_t>(shape.page_size);
      const bool known = page_index < request.consumer_blocks.size();
      const std::int64_t page = known ? request.consumer_blocks[page_index] : 0;
      const bool wanted = token < request.tokens;
      for (std::size_t which = 0; which < kv.size(); ++which) {
        for (std::int64_t head = 0; head < geometry.heads; ++head) {
          std::uint8_t* out = scratch.data();
          if (wanted) {
            const std::int64_t at = first_row[tile.request] +
                                    (static_cast<std::int64_t>(which) * request.tokens + token) * geometry.heads + head;
            out = output.data() + at * row;
          }
          gather_row(kv[which], page, known ? entry : 0, known ? head : 0, out);
        }
      }
      if ((i & 1023u) == 0) progress.set(i, tile.length);
      ++done;
    }
    progress.set(tile.length, tile.length);
  }
  result.tokens = done;
  return result;
}

}  // namespace kvcts::reader
