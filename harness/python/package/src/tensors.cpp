#include "tensors.hpp"

#include <string>

#include "layout/error.hpp"

namespace kvcts::python {

namespace nb = nanobind;
using layout::Error;

namespace {

// DLPack 1.1 (dlpack.h, DLDataTypeCode).
std::string dtype_name(const nb::dlpack::dtype& dtype) {
  if (dtype.lanes != 1) return "?";
  switch (dtype.code) {
    case 0:
      return "int" + std::to_string(dtype.bits);
    case 1:
      return "uint" + std::to_string(dtype.bits);
    case 2:
      return dtype.bits == 16 ? "fp16" : dtype.bits == 32 ? "fp32" : "float" + std::to_string(dtype.bits);
    case 4:
      return dtype.bits == 16 ? "bf16" : "?";
    case 10:
      return "e4m3fn";
    case 11:
      return "e4m3fnuz";
    case 12:
      return "e5m2";
    case 13:
      return "e5m2fnuz";
    case 14:
      return "e8m0";
    default:
      return "?";
  }
}

}  // namespace

Held::Held(const nb::list& tensors, bool writes) {
  for (const nb::handle item : tensors) {
    const auto pair = nb::borrow<nb::tuple>(item);
    const nb::object object = pair[0];
    const std::string given = nb::str(nb::object(pair[1])).c_str();
    nb::ndarray<nb::ro> array;
    if (!nb::try_cast(object, array, false)) {
      throw Error("expected a tensor with DLPack, the buffer protocol or __array_interface__, found " +
                  std::string(nb::str(object.type().attr("__name__")).c_str()));
    }
    nb::ndarray<> writable;
    if (writes && !nb::try_cast(object, writable, false)) throw Error("expected writable memory, found a read-only tensor");
    const int type = array.device_type();
    constexpr int cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13;
    if (type != cpu && type != cuda && type != cuda_host && type != cuda_managed) {
      throw Error("expected a tensor in host or CUDA memory, found DLPack device type " + std::to_string(type) +
                  "; copy it to the host first");
    }
    const int device = type == cuda ? array.device_id() : -1;  // pinned and managed memory: the host can access it
    if (!tensors_.empty() && device != device_)
      throw Error("expected all tensors of a cache on one device, found several devices");
    device_ = device;
    probe::Tensor tensor;
    tensor.data = const_cast<std::uint8_t*>(static_cast<const std::uint8_t*>(static_cast<const void*>(array.data())));
    tensor.dtype = given.empty() ? dtype_name(array.dtype()) : given;
    tensor.itemsize = static_cast<std::int64_t>(array.itemsize());
    for (std::size_t d = 0; d < array.ndim(); ++d) {
      tensor.shape.push_back(static_cast<std::int64_t>(array.shape(d)));
      tensor.strides.push_back(array.stride(d) * tensor.itemsize);
    }
    tensors_.push_back(std::move(tensor));
    held_.push_back(std::move(array));
  }
  if (tensors_.empty()) throw Error("expected a tensor or several, found none");
}

}  // namespace kvcts::python
