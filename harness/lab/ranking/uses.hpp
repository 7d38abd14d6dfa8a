// Uses of a KV cache whose speed depends on its layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/ranking/contender.hpp"

namespace kvcts::ranking {

/// How fast one use ran. Speeds are bytes of K and V per second, each byte counted once.
struct Speed {
  double bytes_per_second{0};
  double of_memcpy{0};  ///< ratio to memcpy of the same number of bytes, the best of several turns
};

/// A measured use; without a speed, `why` names what the layout lacks.
struct Measurement {
  std::string_view use;
  std::optional<Speed> speed{};
  std::string why{};
};

struct UseName {
  std::string_view id;     ///< "prompt", "token", "gather", "heads", "relayout"
  std::string_view words;  ///< what happens, for people
};
const std::vector<UseName>& uses();

/// All uses of one contender, `seconds` each.
std::vector<Measurement> measure_uses(const Contender& contender, int threads, double seconds);

/// Contiguous pieces that a transfer of one block (all layers) must list.
struct Descriptors {
  std::int64_t block{0};                     ///< the whole block
  std::int64_t bytes{0};                     ///< of the block's elements
  std::optional<std::int64_t> half_heads{};  ///< the upper half of the heads of the block; absent with one head
};
Descriptors descriptors(const Contender& contender);

}  // namespace kvcts::ranking
