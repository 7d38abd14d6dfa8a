// What a KV cache is used for, as far as its layout decides how fast that is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/ranking/contender.hpp"

namespace kvcts::ranking {

/// How fast one use went. Speeds are bytes of K and V a second, each byte counted once.
struct Speed {
  double bytes_per_second{0};
  double of_memcpy{0};  ///< ratio to memcpy of as many bytes, the best of several turns
};

/// A measured use; absent speed: `why` says what the layout lacks.
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

/// All uses of one contender. `seconds` for each.
std::vector<Measurement> measure_uses(const Contender& contender, int threads, double seconds);

/// Contiguous pieces that a transfer of one block (all layers) has to name.
struct Descriptors {
  std::int64_t block{0};                     ///< the whole block
  std::int64_t bytes{0};                     ///< of the block's elements
  std::optional<std::int64_t> half_heads{};  ///< the upper half of the heads of the block; absent with one head
};
Descriptors descriptors(const Contender& contender);

}  // namespace kvcts::ranking
