// The CUDA driver, opened at run time through a table of its functions. The declarations are our own, so building
// needs no CUDA and a program also starts without a driver. Names, numbers and structures match cuda.h 13.0;
// abi_test.cpp checks them where that file is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvcts::device {

using Status = int;                           ///< CUresult
using Ordinal = int;                          ///< CUdevice
using Address = unsigned long long;           ///< CUdeviceptr
using AllocationHandle = unsigned long long;  ///< CUmemGenericAllocationHandle
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;

namespace status {
inline constexpr Status success = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3, no_device = 100,
                        invalid_device = 101, invalid_image = 200, invalid_context = 201, no_binary_for_gpu = 209,
                        peer_access_already_enabled = 704, invalid_handle = 400, not_found = 500, not_ready = 600,
                        illegal_address = 700, launch_failed = 719, assertion = 710, host_memory_already_registered = 712,
                        not_permitted = 800, not_supported = 801;
}  // namespace status

/// For cuDeviceGetAttribute.
enum class Attribute : int {
  warp_size = 10,
  multiprocessors = 16,
  integrated = 18,
  can_map_host_memory = 19,
  concurrent_kernels = 31,
  pci_bus = 33,
  pci_device = 34,
  unified_addressing = 41,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  pageable_memory_access = 88,
  virtual_memory_management = 102,
  posix_handles = 103,
  memory_pools = 115,
  gpudirect_rdma = 116,
  dma_buf = 124,
};

struct Location {
  int type{1};  ///< 1: a device
  int id{0};
};
/// CUmemAllocationProp.
struct AllocationProperties {
  int type{1};          ///< pinned
  int handle_types{1};  ///< POSIX file descriptor
  Location location;
  void* reserved{nullptr};
  struct {
    unsigned char compression{0}, gpudirect_rdma{0};
    unsigned short usage{0};
    unsigned char reserved[4]{};
  } flags;
};
/// CUmemAccessDesc.
struct Access {
  Location location;
  int flags{3};  ///< read and write
};
/// CUipcMemHandle.
struct IpcHandle {
  char bytes[64];
};
struct Uuid {
  char bytes[16];
};

