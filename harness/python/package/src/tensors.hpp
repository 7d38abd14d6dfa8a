// Tensors of any framework: NumPy, torch, or anything with DLPack or the buffer protocol, on the host or on a CUDA
// device.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "python/probe/subject.hpp"

namespace kvcts::python {

/// Keeps tensors alive while they are used.
class Held {
 public:
  /// Each item: (object, dtype name; "" = from DLPack). `writes`: refuses read-only memory. Throws layout::Error.
  Held(const nanobind::list& tensors, bool writes);

  const std::vector<probe::Tensor>& tensors() const { return tensors_; }
  /// Ordinal of the CUDA device they are on; -1: the host.
  int device() const { return device_; }

 private:
  std::vector<nanobind::ndarray<nanobind::ro>> held_;
  std::vector<probe::Tensor> tensors_;
  int device_{-1};
};

}  // namespace kvcts::python
