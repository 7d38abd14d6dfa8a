// GPUs, driver, CUDA toolkit and cuDNN. Nothing of CUDA is linked: libraries are opened in a child process, where they are.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "cli/child.hpp"
#include "cli/doctor/doctor.hpp"

namespace kvcts::cli::doctor {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

template <typename Function>
Function symbol(void* library, const char* name) {
  auto* found = reinterpret_cast<Function>(dlsym(library, name));
  if (!found) throw std::runtime_error(fmt::format("the library has no {}", name));
  return found;
}

void* open_library(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  throw std::runtime_error(fmt::format("{} not found", fmt::join(names, ", ")));
}

// Numbers of the CUDA driver API (cuda.h 12.x): attributes of cuDeviceGetAttribute.
constexpr int attribute_major = 75, attribute_minor = 76, attribute_processors = 16, attribute_vmm = 102,
              attribute_rdma = 116, attribute_dma_buf = 124;

/// Asks the CUDA driver. Runs in a child: cuInit may hang on a sick GPU.
json ask_driver() {
  const char* named = std::getenv("KVCTS_CUDA_DRIVER");  // as device/driver.hpp
  void* cuda = open_library({named != nullptr && *named != '\0' ? named : "libcuda.so.1"});
  const int rc = symbol<int (*)(unsigned)>(cuda, "cuInit")(0);
  if (rc != 0)
    throw std::runtime_error(
        fmt::format("libcuda.so.1 is there, but cuInit answers {}{}", rc, rc == 100 ? " (no device)" : ""));
  json answer{{"modelled", dlsym(cuda, "kvcts_modelled_driver") != nullptr}};  // as device/driver.cpp
  int version = 0, count = 0;
  symbol<int (*)(int*)>(cuda, "cuDriverGetVersion")(&version);
  symbol<int (*)(int*)>(cuda, "cuDeviceGetCount")(&count);
  answer["cuda"] = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  const auto attribute = symbol<int (*)(int*, int, int)>(cuda, "cuDeviceGetAttribute");
  const auto get_name = symbol<int (*)(char*, int, int)>(cuda, "cuDeviceGetName");
  const auto total_memory = symbol<int (*)(std::size_t*, int)>(cuda, "cuDeviceTotalMem_v2");
  answer["devices"] = json::array();
  for (int device = 0; device < count; ++device) {
    std::array<char, 256> text{};
    std::size_t bytes = 0;
    get_name(text.data(), text.size() - 1, device);
    total_memory(&bytes, device);
    const auto get = [&](int which) {
      int value = 0;
      return attribute(&value, which, device) == 0 ? value : 0;
    };
    answer["devices"].push_back({{"name", text.data()},
                                 {"arch", fmt::format("sm_{}{}", get(attribute_major), get(attribute_minor))},
                                 {"memory_bytes", bytes},
                                 {"multiprocessors", get(attribute_processors)},
                                 {"virtual_memory_management", get(attribute_vmm) != 0},
                                 {"gpudirect_rdma", get(attribute_rdma) != 0},
                                 {"dma_buf", get(attribute_dma_buf) != 0}});
  }
  return answer;
}

/// What the management library adds: driver version, and whether the GPU answers at all.
json ask_nvml() {
  void* nvml = open_library({"libnvidia-ml.so.1"});
  const int rc = symbol<int (*)()>(nvml, "nvmlInit_v2")();
  if (rc != 0) throw std::runtime_error(fmt::format("libnvidia-ml.so.1 is there, but nvmlInit answers {}", rc));
  std::array<char, 96> text{};
  symbol<int (*)(char*, unsigned)>(nvml, "nvmlSystemGetDriverVersion")(text.data(), text.size());
  unsigned count = 0;
  symbol<int (*)(unsigned*)>(nvml, "nvmlDeviceGetCount_v2")(&count);
  return {{"driver", text.data()}, {"devices", count}};
}

json ask_cudnn() {
  void* cudnn = open_library({"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"});
  const std::size_t v = symbol<std::size_t (*)()>(cudnn, "cudnnGetVersion")();
  // 90100 = 9.1.0 since cuDNN 9; 8902 = 8.9.2 before.
  return v >= 90000 ? fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100)
                    : fmt::format("{}.{}.{}", v / 1000, v % 1000 / 100, v % 100);
}

DoctorFinding from_child(const std::string& key, const ChildAnswer& answer, const std::string& text,
                         const std::string& consequence) {
  if (answer.ok) return {key, FindingState::good, text, "", answer.value};
  const bool absent = answer.error.ends_with(" not found");
  return {key, absent ? FindingState::missing : FindingState::broken, answer.error, consequence, nullptr};
}

constexpr std::chrono::seconds driver_deadline{20};

}  // namespace

