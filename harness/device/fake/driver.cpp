// A stand-in for libcuda.so.1 on host memory: the functions named in device/driver.hpp, with the CPU twin instead of
// kernels. Tests use it to run every line of the device path on a machine without a device. It identifies itself
// (kvcts_modelled_driver), so results on it never count as executed.
//
// It is as strict as a device where that catches mistakes: copies are asynchronous, addresses must be known, and an
// illegal address or a failed assertion kills the context for good.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "device/fake/state.hpp"

namespace kvcts::device::fake {
namespace {

constexpr std::uint64_t page = 4096, grain = 64 << 10;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

Status allocate_block(Address* out, std::uint64_t bytes, FakeBlock::Kind kind) {
  if (bytes == 0) return status::invalid_value;
  FakeState& s = state();
  if (const Status dead = s.alive(); dead != status::success) return dead;
  const std::uint64_t whole = rounded(bytes, page);
  if (kind == FakeBlock::Kind::device && s.used_bytes + whole > device_bytes) return status::out_of_memory;
  const int descriptor = make_file(whole);
  const Address at = descriptor < 0 ? 0 : map_file(descriptor, whole);
  if (at == 0) return status::out_of_memory;
  const std::lock_guard lock(s.mutex);
  s.blocks[at] = {whole, descriptor, kind};
  if (kind == FakeBlock::Kind::device) s.used_bytes += whole;
  *out = at;
  return status::success;
}

Status free_block(Address address, FakeBlock::Kind kind) {
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.blocks.find(address);
  if (found == s.blocks.end() || found->second.kind != kind) return status::invalid_value;
  ::munmap(reinterpret_cast<void*>(address), found->second.bytes);
  if (found->second.descriptor >= 0) ::close(found->second.descriptor);
  if (kind == FakeBlock::Kind::device) s.used_bytes -= found->second.bytes;
  s.blocks.erase(found);
  return status::success;
}

Status enqueue(Stream stream, Task task) {
  FakeState& s = state();
  if (const Status dead = s.alive(); dead != status::success) return dead;
  s.stream(stream).add(std::move(task));
  return status::success;
}

/// A copy whose device addresses are checked when it runs, as on a device.
Status enqueue_copy(void* to, const void* from, std::size_t bytes, bool check_to, bool check_from, Stream stream) {
  return enqueue(stream, [=]() -> Status {
    if (check_to && !state().covers(reinterpret_cast<Address>(to), bytes)) return status::illegal_address;
    if (check_from && !state().covers(reinterpret_cast<Address>(from), bytes)) return status::illegal_address;
    std::memmove(to, from, bytes);
    return status::success;
  });
}

void* host(Address address) { return reinterpret_cast<void*>(address); }

/// The content of an IPC handle.
struct IpcName {
  std::int64_t process;
  std::int32_t descriptor;
  std::int32_t reserved;
  std::uint64_t bytes;
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int capability(int part) {
  const char* wanted = std::getenv("KVCTS_FAKE_CAPABILITY");  // "90"
  const int value = wanted != nullptr ? std::atoi(wanted) : 90;
  return part == 0 ? value / 10 : value % 10;
}

/// Writes a core dump of the pretended GPU when requested through the pipe, like the real driver.
void watch_dump_pipe() {
  const auto named = [](const char* variable) {
    const char* value = std::getenv(variable);
    std::string name = value != nullptr ? value : "";
    if (const auto at = name.find("%p"); at != std::string::npos) name.replace(at, 2, std::to_string(::getpid()));
    return name;
  };
  const std::string pipe = named("CUDA_COREDUMP_PIPE"), file = named("CUDA_COREDUMP_FILE");
  if (named("CUDA_ENABLE_USER_TRIGGERED_COREDUMP") != "1" || pipe.empty() || file.empty() ||
      ::mkfifo(pipe.c_str(), 0600) != 0)
    return;
  const int descriptor = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  static std::string left_behind;
  left_behind = pipe;
  std::atexit([] { ::unlink(left_behind.c_str()); });
  std::thread([descriptor, pipe, file] {
    char byte = 0;
    if (::read(descriptor, &byte, 1) != 1) return;
    ::unlink(pipe.c_str());
    if (std::FILE* out = std::fopen(file.c_str(), "w")) {
      std::fputs("a stand-in for a GPU core dump\n", out);
      std::fclose(out);
    }
  }).detach();
}

/// A kernel that failed. Like the real driver (580.159), a process whose environment enables dumps gets no error but a dump,
/// and is aborted.
Status failed(Status how) {
  const char* enabled = std::getenv("CUDA_ENABLE_USER_TRIGGERED_COREDUMP");
  if (enabled != nullptr && std::string_view(enabled) == "1") std::abort();
  return how;
}

}  // namespace
}  // namespace kvcts::device::fake

using namespace kvcts::device;
using namespace kvcts::device::fake;
#define EXPORT extern "C" __attribute__((visibility("default"))) Status

extern "C" __attribute__((visibility("default"))) const int kvcts_modelled_driver = 1;

EXPORT cuInit(unsigned) {
  if (!std::exchange(state().initialised, true)) watch_dump_pipe();
  return status::success;
}
EXPORT cuDriverGetVersion(int* out) {
  *out = 13000;
  return status::success;
}
EXPORT cuGetErrorName(Status status, const char** out) {
  static const std::map<Status, const char*> names{{status::success, "CUDA_SUCCESS"},
                                                   {status::invalid_value, "CUDA_ERROR_INVALID_VALUE"},
                                                   {status::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {status::no_device, "CUDA_ERROR_NO_DEVICE"},
                                                   {status::invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
                                                   {status::invalid_image, "CUDA_ERROR_INVALID_IMAGE"},
                                                   {status::not_found, "CUDA_ERROR_NOT_FOUND"},
                                                   {status::not_ready, "CUDA_ERROR_NOT_READY"},
                                                   {status::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                   {status::assertion, "CUDA_ERROR_ASSERT"},
                                                   {status::not_supported, "CUDA_ERROR_NOT_SUPPORTED"}};
  const auto found = names.find(status);
  *out = found == names.end() ? nullptr : found->second;
  return found == names.end() ? status::invalid_value : status::success;
}
EXPORT cuDeviceGetCount(int* out) {
  *out = device_count();
  return status::success;
}
EXPORT cuDeviceGet(Ordinal* out, int ordinal) {
  *out = ordinal;
  return ordinal >= 0 && ordinal < device_count() ? status::success : status::invalid_device;
}
EXPORT cuDeviceGetName(char* out, int size, Ordinal) {
  std::snprintf(out, static_cast<std::size_t>(size), "CPU twin of a GPU (modelled)");
  return status::success;
}
EXPORT cuDeviceGetUuid(Uuid* out, Ordinal device) {
  std::memset(out, 0, sizeof *out);
  out->bytes[15] = static_cast<char>(device);
  return status::success;
}
EXPORT cuDeviceGetAttribute(int* out, int which, Ordinal) {
  switch (static_cast<Attribute>(which)) {
    case Attribute::compute_capability_major:
      *out = capability(0);
      break;
    case Attribute::compute_capability_minor:
      *out = capability(1);
      break;
    case Attribute::warp_size:
      *out = 32;
      break;
    case Attribute::gpudirect_rdma:
    case Attribute::dma_buf:
    case Attribute::integrated:
    case Attribute::pageable_memory_access:
      *out = 0;
      break;
    default:
      *out = 1;
  }
  return status::success;
}
EXPORT cuDeviceTotalMem_v2(std::size_t* out, Ordinal) {
  *out = device_bytes;
  return status::success;
}
EXPORT cuDeviceCanAccessPeer(int* out, Ordinal a, Ordinal b) {
  *out = a != b;
  return status::success;
}
EXPORT cuDevicePrimaryCtxRetain(Context* out, Ordinal device) {
  *out = reinterpret_cast<Context>(static_cast<std::intptr_t>(device + 1));
  return state().alive();
}
EXPORT cuDevicePrimaryCtxRelease_v2(Ordinal) { return status::success; }
EXPORT cuCtxSetCurrent(Context) { return status::success; }
EXPORT cuCtxSynchronize() {
  std::vector<StreamQueue*> all;
  {
    const std::lock_guard lock(state().mutex);
    all = state().streams;
  }
  for (StreamQueue* stream : all) stream->drain();
  return state().alive();
}
EXPORT cuCtxEnablePeerAccess(Context, unsigned) { return status::success; }
EXPORT cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *total = device_bytes;
  *free = device_bytes - state().used_bytes;
  return state().alive();
}

EXPORT cuModuleLoadData(Module* out, const void* image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != 0xba55ed50u) return status::invalid_image;
  *out = reinterpret_cast<Module>(1);
  return state().alive();
}
EXPORT cuModuleUnload(Module) { return status::success; }
EXPORT cuModuleGetFunction(Function* out, Module, const char* name) {
  const kvcts::cuda::Twin* twin = kvcts::cuda::find_twin(name);
  if (twin == nullptr) return status::not_found;
  *out = reinterpret_cast<Function>(const_cast<kvcts::cuda::Twin*>(twin));
  return status::success;
}
EXPORT cuLaunchKernel(Function function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                      Stream stream, void** parameters, void**) {
  if (blocks == 0 || threads != kvcts::cuda::threads) return status::invalid_value;
  const auto* twin = reinterpret_cast<const kvcts::cuda::Twin*>(function);
  const auto* raw = static_cast<const char*>(parameters[0]);
  const auto args = std::make_shared<std::vector<char>>(raw, raw + twin->args_bytes);
  // One processor needs few blocks: kernels stride.
  return enqueue(stream, [twin, args, blocks = std::min(blocks, 8u)]() -> Status {
    switch (twin->run(args->data(), blocks)) {
      case kvcts::cuda::TwinEnding::illegal_address:
        return failed(status::illegal_address);
      case kvcts::cuda::TwinEnding::assertion:
        return failed(status::assertion);
      case kvcts::cuda::TwinEnding::done:
        break;
    }
    return status::success;
  });
}

EXPORT cuStreamCreate(Stream* out, unsigned) {
  if (const Status dead = state().alive(); dead != status::success) return dead;
  auto* stream = new StreamQueue;
  const std::lock_guard lock(state().mutex);
  state().streams.push_back(stream);
  *out = reinterpret_cast<Stream>(stream);
  return status::success;
}
EXPORT cuStreamDestroy_v2(Stream) { return status::success; }  // its thread stays, so enqueued work still runs
EXPORT cuStreamSynchronize(Stream stream) {
  state().stream(stream).drain();
  return state().alive();
}
EXPORT cuStreamQuery(Stream stream) {
  if (const Status dead = state().alive(); dead != status::success) return dead;
  return state().stream(stream).idle() ? status::success : status::not_ready;
}
EXPORT cuEventCreate(Event* out, unsigned) {
  *out = reinterpret_cast<Event>(new FakeMark);
  return state().alive();
}
EXPORT cuEventDestroy_v2(Event) { return status::success; }  // leaked: a stream may still hold it
EXPORT cuEventRecord(Event event, Stream stream) {
  auto* mark = reinterpret_cast<FakeMark*>(event);
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mark->mutex);
    number = ++mark->recorded;
  }
  return enqueue(stream, [mark, number]() -> Status {
    const std::lock_guard lock(mark->mutex);
    mark->passed = std::max(mark->passed, number);
    mark->at_ms = now_ms();
    mark->changed.notify_all();
    return status::success;
  });
}
EXPORT cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  auto* mark = reinterpret_cast<FakeMark*>(event);
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mark->mutex);
    number = mark->recorded;
  }
  return enqueue(stream, [mark, number]() -> Status {
    std::unique_lock lock(mark->mutex);
    mark->changed.wait(lock, [&] { return mark->passed >= number; });
    return status::success;
  });
}
EXPORT cuEventQuery(Event event) {
  if (const Status dead = state().alive(); dead != status::success) return dead;
  auto* mark = reinterpret_cast<FakeMark*>(event);
  const std::lock_guard lock(mark->mutex);
  return mark->passed >= mark->recorded ? status::success : status::not_ready;
}
EXPORT cuEventSynchronize(Event event) {
  auto* mark = reinterpret_cast<FakeMark*>(event);
  std::unique_lock lock(mark->mutex);
  while (mark->passed < mark->recorded && state().alive() == status::success) {
    mark->changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  return state().alive();
}
EXPORT cuEventElapsedTime(float* out, Event from, Event to) {
  *out = static_cast<float>(reinterpret_cast<FakeMark*>(to)->at_ms - reinterpret_cast<FakeMark*>(from)->at_ms);
  return status::success;
}

EXPORT cuMemAlloc_v2(Address* out, std::size_t bytes) { return allocate_block(out, bytes, FakeBlock::Kind::device); }
EXPORT cuMemFree_v2(Address address) { return free_block(address, FakeBlock::Kind::device); }
EXPORT cuMemAllocAsync(Address* out, std::size_t bytes, Stream) {
  return allocate_block(out, bytes, FakeBlock::Kind::device);
}
EXPORT cuMemFreeAsync(Address address, Stream stream) {
  state().stream(stream).drain();
  return free_block(address, FakeBlock::Kind::device);
}
EXPORT cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
  Address at = 0;
  const Status status = allocate_block(&at, bytes, FakeBlock::Kind::pinned);
  if (status == status::success) *out = host(at);
  return status;
}
EXPORT cuMemFreeHost(void* memory) { return free_block(reinterpret_cast<Address>(memory), FakeBlock::Kind::pinned); }
EXPORT cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  const auto [at, fresh] =
      s.blocks.try_emplace(reinterpret_cast<Address>(memory), FakeBlock{bytes, -1, FakeBlock::Kind::registered});
  return fresh ? s.sticky : status::host_memory_already_registered;
}
EXPORT cuMemHostUnregister(void* memory) {
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  return s.blocks.erase(reinterpret_cast<Address>(memory)) > 0 ? status::success : status::invalid_value;
}
EXPORT cuMemHostGetDevicePointer_v2(Address* out, void* memory, unsigned) {
  *out = reinterpret_cast<Address>(memory);
  return state().covers(*out, 1) ? status::success : status::invalid_value;
}