// MEMBER, exported name, whether every driver since CUDA 11.0 has it, parameters. All return a Status.
#define KVCTS_DRIVER_FUNCTIONS(F)                                                                             \
  F(init, "cuInit", true, (unsigned))                                                                         \
  F(driver_version, "cuDriverGetVersion", true, (int*))                                                       \
  F(error_name, "cuGetErrorName", true, (Status, const char**))                                               \
  F(device_count, "cuDeviceGetCount", true, (int*))                                                           \
  F(device_get, "cuDeviceGet", true, (Ordinal*, int))                                                         \
  F(device_name, "cuDeviceGetName", true, (char*, int, Ordinal))                                              \
  F(device_uuid, "cuDeviceGetUuid", true, (Uuid*, Ordinal))                                                   \
  F(device_attribute, "cuDeviceGetAttribute", true, (int*, int, Ordinal))                                     \
  F(device_memory, "cuDeviceTotalMem_v2", true, (std::size_t*, Ordinal))                                      \
  F(can_access_peer, "cuDeviceCanAccessPeer", true, (int*, Ordinal, Ordinal))                                 \
  F(retain_context, "cuDevicePrimaryCtxRetain", true, (Context*, Ordinal))                                    \
  F(release_context, "cuDevicePrimaryCtxRelease_v2", true, (Ordinal))                                         \
  F(set_current, "cuCtxSetCurrent", true, (Context))                                                          \
  F(synchronize, "cuCtxSynchronize", true, ())                                                                \
  F(enable_peer, "cuCtxEnablePeerAccess", true, (Context, unsigned))                                          \
  F(memory_info, "cuMemGetInfo_v2", true, (std::size_t*, std::size_t*))                                       \
  F(load_module, "cuModuleLoadData", true, (Module*, const void*))                                            \
  F(unload_module, "cuModuleUnload", true, (Module))                                                          \
  F(get_function, "cuModuleGetFunction", true, (Function*, Module, const char*))                              \
  F(launch, "cuLaunchKernel", true,                                                                           \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**)) \
  F(create_stream, "cuStreamCreate", true, (Stream*, unsigned))                                               \
  F(destroy_stream, "cuStreamDestroy_v2", true, (Stream))                                                     \
  F(synchronize_stream, "cuStreamSynchronize", true, (Stream))                                                \
  F(query_stream, "cuStreamQuery", true, (Stream))                                                            \
  F(wait_event, "cuStreamWaitEvent", true, (Stream, Event, unsigned))                                         \
  F(create_event, "cuEventCreate", true, (Event*, unsigned))                                                  \
  F(destroy_event, "cuEventDestroy_v2", true, (Event))                                                        \
  F(record_event, "cuEventRecord", true, (Event, Stream))                                                     \
  F(query_event, "cuEventQuery", true, (Event))                                                               \
  F(synchronize_event, "cuEventSynchronize", true, (Event))                                                   \
  F(elapsed, "cuEventElapsedTime", true, (float*, Event, Event))                                              \
  F(allocate, "cuMemAlloc_v2", true, (Address*, std::size_t))                                                 \
  F(free, "cuMemFree_v2", true, (Address))                                                                    \
  F(allocate_async, "cuMemAllocAsync", false, (Address*, std::size_t, Stream))                                \
  F(free_async, "cuMemFreeAsync", false, (Address, Stream))                                                   \
  F(allocate_host, "cuMemHostAlloc", true, (void**, std::size_t, unsigned))                                   \
  F(free_host, "cuMemFreeHost", true, (void*))                                                                \
  F(register_host, "cuMemHostRegister_v2", true, (void*, std::size_t, unsigned))                              \
  F(unregister_host, "cuMemHostUnregister", true, (void*))                                                    \
  F(host_address, "cuMemHostGetDevicePointer_v2", true, (Address*, void*, unsigned))                          \
  F(copy_in, "cuMemcpyHtoDAsync_v2", true, (Address, const void*, std::size_t, Stream))                       \
  F(copy_out, "cuMemcpyDtoHAsync_v2", true, (void*, Address, std::size_t, Stream))                            \
  F(copy, "cuMemcpyDtoDAsync_v2", true, (Address, Address, std::size_t, Stream))                              \
  F(copy_peer, "cuMemcpyPeerAsync", true, (Address, Context, Address, Context, std::size_t, Stream))          \
  F(set_bytes, "cuMemsetD8Async", true, (Address, unsigned char, std::size_t, Stream))                        \
  F(set_words, "cuMemsetD32Async", true, (Address, unsigned, std::size_t, Stream))                            \
  F(reserve, "cuMemAddressReserve", false, (Address*, std::size_t, std::size_t, Address, unsigned long long)) \
  F(free_reserved, "cuMemAddressFree", false, (Address, std::size_t))                                         \
  F(create_allocation, "cuMemCreate", false,                                                                  \
    (AllocationHandle*, std::size_t, const AllocationProperties*, unsigned long long))                        \
  F(release_allocation, "cuMemRelease", false, (AllocationHandle))                                            \
  F(map, "cuMemMap", false, (Address, std::size_t, std::size_t, AllocationHandle, unsigned long long))        \
  F(unmap, "cuMemUnmap", false, (Address, std::size_t))                                                       \
  F(set_access, "cuMemSetAccess", false, (Address, std::size_t, const Access*, std::size_t))                  \
  F(granularity, "cuMemGetAllocationGranularity", false, (std::size_t*, const AllocationProperties*, int))    \
  F(ipc_export, "cuIpcGetMemHandle", true, (IpcHandle*, Address))                                             \
  F(ipc_open, "cuIpcOpenMemHandle_v2", true, (Address*, IpcHandle, unsigned))                                 \
  F(ipc_close, "cuIpcCloseMemHandle", true, (Address))                                                        \
  F(begin_capture, "cuStreamBeginCapture_v2", true, (Stream, int))                                            \
  F(end_capture, "cuStreamEndCapture", true, (Stream, Graph*))                                                \
  F(instantiate, "cuGraphInstantiateWithFlags", false, (GraphExec*, Graph, unsigned long long))               \
  F(launch_graph, "cuGraphLaunch", true, (GraphExec, Stream))                                                 \
  F(destroy_graph, "cuGraphDestroy", true, (Graph))                                                           \
  F(destroy_graph_exec, "cuGraphExecDestroy", true, (GraphExec))

struct Driver {
#define KVCTS_DRIVER_MEMBER(member, symbol, required, parameters) Status(*member) parameters{nullptr};
  KVCTS_DRIVER_FUNCTIONS(KVCTS_DRIVER_MEMBER)
#undef KVCTS_DRIVER_MEMBER

  int version{0};        ///< 13000 = CUDA 13.0
  bool modelled{false};  ///< a stand-in on host memory: nothing that it runs was executed on a device
  std::string path;      ///< of the library
};

/// A failed driver call: what was called, the driver's name for the status, and what to do if we know it.
struct Error : std::runtime_error {
  Error(Status which, const std::string& words) : std::runtime_error(words), status(which), text(words) {}
  Status status;
  std::string text;
};

/// Opens and initialises the driver, once per process: `libcuda.so.1`, or the library that the environment variable
/// KVCTS_CUDA_DRIVER names (tests). Returns nullptr and sets `reason` when there is no driver, it is too old, or it
/// finds no device.
const Driver* driver(std::string& reason);

/// "CUDA_ERROR_OUT_OF_MEMORY", or the number.
std::string status_name(const Driver& driver, Status status);
/// Throws Error unless the status is success. `call`: what was attempted, in words.
void check(const Driver& driver, Status status, std::string_view call);

}  // namespace kvcts::device
