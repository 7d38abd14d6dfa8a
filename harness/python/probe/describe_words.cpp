#include <fmt/format.h>
#include <fmt/ranges.h>

#include "python/probe/describe.hpp"

namespace kvcts::probe {

using layout::Axis;

std::vector<std::string> missing(const layout::Reading& reading) {
  std::vector<std::string> out;
  for (const Axis axis : layout::all_axes) {
    const bool named = reading.letters.find(layout::letter(axis)) != std::string::npos;
    if (named && reading.extents[static_cast<std::size_t>(axis)] == 0) out.emplace_back(layout::name(axis));
  }
  return out;
}

std::string to_text(const Tensor& tensor, const Description& description) {
  constexpr std::size_t most_open = 8;
  std::string out = fmt::format("tensor    {}, shape ({}), strides ({}) bytes", tensor.dtype, fmt::join(tensor.shape, ", "),
                                fmt::join(tensor.strides, ", "));
  for (const Fit& fit : description.fits) {
    const layout::Geometry& g = fit.geometry;
    out += fmt::format("\nfits      {}: {} blocks of {} tokens, {} heads, head_dim {}{}{}\n            {}", fit.axes,
                       g.blocks, g.block_size, g.heads, g.head_dim, g.layers > 1 ? fmt::format(", {} layers", g.layers) : "",
                       g.kv == 2 ? "" : ", one latent", fmt::join(fit.layouts, ", "));
  }
  for (std::size_t i = 0; i < std::min(most_open, description.open.size()); ++i)
    out +=
        fmt::format("\nopen      {}: needs {}", description.open[i].letters, fmt::join(missing(description.open[i]), ", "));
  if (description.open.size() > most_open)
    out += fmt::format("\n          and {} more readings that need numbers", description.open.size() - most_open);
  if (description.fits.empty())
    out += fmt::format("\nno layout of the catalogue has this shape and these strides{}",
                       description.open.empty() ? "" : " without further numbers");
  if (description.ambiguous) {
    out += fmt::format("\nambiguous: {} readings; say {}",
                       description.fits.empty() ? description.open.size() : description.fits.size(), description.settled_by);
  }
  return out;
}

}  // namespace kvcts::probe
