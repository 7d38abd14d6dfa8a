// The suite's one map, as a value: logical coordinate -> bits of an allocation.
//
//   Cache      = allocations (backing memory) + planes that say where each coordinate lives in them
//   Plane      = component, dtype, offset, modes (axis, extent, stride) over one allocation
//   TensorView = what a framework hands to a connector: shape + strides + axis names over one allocation
//
// Everything is 64-bit; an overflow throws layout::Error and never wraps. This library knows no CUDA, YAML or processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/axis.hpp"
#include "layout/dtype.hpp"
#include "layout/error.hpp"

namespace kvcts::layout {

/// What the elements of a plane are. `scale`: per-group scales, channel counts groups. `global_scale`: one per (layer, kv).
enum class Component : std::uint8_t { data, scale, global_scale };
std::string_view name(Component component);
Component component_from_name(std::string_view name);

/// One nested loop of a plane. The axis coordinate is origin[axis] + sum(digit * step) over the plane's modes of that axis;
/// the position is offset + sum(digit * stride). An axis may have several modes (D split into D/x and x).
struct Mode {
  Axis axis{};
  std::int64_t extent{1};
  std::int64_t stride{0};  ///< bits; may be 0 (aliased coordinates) or negative
  std::int64_t step{1};    ///< coordinate units per digit
  bool operator==(const Mode&) const = default;
};

/// Where one component (or a part of it: a range of layers, one of K and V, some channels) lives in an allocation.
struct Plane {
  Component component{Component::data};
  Dtype dtype{Dtype::fp16};
  bool high_nibble_first{false};  ///< 4-bit dtypes: which nibble holds the even position. Default low (FlashInfer page.cuh).
  int allocation{0};              ///< index into Cache::allocations
  std::int64_t offset{0};         ///< bits from the start of the allocation
  Coord origin{};                 ///< coordinate of digit 0 on every axis
  std::vector<Mode> modes;        ///< outermost first, as written; order carries no meaning beyond readability
  bool operator==(const Plane&) const = default;
};

/// A piece of backing memory. `bytes` excludes guards.
struct Allocation {
  std::string name;
  std::int64_t bytes{0};
  bool operator==(const Allocation&) const = default;
};

/// One dimension of a tensor as a framework shows it; `axes` names what it runs over, outermost first ("NHC", "B", "K");
/// "(NHC)" = these axes in an order that the view does not state, "1" = none, "*" = raw bytes.
struct Dim {
  std::int64_t extent{0};
  std::int64_t stride{0};  ///< bytes; 4-bit data is shown as uint8, two codes per unit along its contiguous dim
  std::string axes;
  bool operator==(const Dim&) const = default;
};

/// A tensor passed to a connector: a view over one allocation.
struct TensorView {
  std::string name;  ///< e.g. "kv.L3" or "k.L0"
  int allocation{0};
  std::int64_t offset{0};  ///< bytes
  Dtype dtype{Dtype::fp16};
  Component component{Component::data};
  Coord origin{};  ///< coordinate of the first element: list levels, first_layer, first_head
  std::vector<Dim> dims;
  bool operator==(const TensorView&) const = default;
};

/// All memory of one rank's KV cache.
struct Cache {
  std::vector<Allocation> allocations;
  std::vector<Plane> planes;
  std::vector<TensorView> tensors;
  bool operator==(const Cache&) const = default;
};

/// Position of one element: bits [bit, bit + width) of an allocation, nibble order already applied.
struct Location {
  int allocation{0};
  std::int64_t bit{0};
  int width{0};
  bool operator==(const Location&) const = default;
};

/// One element found at some bits: which plane, which coordinate.
struct Element {
  int plane{0};
  Coord coord;
  bool operator==(const Element&) const = default;
};

struct ByteRange {
  std::int64_t begin{0}, end{0};
  bool operator==(const ByteRange&) const = default;
};

// ---- map and inverse (map.cpp) -------------------------------------------------------------------------------------

/// Smallest box that holds every coordinate of the plane.
Box domain(const Plane& plane);
std::int64_t element_count(const Plane& plane);
/// Whether a mode of the plane has this axis.
bool has_axis(const Plane& plane, Axis axis);
/// nullopt when the coordinate is not in the plane. Throws Error on overflow.
std::optional<Location> locate(const Plane& plane, const Coord& coord);
/// First plane of `component` that holds the coordinate.
std::optional<Location> locate(const Cache& cache, Component component, const Coord& coord);
/// Every element whose bits include the given bit. Empty means padding, more than one means overlap. Throws Error when
/// millions of aliased elements share the bit.
std::vector<Element> inverse(const Cache& cache, int allocation, std::int64_t bit);
std::vector<Element> inverse(const Plane& plane, std::int64_t bit);

// ---- checks (check.cpp) --------------------------------------------------------------------------------------------

/// Bytes touched by the plane, as [lowest, highest+1). Throws Error on overflow.
ByteRange bounds(const Plane& plane);
/// Throws Error unless every plane and tensor is inside its allocation, every mode has extent >= 1 and step >= 1, offsets
/// and strides are whole elements (bytes, or nibbles for 4-bit codes), and no coordinate has two places (each step of an
/// axis exceeds what its smaller steps reach). All other operations require planes that pass.
void validate(const Cache& cache);
/// Byte ranges of the allocation that no plane touches.
std::vector<ByteRange> holes(const Cache& cache, int allocation);
struct Overlap {
  int plane_a{0}, plane_b{0};  ///< equal when a plane overlaps itself (stride 0 or too small)
  std::int64_t bit{0};         ///< first shared bit
};
/// Planes that share bits, and planes that visit a bit twice. Empty when the map is one-to-one.
std::vector<Overlap> overlaps(const Cache& cache, int allocation);

// ---- comparison (equal.cpp) ----------------------------------------------------------------------------------------

/// The plane with extent-1 modes dropped, adjacent modes of one axis merged and modes sorted by stride, descending.
Plane normalised(const Plane& plane);
/// Same coordinates at the same bits, however the modes are written.
bool same_map(const Cache& a, const Cache& b);
/// The same bits under other names: the maps differ only in which axis each mode belongs to. Returns the swap in words
/// ("slot <-> head"), or nullopt when the maps are equal or differ in another way.
std::optional<std::string> same_bytes_other_names(const Plane& a, const Plane& b);

// ---- runs (runs.cpp) -----------------------------------------------------------------------------------------------

struct Run {
  std::int64_t bit{0};   ///< start, bits from the start of the allocation
  std::int64_t bits{0};  ///< length
  Coord first;           ///< coordinate of the run's first element
  bool operator==(const Run&) const = default;
};
/// Maximal runs of contiguous bits that hold exactly the elements of `box` (clipped to the plane's domain), ascending. Bits
/// are memory bits: with the high nibble first, a run that starts or ends inside a byte puts that nibble in a separate run.
/// Cost is linear in runs, not elements. Throws Error on overflow and beyond 2^26 runs.
std::vector<Run> runs(const Plane& plane, const Box& box);

// ---- text (text.cpp) -----------------------------------------------------------------------------------------------

/// One line that parses back to the same value, e.g.
///   data bf16 a0+0 [K=2:57344 B=7:8192 N=16:512 H=4:128 C=64:2]
/// strides in bytes ("4b" = bits), "@n" a step that is not implied, origin as "{L=3,C=512}", "hi" = high nibble first.
std::string to_text(const Plane& plane);
Plane plane_from_text(std::string_view text);  ///< throws Error that names the column and what was expected
/// "allocation <name> <bytes>" lines, then plane lines, then "tensor ..." lines.
std::string to_text(const Cache& cache);
Cache cache_from_text(std::string_view text);
/// Axis letters by descending stride, e.g. "KBNHC"; split axes appear several times ("BHCNC").
std::string order(const Plane& plane);

// ---- names used elsewhere (names.cpp) ------------------------------------------------------------------------------

struct Names {
  std::string letters;     ///< ours: "L|K B N H C"
  std::string vllm;        ///< LBHNC ... or "" where vLLM has no name (K outside the row); ignores allocations
  std::string flashinfer;  ///< NHD / HND or ""
  std::string lmcache;     ///< NL_X_TWO_NB_BS_NH_HS ... or ""
  std::string kvbm;        ///< FullyContiguous / LayerSeparate / OperationalNHD ... or ""
};
/// Names derived from the template text (template.hpp), not looked up by layout id.
Names names_of(std::string_view template_text);
/// Accepts any of those names ("LBNHC", "NL_X_TWO_NB_BS_NH_HS", "OperationalHND") or a template text; returns template text.
/// Bare HND and NHD are vLLM's aliases of LBHNC and LBNHC; "flashinfer:HND" is the page [2, H, P, D]. A prefix vllm:,
/// flashinfer:, lmcache: or kvbm: searches that vocabulary only. Throws Error that lists near names.
std::string template_from_name(std::string_view name);

// ---- ambiguity (readings.cpp) --------------------------------------------------------------------------------------

/// What is known besides the shape. Absent = unknown.
struct Facts {
  std::optional<std::int64_t> layers{}, blocks{}, block_size{}, heads{}, head_dim{};
};
struct Reading {
  std::string letters;                ///< one group of letters per dim, e.g. "K B N H C", "B K N H C", "B N HC"
  std::vector<std::int64_t> extents;  ///< per axis L K B N H C, 0 = not determined by shape and facts
};
/// Every way to read a bare shape (and, where given, strides in elements) as a KV cache that fits the facts.
std::vector<Reading> readings(const std::vector<std::int64_t>& shape, const Facts& facts,
                              const std::vector<std::int64_t>& strides = {});
/// The fact that would leave one reading ("num_kv_heads", "block_size", "axis names"), in words; "" if unambiguous.
std::string settled_by(const std::vector<Reading>& readings);

}  // namespace kvcts::layout
