// Every kind of memory: written and read by copies and kernels, freed, exported to another process.
#include "device/memory.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "device/testing/device.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ranges.hpp"
#include "kernels/poison.hpp"

namespace kvcts::device {
namespace {

using testing::gpu;

constexpr MemoryKind kinds[]{MemoryKind::device, MemoryKind::pool, MemoryKind::vmm, MemoryKind::pinned,
                             MemoryKind::registered};

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint64_t key) {
  std::vector<std::uint8_t> out(bytes);
  kernels::fill_poison(key, 0, out);
  return out;
}

TEST(Memory, ParsesEveryKindByName) {
  for (const MemoryKind kind : kinds) EXPECT_EQ(memory_kind_from_name(name(kind)), kind);
  try {
    memory_kind_from_name("managed");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.text.find("device, pool, vmm, pinned, registered"), std::string::npos);
  }
}

TEST(Memory, EveryKindCarriesBytesAndKernels) {
  const Driver& d = gpu().driver();
  OwnStream stream(gpu());
  for (const MemoryKind kind : kinds) {
    if (const std::string why = lack(gpu(), kind); !why.empty()) {
      std::printf("%s: %s\n", std::string(name(kind)).c_str(), why.c_str());
      continue;
    }
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4096}, (std::uint64_t{7} << 20) + 5}) {
      const auto memory = allocate(gpu(), kind, bytes);
      const auto out = pattern(bytes, 7);
      std::vector<std::uint8_t> in(bytes);
      if (kind == MemoryKind::pinned || kind == MemoryKind::registered) {
        ASSERT_NE(memory->host(), nullptr);
        std::memcpy(memory->host(), out.data(), bytes);  // the CPU accesses it, too
      } else {
        EXPECT_EQ(memory->host(), nullptr);
        check(d, d.copy_in(memory->address(), out.data(), bytes, stream), "in");
      }
      DeviceBuffer sum(gpu(), 8);
      check(d, d.set_bytes(sum.address(), 0, 8, stream), "clearing");
      gpu().launch("kvcts_digest",
                   cuda::DigestArgs{reinterpret_cast<const cuda::u8*>(memory->address()), bytes,
                                    static_cast<cuda::u64*>(sum.pointer())},
                   64, stream);
      std::uint64_t seen = 0;
      sum.read({reinterpret_cast<std::uint8_t*>(&seen), 8}, stream);
      check(d, d.copy_out(in.data(), memory->address(), bytes, stream), "out");
      gpu().synchronize(stream);
      EXPECT_EQ(in, out) << name(kind) << ' ' << bytes;
      cuda::u64 expected = kernels::mix(bytes);
      for (std::uint64_t at = 0; at < bytes; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, out.data() + at, std::min<std::uint64_t>(8, bytes - at));
        expected += kernels::mix(word + (at / 8 + 1) * cuda::digest_step);
      }
      EXPECT_EQ(seen, expected) << name(kind);
    }
  }
}

TEST(Memory, RegistersMemoryOfTheCallerOnce) {
  if (!lack(gpu(), MemoryKind::registered).empty()) GTEST_SKIP() << lack(gpu(), MemoryKind::registered);
  void* pages = nullptr;
  ASSERT_EQ(::posix_memalign(&pages, 4096, 65536), 0);
  {
    const auto memory = allocate(gpu(), MemoryKind::registered, 65536, pages);
    EXPECT_EQ(memory->host(), pages);
    EXPECT_THROW(allocate(gpu(), MemoryKind::registered, 65536, pages), Error);  // twice
    OwnStream stream(gpu());
    check(gpu().driver(), gpu().driver().set_bytes(memory->address(), 0x5a, 65536, stream), "filling");
    gpu().synchronize(stream);
  }
  EXPECT_EQ(static_cast<unsigned char*>(pages)[65535], 0x5a);
  ::free(pages);
}

TEST(Memory, NamesTheSizeOfAFailedAllocation) {
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::vmm}) {
    if (!lack(gpu(), kind).empty()) continue;
    try {
      const auto memory = allocate(gpu(), kind, std::uint64_t{1} << 46);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(error.text.find("bytes"), std::string::npos) << error.text;
    }
  }
  EXPECT_NO_THROW(gpu().canary());
}

}  // namespace
}  // namespace kvcts::device
