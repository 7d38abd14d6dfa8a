// The ranked layouts: those of the catalogue, each distinct byte order once, with memory to work on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "layout/layout.hpp"
#include "layout/template.hpp"

namespace kvcts::ranking {

/// Layouts with elements at the same bytes; only their names and shapes differ.
struct Contender {
  std::vector<std::string> ids;  ///< of the catalogue, by name
  std::string text;              ///< template of the first
  std::string dtype;
  layout::TensorSpec tensors;
  layout::Scheme scheme;
  layout::Geometry geometry;
  layout::Cache cache;

  bool latent() const { return geometry.kv == 1; }
  /// The same layout for a rank that has the upper half of the heads.
  layout::Cache upper_half() const;
};

struct Left {
  std::string id, why;
};

/// Every layout whose id `wanted` accepts, with 2 layers of `tokens` tokens (8 heads of 128 channels, blocks of 16,
/// bf16, unless the layout requires other numbers or dtypes). Layouts that cannot have these numbers go to `left`.
std::vector<Contender> contenders(const catalogue::Catalogue& catalogue,
                                  const std::function<bool(const std::string&)>& wanted, std::int64_t tokens,
                                  std::vector<Left>& left);

/// One span of bytes per allocation.
class Memory {
 public:
  Memory() = default;
  explicit Memory(const layout::Cache& cache);
  std::span<std::uint8_t> operator[](int allocation) { return all_[static_cast<std::size_t>(allocation)]; }
  std::vector<std::span<std::uint8_t>> writable() { return {all_.begin(), all_.end()}; }
  std::vector<std::span<const std::uint8_t>> readable() const { return {all_.begin(), all_.end()}; }

 private:
  std::vector<std::vector<std::uint8_t>> all_;
};

}  // namespace kvcts::ranking
