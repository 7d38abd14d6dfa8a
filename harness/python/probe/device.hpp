// fill() and verify() of tensors in the memory of a CUDA device: by the suite's kernels there; what is wrong is named on the
// host.
#pragma once

#include "python/probe/verify.hpp"

namespace kvcts::probe {

/// Whether this build has device kernels.
bool has_device_code();

/// As on the host. `ordinal`: the device; everything that was queued on it is waited for. Memory that the kernels cannot
/// take (not on whole 16 bytes, or content without poison) goes by way of the host. Throws layout::Error, also where the
/// build has no device kernels, and device::Error.
void fill_on_device(const Subject& subject, const Bound& bound, const Content& content, int ordinal, int threads);
/// `source_ordinal`: -1 where the producer is in host memory.
Report verify_on_device(const Question& question, int ordinal, int source_ordinal);
/// Host tensors whose producer is on a device.
Report verify_from_device(const Question& question, int source_ordinal);

}  // namespace kvcts::probe
