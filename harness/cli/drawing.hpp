// Layouts drawn in text: the loops of each plane, and the first bytes of an allocation.
#pragma once

#include <string>

#include "layout/layout.hpp"

namespace kvcts::cli {

/// One line a mode, indented by nesting, with extent and step in bytes:
///   K x 2         every 28672 bytes
///     B x 7       every 4096 bytes
std::string draw_modes(const layout::Plane& plane);

/// The first `rows` runs of an allocation: byte range and the coordinates there, or padding. Neighbouring elements that
/// differ only in channel (or in token, where channels are not innermost) share a row.
std::string draw_bytes(const layout::Cache& cache, int allocation, int rows);

}  // namespace kvcts::cli
