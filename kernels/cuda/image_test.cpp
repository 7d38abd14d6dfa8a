// The program's embedded fatbin, and the list of kernels.
#include "kernels/cuda/image.hpp"

#include <set>
#include <string>

#include "kernels/cuda/testing/twin.hpp"

namespace kvcts::cuda {
namespace {

TEST(DeviceImage, IsAFatbinWithTheListedArchitectures) {
  const auto image = device_image();
  if (image.empty()) GTEST_SKIP() << "this build has no device kernels: nvcc was not found";
  ASSERT_GT(image.size(), 64U);
  u32 magic = 0;
  std::memcpy(&magic, image.data(), 4);
  EXPECT_EQ(magic, 0xba55ed50U);  // fatbin header
  u64 bytes = 0;
  std::memcpy(&bytes, image.data() + 8, 8);  // of what follows the 16-byte header
  EXPECT_EQ(bytes + 16, image.size());
}

TEST(DeviceTwin, ContainsEveryKernelOnce) {
  std::set<std::string_view> names;
  for (const Twin& twin : twins()) {
    EXPECT_TRUE(twin.name.starts_with("kvcts_"));
    EXPECT_TRUE(names.insert(twin.name).second) << twin.name;
    EXPECT_LE(twin.args_bytes, 4096U) << "kernel parameters";
    EXPECT_EQ(find_twin(twin.name), &twin);
  }
  EXPECT_EQ(find_twin("kvcts_unknown"), nullptr);
}

}  // namespace
}  // namespace kvcts::cuda
