#include "device/driver.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "device/memory.hpp"
#include "device/testing/device.hpp"
#include "kernels/cuda/launch.hpp"
#include "testing/checkout.hpp"

namespace kvcts::device {
namespace {

/// Runs in a child, because a process opens its driver only once. Returns its exit status, or -signal.
int in_child(const std::function<int()>& what) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(what());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool opens(const char* path, std::string_view says) {
  return in_child([&] {
           ::setenv("KVCTS_CUDA_DRIVER", path, 1);
           std::string reason;
           return driver(reason) == nullptr && reason.find(says) != std::string::npos ? 0 : 1;
         }) == 0;
}

TEST(Driver, NamesTheReasonItIsMissing) {
  EXPECT_TRUE(opens("/nonexistent/libcuda.so.1", "no CUDA driver is installed"));
  EXPECT_TRUE(opens("libm.so.6", "has no cuInit"));
  EXPECT_EQ(in_child([] {
              ::setenv("KVCTS_FAKE_DEVICES", "0", 1);
              ::setenv("KVCTS_CUDA_DRIVER", checkout::fake_cuda().c_str(), 1);
              std::string reason;
              return driver(reason) == nullptr && reason.find("finds no device") != std::string::npos ? 0 : 1;
            }),
            0);
}

TEST(Driver, ReportsAnEmulatedDeviceAsModelled) {
  const Driver& d = testing::the_driver();
  if (!d.modelled) GTEST_SKIP() << "this is a device";
  EXPECT_TRUE(facts_of(d, 0).modelled);
  EXPECT_NE(facts_of(d, 0).name.find("modelled"), std::string::npos);
}

TEST(Driver, ErrorsNameTheCallAndTheStatus) {
  const Driver& d = testing::the_driver();
  try {
    check(d, status::out_of_memory, "allocating 7 bytes");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status, status::out_of_memory);
    EXPECT_EQ(error.text, "allocating 7 bytes: CUDA_ERROR_OUT_OF_MEMORY");
  }
  EXPECT_EQ(status_name(d, 12345), "CUDA error 12345");
  EXPECT_THROW(facts_of(d, 99), Error);
}

TEST(Device, ComputesItsCanary) { EXPECT_NO_THROW(testing::gpu().canary()); }

TEST(Device, ReportsFactsOfTheDevice) {
  const Facts& facts = testing::gpu().facts();
  EXPECT_TRUE(facts.arch.starts_with("sm_"));
  EXPECT_GT(facts.memory_bytes, 0U);
  EXPECT_GT(facts.multiprocessors, 0);
  EXPECT_EQ(facts.uuid.size(), 32U);
}

/// Runs a failing kernel in a child: every later call must report the failure, and the canary fails.
int dies_of(const char* kernel, Status expected) {
  std::string reason;
  const Driver* d = driver(reason);
  if (d == nullptr) return 2;
  Gpu gpu(*d);
  OwnStream stream(gpu);
  DeviceBuffer word(gpu, 4);
  check(*d, d->set_words(word.address(), 0, 1, stream), "clearing");
  gpu.launch(kernel, cuda::HangArgs{static_cast<volatile cuda::u32*>(word.pointer()), 8}, 1, stream);
  try {
    gpu.synchronize(stream);
    return 3;
  } catch (const Error& error) {
    if (error.status != expected) return 4;
  }
  try {
    gpu.canary();
    return 5;
  } catch (const Error& error) {
    return error.status == expected ? 0 : 6;
  }
}

TEST(Device, AFailedKernelEndsTheContext) {
  EXPECT_EQ(in_child([] { return dies_of("kvcts_illegal_address", status::illegal_address); }), 0);
  EXPECT_EQ(in_child([] { return dies_of("kvcts_device_assert", status::assertion); }), 0);
  EXPECT_NO_THROW(testing::gpu().canary());  // the failure was in another process
}

}  // namespace
}  // namespace kvcts::device