DoctorSection gpus() {
  DoctorSection s{"GPUs", {}};
  const ChildAnswer answer = ask_child(ask_driver, driver_deadline);
  const auto devices = answer.ok ? answer.value["devices"] : json::array();
  for (const auto& d : devices)
    s.findings.push_back(
        {fmt::format("gpu{}", s.findings.size()), FindingState::good,
         fmt::format("{} ({}), {:.1f} GiB, {} multiprocessors", d["name"].get<std::string>(), d["arch"].get<std::string>(),
                     d["memory_bytes"].get<double>() / (1u << 30), d["multiprocessors"].get<int>()),
         "", d});
  if (devices.empty()) {
    std::string seen;
    std::error_code ignored;
    if (fs::is_directory("/proc/driver/nvidia/gpus", ignored)) {
      const auto boards =
          std::distance(fs::directory_iterator("/proc/driver/nvidia/gpus", ignored), fs::directory_iterator{});
      if (boards > 0) seen = fmt::format("; the kernel driver lists {}, which this process may not use", boards);
    }
    s.findings.push_back({"nvidia", FindingState::missing, "no NVIDIA GPU that CUDA can use" + seen,
                          "every architecture is shown as modelled on the CPU, none as executed", nullptr});
  }
  std::error_code ignored;
  if (fs::exists("/dev/kfd", ignored))
    s.findings.push_back(
        {"amd", FindingState::fact, "an AMD GPU (/dev/kfd)", "this version has no memory provider for it", true});
  return s;
}

std::vector<std::string> device_archs() {
  const ChildAnswer answer = ask_child(ask_driver, driver_deadline);
  std::vector<std::string> out;
  if (!answer.ok || answer.value.value("modelled", true)) return out;
  for (const auto& d : answer.value["devices"]) out.push_back(d["arch"].get<std::string>());
  return out;
}

DoctorSection cuda() {
  DoctorSection s{"CUDA", {}};
  const ChildAnswer driver = ask_child(ask_driver, driver_deadline), nvml = ask_child(ask_nvml, driver_deadline),
                    cudnn = ask_child(ask_cudnn, driver_deadline);
  std::string kernel_driver = first_line("/proc/driver/nvidia/version");
  s.findings.push_back({"kernel_driver", kernel_driver.empty() ? FindingState::missing : FindingState::good,
                        kernel_driver.empty() ? "no NVIDIA kernel driver" : kernel_driver, "",
                        kernel_driver.empty() ? json() : json(kernel_driver)});
  s.findings.push_back(
      from_child("driver", driver, driver.ok ? "libcuda.so.1 for CUDA " + driver.value["cuda"].get<std::string>() : "", ""));
  s.findings.push_back(from_child("nvml", nvml, nvml.ok ? "driver " + nvml.value["driver"].get<std::string>() : "", ""));

  auto toolkit = output_of({"nvcc", "--version"});
  if (!toolkit) toolkit = output_of({"/usr/local/cuda/bin/nvcc", "--version"});
  std::smatch release;
  if (toolkit && std::regex_search(*toolkit, release, std::regex("release ([0-9.]+)"))) {
    s.findings.push_back({"toolkit", FindingState::good, fmt::format("nvcc {}", release[1].str()), "", release[1].str()});
  } else {
    s.findings.push_back({"toolkit", FindingState::missing, "no nvcc", "a build made here has no device kernels", nullptr});
  }
  s.findings.push_back(from_child("cudnn", cudnn, cudnn.ok ? "cuDNN " + cudnn.value.get<std::string>() : "", ""));
  return s;
}

DoctorSection rdma() {
  DoctorSection s{"RDMA and GPUDirect", {}};
  std::error_code ignored;
  if (fs::is_directory("/sys/class/infiniband", ignored)) {
    for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored)) {
      const std::string port = (device.path() / "ports" / "1").string();
      const std::string state = first_line(port + "/state"), rate = first_line(port + "/rate"),
                        link = first_line(port + "/link_layer");
      s.findings.push_back({device.path().filename().string(),
                            FindingState::good,
                            fmt::format("port 1: {}, {}, {}", link, state, rate),
                            "",
                            {{"state", state}, {"rate", rate}, {"link_layer", link}}});
    }
  }
  if (s.findings.empty()) {
    s.findings.push_back({"devices", FindingState::missing, "no RDMA device",
                          "engine ucx uses shared memory and tcp; RDMA paths are not executed", nullptr});
  }
  for (const char* module : {"nvidia_peermem", "gdrdrv", "nvidia_fs"}) {
    const bool loaded = fs::is_directory(fmt::format("/sys/module/{}", module), ignored);
    s.findings.push_back({module, loaded ? FindingState::good : FindingState::missing,
                          loaded ? "module is loaded" : "module is not loaded", "", loaded});
  }
  const ChildAnswer driver = ask_child(ask_driver, driver_deadline);
  if (driver.ok) {
    for (const auto& d : driver.value["devices"]) {
      const bool rdma = d["gpudirect_rdma"].get<bool>(), dma_buf = d["dma_buf"].get<bool>();
      s.findings.push_back({"gpudirect",
                            rdma || dma_buf ? FindingState::good : FindingState::missing,
                            fmt::format("{}: GPUDirect RDMA {}, dma-buf {}", d["name"].get<std::string>(),
                                        rdma ? "supported" : "not supported", dma_buf ? "supported" : "not supported"),
                            "",
                            {{"gpudirect_rdma", rdma}, {"dma_buf", dma_buf}}});
    }
  }
  return s;
}

}  // namespace kvcts::cli::doctor
