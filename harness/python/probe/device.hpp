// fill() and verify() for tensors in CUDA device memory: the suite's kernels run there; the host names what is wrong.
#pragma once

#include "python/probe/verify.hpp"

namespace kvcts::probe {

/// Whether this build has device kernels.
bool has_device_code();

/// As on the host. `ordinal`: the device; waits for all work queued on it. Memory that the kernels cannot handle (not
/// in whole 16-byte units, or content without poison) goes through the host. Throws layout::Error, also if the build
/// has no device kernels, and device::Error.
void fill_on_device(const Subject& subject, const Bound& bound, const Content& content, int ordinal, int threads);
/// `source_ordinal`: -1 if the producer is in host memory.
Report verify_on_device(const Question& question, int ordinal, int source_ordinal);
/// Verifies host tensors whose producer is on a device.
Report verify_from_device(const Question& question, int source_ordinal);

}  // namespace kvcts::probe
