// A layout before its numbers are known: a small tree in vLLM's letters. This one notation describes all of cases/layouts/.
//
//   cache    := region { '&' region }                       one text may describe several lists of allocations
//   region   := { AXIS 'x' } part                           list levels, outermost first: one allocation each
//   part     := { mode } ( leaf | '{' part { ';' part } '}' )
//   mode     := AXIS                                        the whole axis
//             | AXIS '/' n | AXIS '%' n                     outer and inner digit of a split axis (extent must divide)
//             | AXIS '=' n | AXIS '=' a '..' b              a fixed coordinate, or a range
//   leaf     := [ component ] [ ':' dtype [ '.hi' ] ]       component: data (default) | scale | gscale
//             | 'pad' n                                     n bytes that no element owns
//   AXIS     := L | K | B | N | H | C
//   n, a, b  := a number, or an expression of L B N H D V x G with * / + - (usual precedence, / must divide, no parentheses)
//
// A leaf without a dtype takes the scheme's dtype for its component.
// The component word may also stand before the modes ("scale H N C"). D = head_dim, V = v_head_dim, x = 16 / itemsize,
// G = number of scale groups of a row. A part's size is the product of its extents times what is inside, laid out packed.
//
// Spaces separate modes. An axis appears once on a path from the root to a leaf; a split axis needs both digits with the
// same n (in scales the outer digit may appear alone: one scale per n coordinates, at the first of them). C is the width of
// the row: D under K=0, V under K=1 (fixed, or a list level K x); where K is not fixed, D and V must be equal. In scales C
// is G, and a range C=a..b counts scales. Every axis of extent > 1 must appear on every path to data or scales. Sub-byte
// codes must fill whole bytes before anything but their innermost modes is laid out, and at the end of a part.
//
// Examples:   L x K B N H C                                         FlashAttention NHD  (2, nb, N, H, D)
//             L x { K=0 B H C/x N C%x ; K=1 B H C N }               paged_attn x-packed key, value [nb, H, D, N]
//             L x B { N { C=0..448 :e4m3fn ; C=448..512 :bf16 } ; N { scale C=0..7 :e8m0 ; pad 1 } }   DSv4 footer
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout/layout.hpp"
#include "layout/scheme.hpp"

namespace kvcts::layout {

/// The numbers of one rank's cache. Heads and layers are this rank's; the origins place them in the model.
struct Geometry {
  std::int64_t layers{1}, blocks{1}, block_size{1}, heads{1}, head_dim{1};
  std::int64_t v_head_dim{0};  ///< 0 = same as head_dim
  std::int64_t kv{2};          ///< 2 = K and V, 1 = one latent (MLA)
  std::int64_t first_layer{0}, first_head{0};
  bool operator==(const Geometry&) const = default;
};

/// How the framework shows the allocations: list levels that become separate tensors (outermost first, "K L"), and the dims
/// of each, e.g. {list: "L", shape: "K B NHC"} = a (2, nb, N*H*D) tensor per layer. A dim of the shape is
///   NHC     axes joined in this order; an Error where their strides do not continue one another
///   (NHC)   the same axes in any physical order, as long as they fill one stretch (vLLM XFORMERS)
///   1       a dimension of extent 1 ("B 1 N C" = [NP, 1, P, D])
///   *       last only: the rest of the allocation as bytes, uint8, contiguous ("B N *" = uint8 [NB, P, 584])
/// List axes need not be list levels of the template (SGLang: K and V are halves of one allocation).
/// Empty shape = dims in physical order, one per mode; allocations with several planes that form no single view end in "*"
/// bytes. 4-bit codes are shown as uint8, two per byte. Each allocation without data (side scales) gets one tensor in
/// physical order.
struct TensorSpec {
  std::string list;
  std::string shape;
  bool operator==(const TensorSpec&) const = default;
};

/// Parses and checks the grammar only. Throws Error with the column.
void check_template(std::string_view text);

/// Builds the cache of one rank. Where the scheme has scales and the text places none, scales go into side allocations with
/// the data's own order ("scale" for "data", C = groups). An unplaced global scale gets a side allocation `L K`. In the side
/// text, a split C is one whole C at the place of its outer digit; a range of channels is divided by the group (group 0: the
/// part with channel 0 has the row's scale); pads and leaves with an explicit dtype disappear. Allocations are named kv / k
/// / v (K fixed), scale / k_scale / v_scale, gscale, then ".L3" for list levels, ".2" for doubles. Order: regions as written
/// with outermost list levels first, then the side scales of each region, then the global scale. Throws Error when an extent
/// does not divide (head_dim 40 with x = 16), a part overflows, or the text is wrong.
Cache instantiate(std::string_view text, const Geometry& geometry, const Scheme& scheme, const TensorSpec& tensors = {});

}  // namespace kvcts::layout
