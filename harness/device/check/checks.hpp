// The checks of kvcts-gpu-check, one entry per check.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>

#include "device/gpu.hpp"
#include "layout/layout.hpp"

namespace kvcts::device::checks {

/// What all checks share.
struct DeviceBench {
  Gpu& gpu;
  Stream stream;
  std::filesystem::path golden;                       ///< folder of golden tensors
  int ordinal{0};                                     ///< of the device
  std::uint64_t bytes{0};                             ///< of the largest buffer that a check may take
  nlohmann::json numbers = nlohmann::json::object();  ///< filled by the check that runs
};

/// Thrown by a check that finds a fault; its text says what was expected and what was found.
struct CheckFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Thrown by a check that this device cannot run.
struct Skip : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns one line of what was checked.
using Run = std::string (*)(DeviceBench&);
struct DeviceCheck {
  const char* name;
  const char* title;
  Run run;
};
std::span<const DeviceCheck> all();

std::string canary(DeviceBench&);
std::string goldens(DeviceBench&);
std::string memory_kinds(DeviceBench&);
std::string far_offsets(DeviceBench&);
std::string conversions(DeviceBench&);
std::string relayouts(DeviceBench&);
std::string peers(DeviceBench&);
std::string neighbours(DeviceBench&);
std::string speed(DeviceBench&);

/// The role that a second process of this program plays for neighbours(): "canary", or "hang" (never ends). Returns
/// its exit status.
int act_as(const std::string& role, Gpu& gpu);

/// A packed plane of one layer's K and V: blocks of 16 tokens, `heads` heads of `d` channels, modes in the order of
/// `letters` ("BNHC").
layout::Plane packed_pool(const char* letters, layout::Dtype dtype, std::int64_t blocks, std::int64_t heads, std::int64_t d);

}  // namespace kvcts::device::checks
