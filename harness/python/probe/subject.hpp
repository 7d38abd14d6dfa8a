// A layout with its numbers, and tensors of a live program that claim to have it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "layout/layout.hpp"
#include "layout/scheme.hpp"
#include "layout/template.hpp"

namespace kvcts::probe {

/// What a caller specifies about a layout. Missing numbers come from the layout or the defaults of Geometry; blocks,
/// block_size, heads and head_dim have no default.
struct Wanted {
  std::string name;   ///< catalogue id, published name (LBNHC, flashinfer:HND, NL_X_...) or template text
  std::string dtype;  ///< scheme of the catalogue; "" = the first that the layout names, else bf16
  std::map<std::string, std::int64_t>
      numbers;  ///< layers, blocks, block_size, heads, head_dim, v_head_dim, kv, first_layer, first_head
  std::optional<layout::TensorSpec> tensors;  ///< how tensors are shown, if different from the layout
};

struct Subject {
  std::string id, title;  ///< of the catalogue; empty for names and templates
  std::string text;
  layout::Geometry geometry;
  layout::Scheme scheme;
  layout::Cache cache;
};

/// Throws layout::Error or catalogue::Error: one sentence with what was expected, what was found, what to do.
Subject make_subject(const Wanted& wanted, const catalogue::Catalogue& catalogue);

/// A tensor as its owner describes it. Strides in bytes.
struct Tensor {
  std::uint8_t* data{nullptr};
  std::string dtype;  ///< "bf16", "fp16", "e4m3fn", ..., or "uint8", "uint16" for codes viewed as integers
  std::int64_t itemsize{1};
  std::vector<std::int64_t> shape, strides;
};

/// The bytes of one allocation that its tensors cover.
struct TensorRange {
  std::span<std::uint8_t> bytes;
  std::int64_t begin{0};  ///< byte of the allocation at which they begin
};
struct Bound {
  layout::Cache cache;              ///< planes moved so that byte 0 of an allocation is the first byte of its stretch
  std::vector<TensorRange> ranges;  ///< one per allocation
};

/// Checks the tensors against those of the layout, in its order: shape, strides (of extents above 1), width and dtype
/// of elements, and relative places within one allocation. An allocation may also be passed whole, as a vector of
/// bytes. Throws layout::Error.
Bound attach(const Subject& subject, const std::vector<Tensor>& tensors);

/// Lowest and one past the highest byte of a tensor, from its first element.
layout::ByteRange reach(const Tensor& tensor);

}  // namespace kvcts::probe
