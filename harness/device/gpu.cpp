#include "device/gpu.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "device/memory.hpp"
#include "kernels/cuda/image.hpp"
#include "kernels/cuda/plan.hpp"
#include "kernels/generate.hpp"
#include "kernels/poison.hpp"

namespace kvcts::device {
namespace {

int attribute(const Driver& driver, Ordinal device, Attribute which) {
  int value = 0;
  return driver.device_attribute(&value, static_cast<int>(which), device) == status::success ? value : 0;
}

std::string hex(const Uuid& uuid) {
  std::string out;
  char digits[3];
  for (const char byte : uuid.bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    out += digits;
  }
  return out;
}

}  // namespace

int device_count(const Driver& driver) {
  int count = 0;
  check(driver, driver.device_count(&count), "counting devices");
  return count;
}

Facts facts_of(const Driver& driver, int ordinal) {
  Ordinal device = 0;
  check(driver, driver.device_get(&device, ordinal), "finding device " + std::to_string(ordinal));
  Facts facts;
  facts.ordinal = ordinal;
  std::array<char, 256> name{};
  check(driver, driver.device_name(name.data(), static_cast<int>(name.size()) - 1, device), "asking a device's name");
  facts.name = name.data();
  Uuid uuid{};
  if (driver.device_uuid(&uuid, device) == status::success) facts.uuid = hex(uuid);
  facts.arch = "sm_" + std::to_string(attribute(driver, device, Attribute::compute_capability_major)) +
               std::to_string(attribute(driver, device, Attribute::compute_capability_minor));
  std::size_t bytes = 0;
  check(driver, driver.device_memory(&bytes, device), "asking a device's memory");
  facts.memory_bytes = bytes;
  facts.multiprocessors = attribute(driver, device, Attribute::multiprocessors);
  facts.virtual_memory =
      attribute(driver, device, Attribute::virtual_memory_management) != 0 && driver.create_allocation != nullptr;
  facts.posix_handles = attribute(driver, device, Attribute::posix_handles) != 0;
  facts.memory_pools = attribute(driver, device, Attribute::memory_pools) != 0 && driver.allocate_async != nullptr;
  facts.integrated = attribute(driver, device, Attribute::integrated) != 0;
  facts.host_mapping = attribute(driver, device, Attribute::can_map_host_memory) != 0;
  facts.modelled = driver.modelled;
  return facts;
}

Gpu::Gpu(const Driver& driver, int ordinal) : driver_(driver), facts_(facts_of(driver, ordinal)) {
  note_ = reinterpret_cast<Note>(::dlsym(RTLD_DEFAULT, "kvcts_worker_note"));
  // A stand-in driver has its own kernels; it checks only the header.
  static constexpr std::uint32_t no_code[16]{0xba55ed50u};
  const bool built = !cuda::device_image().empty();
  if (!built && !driver.modelled)
    throw Error{status::not_found, "this build has no device kernels; ./run_suite.sh build makes them, with nvcc"};
  check(driver_, driver_.retain_context(&context_, ordinal), "making a context on device " + std::to_string(ordinal));
  try {
    make_current();
    const Status loaded =
        driver_.load_module(&module_, built ? static_cast<const void*>(cuda::device_image().data()) : no_code);
    if (loaded == status::no_binary_for_gpu) {
      throw Error{loaded, "the device kernels hold no code for " + facts_.arch + " that this driver can load"};
    }
    check(driver_, loaded,
          "loading the device kernels (nvcc 13.0) with a driver for CUDA " + std::to_string(driver.version / 1000) + "." +
              std::to_string(driver.version % 1000 / 10));
  } catch (...) {
    driver_.release_context(ordinal);
    throw;
  }
}

Gpu::~Gpu() {
  driver_.set_current(context_);
  driver_.unload_module(module_);
  driver_.release_context(facts_.ordinal);
}

std::uint64_t Gpu::free_bytes() const {
  std::size_t free = 0, total = 0;
  check(driver_, driver_.memory_info(&free, &total), "querying free memory");
  return free;
}

Function Gpu::function(std::string_view kernel) {
  if (const auto known = functions_.find(kernel); known != functions_.end()) return known->second;
  Function found = nullptr;
  check(driver_, driver_.get_function(&found, module_, std::string(kernel).c_str()),
        "finding kernel " + std::string(kernel));
  functions_.emplace(kernel, found);
  return found;
}

void Gpu::launch_raw(std::string_view kernel, void* args, std::uint64_t blocks, Stream stream) {
  if (blocks == 0) return;
  const Function f = function(kernel);
  ++launches_;
  if (note_ != nullptr) note_(("kernel " + std::string(kernel) + ", launch " + std::to_string(launches_)).c_str());
  // Kernels stride over their tiles: enough blocks to fill the device several times over even out the tail.
  const auto most = static_cast<std::uint64_t>(std::max(1, facts_.multiprocessors)) * 32;
  void* parameters[]{args};
  check(driver_,
        driver_.launch(f, static_cast<unsigned>(std::min(blocks, most)), 1, 1, cuda::threads, 1, 1, 0, stream, parameters,
                       nullptr),
        "launching " + std::string(kernel));
}

void Gpu::canary() {
  layout::Plane plane;
  plane.dtype = layout::Dtype::bf16;
  plane.modes = {{layout::Axis::block, 4, 16 * 2048}, {layout::Axis::slot, 16, 2048}, {layout::Axis::channel, 128, 16}};
  const std::vector<kernels::BlockContent> content{{3, 1, 0, 0, 16}, {0, 2, 0, 0, 16}};
  constexpr std::uint64_t bytes = 4 * 16 * 256;
  std::vector<std::uint8_t> expected(bytes), seen(bytes);
  kernels::fill_poison(1, 0, expected);
  kernels::generate(expected, plane, content, {}, 0);
  const auto plan = cuda::plan_rows(content, plane, {}, 0, 0, bytes);
  make_current();
  OwnStream stream(*this);
  DeviceBuffer memory(*this, bytes), tables(*this, plan.tables.bytes().size());
  std::vector<std::uint8_t> poison(bytes);
  kernels::fill_poison(1, 0, poison);
  memory.write(poison, stream);
  tables.write(plan.tables.bytes(), stream);
  launch("kvcts_generate_rows", cuda::bind(plan, memory.pointer(), tables.pointer()), plan.blocks(), stream);
  memory.read(seen, stream);
  synchronize(stream);
  if (seen != expected) throw Error{status::launch_failed, "the device computes wrongly: its canary wrote unexpected bytes"};
}

bool OwnEvent::passed() const {
  const Status status = gpu_.driver().query_event(event_);
  if (status == status::not_ready) return false;
  check(gpu_.driver(), status, "querying an event");
  return true;
}

}  // namespace kvcts::device
