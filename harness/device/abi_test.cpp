// Checks our declarations of the driver against cuda.h, where it is installed.
#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "device/driver.hpp"

namespace kvcts::device {
namespace {

static_assert(sizeof(Address) == sizeof(CUdeviceptr) && sizeof(AllocationHandle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle) && sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(Access) == sizeof(CUmemAccessDesc) && offsetof(Access, flags) == offsetof(CUmemAccessDesc, flags));

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(Attribute::warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE));
static_assert(same(Attribute::multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(same(Attribute::integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED));
static_assert(same(Attribute::can_map_host_memory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY));
static_assert(same(Attribute::concurrent_kernels, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS));
static_assert(same(Attribute::pci_bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
static_assert(same(Attribute::pci_device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
static_assert(same(Attribute::unified_addressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING));
static_assert(same(Attribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(Attribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(Attribute::pageable_memory_access, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS));
static_assert(same(Attribute::virtual_memory_management, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(Attribute::posix_handles, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
static_assert(same(Attribute::memory_pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
static_assert(same(Attribute::gpudirect_rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED));
static_assert(same(Attribute::dma_buf, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED));

static_assert(same(status::invalid_value, CUDA_ERROR_INVALID_VALUE) &&
              same(status::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(status::no_device, CUDA_ERROR_NO_DEVICE) && same(status::invalid_device, CUDA_ERROR_INVALID_DEVICE));
static_assert(same(status::invalid_image, CUDA_ERROR_INVALID_IMAGE) &&
              same(status::invalid_context, CUDA_ERROR_INVALID_CONTEXT));
static_assert(same(status::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU) &&
              same(status::invalid_handle, CUDA_ERROR_INVALID_HANDLE));
static_assert(same(status::peer_access_already_enabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) &&
              same(status::not_found, CUDA_ERROR_NOT_FOUND));
static_assert(same(status::not_ready, CUDA_ERROR_NOT_READY) && same(status::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(same(status::launch_failed, CUDA_ERROR_LAUNCH_FAILED) && same(status::assertion, CUDA_ERROR_ASSERT));
static_assert(same(status::host_memory_already_registered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(same(status::not_permitted, CUDA_ERROR_NOT_PERMITTED) &&
              same(status::not_supported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(same(status::not_initialized, CUDA_ERROR_NOT_INITIALIZED));

static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 && CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 1 &&
              CU_MEM_LOCATION_TYPE_DEVICE == 1 && CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3 && CU_STREAM_NON_BLOCKING == 1 &&
              CU_STREAM_CAPTURE_MODE_GLOBAL == 0 && CU_MEMHOSTALLOC_PORTABLE == 1 && CU_MEMHOSTALLOC_DEVICEMAP == 2 &&
              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == 1 && CU_MEM_ALLOC_GRANULARITY_MINIMUM == 0);

/// Parameter sizes and count of a function.
template <class Signature>
struct Shape;
template <class R, class... P>
struct Shape<R (*)(P...)> {
  static constexpr std::size_t value = ((sizeof...(P) + sizeof(R)) + ... + (31 * sizeof(P)));
};
template <class Ours, class Theirs>
constexpr bool same_shape = Shape<Ours>::value == Shape<Theirs>::value;

static_assert(same_shape<decltype(Driver::launch), decltype(&cuLaunchKernel)>);
static_assert(same_shape<decltype(Driver::create_allocation), decltype(&cuMemCreate)>);
static_assert(same_shape<decltype(Driver::map), decltype(&cuMemMap)>);
static_assert(same_shape<decltype(Driver::unmap), decltype(&cuMemUnmap)>);
static_assert(same_shape<decltype(Driver::reserve), decltype(&cuMemAddressReserve)>);
static_assert(same_shape<decltype(Driver::free_reserved), decltype(&cuMemAddressFree)>);
static_assert(same_shape<decltype(Driver::set_access), decltype(&cuMemSetAccess)>);
static_assert(same_shape<decltype(Driver::granularity), decltype(&cuMemGetAllocationGranularity)>);
static_assert(same_shape<decltype(Driver::ipc_open), decltype(&cuIpcOpenMemHandle)>);
static_assert(same_shape<decltype(Driver::ipc_export), decltype(&cuIpcGetMemHandle)>);
static_assert(same_shape<decltype(Driver::copy), decltype(&cuMemcpyDtoDAsync)>);
static_assert(same_shape<decltype(Driver::copy_peer), decltype(&cuMemcpyPeerAsync)>);
static_assert(same_shape<decltype(Driver::set_bytes), decltype(&cuMemsetD8Async)>);
static_assert(same_shape<decltype(Driver::set_words), decltype(&cuMemsetD32Async)>);
static_assert(same_shape<decltype(Driver::begin_capture), decltype(&cuStreamBeginCapture)>);
static_assert(same_shape<decltype(Driver::instantiate), decltype(&cuGraphInstantiateWithFlags)>);
static_assert(same_shape<decltype(Driver::allocate_host), decltype(&cuMemHostAlloc)>);
static_assert(same_shape<decltype(Driver::register_host), decltype(&cuMemHostRegister)>);
static_assert(same_shape<decltype(Driver::host_address), decltype(&cuMemHostGetDevicePointer)>);
static_assert(same_shape<decltype(Driver::retain_context), decltype(&cuDevicePrimaryCtxRetain)>);
static_assert(same_shape<decltype(Driver::enable_peer), decltype(&cuCtxEnablePeerAccess)>);
static_assert(same_shape<decltype(Driver::device_attribute), decltype(&cuDeviceGetAttribute)>);
static_assert(same_shape<decltype(Driver::elapsed), decltype(&cuEventElapsedTime)>);

TEST(DriverAbi, MatchesCudaH) { SUCCEED() << "held by the static assertions above"; }

}  // namespace
}  // namespace kvcts::device