EXPORT cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream stream) {
  return enqueue_copy(host(to), from, bytes, true, false, stream);
}
EXPORT cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream stream) {
  return enqueue_copy(to, host(from), bytes, false, true, stream);
}
EXPORT cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream stream) {
  return enqueue_copy(host(to), host(from), bytes, true, true, stream);
}
EXPORT cuMemcpyPeerAsync(Address to, Context, Address from, Context, std::size_t bytes, Stream stream) {
  return enqueue_copy(host(to), host(from), bytes, true, true, stream);
}
EXPORT cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, Stream stream) {
  return enqueue(stream, [=]() -> Status {
    if (!state().covers(to, bytes)) return status::illegal_address;
    std::memset(host(to), value, bytes);
    return status::success;
  });
}
EXPORT cuMemsetD32Async(Address to, unsigned value, std::size_t words, Stream stream) {
  return enqueue(stream, [=]() -> Status {
    if (!state().covers(to, words * 4)) return status::illegal_address;
    std::fill_n(static_cast<unsigned*>(host(to)), words, value);
    return status::success;
  });
}

EXPORT cuMemGetAllocationGranularity(std::size_t* out, const AllocationProperties*, int) {
  *out = grain;
  return status::success;
}
EXPORT cuMemAddressReserve(Address* out, std::size_t bytes, std::size_t, Address, unsigned long long) {
  if (bytes == 0 || bytes % grain != 0) return status::invalid_value;
  void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return status::out_of_memory;
  *out = reinterpret_cast<Address>(at);
  const std::lock_guard lock(state().mutex);
  state().reserved[*out] = bytes;
  return state().sticky;
}
EXPORT cuMemAddressFree(Address address, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (state().reserved.erase(address) == 0) return status::invalid_value;
  ::munmap(host(address), bytes);
  return status::success;
}
EXPORT cuMemCreate(AllocationHandle* out, std::size_t bytes, const AllocationProperties*, unsigned long long) {
  if (bytes == 0 || bytes % grain != 0) return status::invalid_value;
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.used_bytes + bytes > device_bytes) return status::out_of_memory;
  const int descriptor = make_file(bytes);
  if (descriptor < 0) return status::out_of_memory;
  s.used_bytes += bytes;
  *out = s.next_handle++;
  s.allocations[*out] = {descriptor, bytes};
  return s.sticky;
}
EXPORT cuMemRelease(AllocationHandle handle) {
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.allocations.find(handle);
  if (found == s.allocations.end()) return status::invalid_value;
  ::close(found->second.first);
  s.used_bytes -= found->second.second;
  s.allocations.erase(found);
  return status::success;
}
EXPORT cuMemMap(Address address, std::size_t bytes, std::size_t offset, AllocationHandle handle, unsigned long long) {
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.allocations.find(handle);
  auto room = s.reserved.upper_bound(address);
  if (found == s.allocations.end() || offset != 0 || bytes != found->second.second || room == s.reserved.begin())
    return status::invalid_value;
  --room;
  if (address + bytes > room->first + room->second) return status::invalid_value;
  // No access before cuMemSetAccess, as on a device.
  if (::mmap(host(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.first, 0) == MAP_FAILED)
    return status::out_of_memory;
  s.blocks[address] = {bytes, -1, FakeBlock::Kind::mapped};
  return s.sticky;
}
EXPORT cuMemUnmap(Address address, std::size_t bytes) {
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.blocks.erase(address) == 0) return status::invalid_value;
  ::mmap(host(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return status::success;
}
EXPORT cuMemSetAccess(Address address, std::size_t bytes, const Access*, std::size_t) {
  return ::mprotect(host(address), bytes, PROT_READ | PROT_WRITE) == 0 ? status::success : status::invalid_value;
}
EXPORT cuIpcGetMemHandle(IpcHandle* out, Address address) {
  FakeState& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.blocks.find(address);
  if (found == s.blocks.end() || found->second.kind != FakeBlock::Kind::device) return status::invalid_value;
  const IpcName name{::getpid(), found->second.descriptor, 0, found->second.bytes};
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &name, sizeof name);
  return s.sticky;
}
EXPORT cuIpcOpenMemHandle_v2(Address* out, IpcHandle handle, unsigned) {
  IpcName name{};
  std::memcpy(&name, &handle, sizeof name);
  if (name.process == ::getpid()) return status::invalid_context;  // a process cannot open its own handles
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return status::invalid_value;
  *out = map_file(descriptor, name.bytes);
  if (*out == 0) return status::out_of_memory;
  const std::lock_guard lock(state().mutex);
  state().blocks[*out] = {name.bytes, descriptor, FakeBlock::Kind::ipc};
  return state().sticky;
}
EXPORT cuIpcCloseMemHandle(Address address) { return free_block(address, FakeBlock::Kind::ipc); }

EXPORT cuStreamBeginCapture_v2(Stream stream, int) {
  if (stream == nullptr || state().stream(stream).capture) return status::invalid_value;
  state().stream(stream).capture.emplace();
  return state().alive();
}
EXPORT cuStreamEndCapture(Stream stream, Graph* out) {
  StreamQueue& queue = state().stream(stream);
  if (!queue.capture) return status::invalid_value;
  *out = reinterpret_cast<Graph>(new GraphTasks(std::move(*queue.capture)));
  queue.capture.reset();
  return status::success;
}
EXPORT cuGraphInstantiateWithFlags(GraphExec* out, Graph graph, unsigned long long) {
  *out = reinterpret_cast<GraphExec>(new GraphTasks(*reinterpret_cast<GraphTasks*>(graph)));
  return state().alive();
}
EXPORT cuGraphLaunch(GraphExec graph, Stream stream) {
  for (const Task& task : reinterpret_cast<GraphTasks*>(graph)->tasks) {
    if (const Status status = enqueue(stream, task); status != status::success) return status;
  }
  return state().alive();
}
EXPORT cuGraphDestroy(Graph graph) {
  delete reinterpret_cast<GraphTasks*>(graph);
  return status::success;
}
EXPORT cuGraphExecDestroy(GraphExec graph) {
  delete reinterpret_cast<GraphTasks*>(graph);
  return status::success;
}
