// The tensors that a framework shows for a cache. Internal to the layout library.
#pragma once

#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "layout/template.hpp"

namespace kvcts::layout {

/// The views of `spec` over the data planes (one per value of the list axes and allocation), then one view in physical order
/// for each allocation without data (side scales). `latent`: kv == 1, so no tensor is called k or v.
std::vector<TensorView> tensor_views(const Cache& cache, const TensorSpec& spec, bool latent);

}  // namespace kvcts::layout
