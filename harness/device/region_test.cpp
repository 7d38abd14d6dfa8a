// Whole memory files in device memory: written and checked there, compared with the host's kernels.
#include "device/region.hpp"

#include "device/testing/device.hpp"
#include "kernels/poison.hpp"

namespace kvcts::device {
namespace {

using layout::Axis;
using layout::Dtype;
using layout::Plane;
using testing::gpu;

Plane plane_of(Dtype dtype, std::vector<layout::Mode> modes) {
  Plane plane;
  plane.dtype = dtype;
  std::int64_t stride = layout::bits(dtype);
  for (auto mode = modes.rbegin(); mode != modes.rend(); ++mode) {
    mode->stride = stride;
    stride *= mode->extent;
  }
  plane.modes = std::move(modes);
  return plane;
}

Image image_of(const Plane& plane, std::uint64_t base, std::uint64_t bytes) {
  Image image;
  image.bytes = bytes;
  image.base = base;
  image.poison = 99;
  image.planes = {plane};
  image.content = {{4, 1, 0, 0, 16}, {1, 1, 16, 0, 16}, {6, 2, 0, 0, 5}};
  image.key = {3, 1, 0};
  return image;
}

std::vector<std::uint8_t> expected(const Image& image) {
  std::vector<std::uint8_t> out(image.bytes);
  kernels::fill_poison(image.poison, 0, out);
  for (const Plane& plane : image.planes) {
    kernels::generate(std::span(out).subspan(image.base), plane, image.content, image.key, image.unblocked_generation);
  }
  return out;
}

struct Placed {
  Placed(const Image& of, MemoryKind kind = MemoryKind::device)
      : image(of), stream(gpu()), memory(allocate(gpu(), kind, image.bytes / 16 * 16 + 16)), work(gpu(), image, stream) {
    work.fill(memory->address(), stream);
  }
  std::vector<std::uint8_t> bytes() {
    std::vector<std::uint8_t> out(image.bytes);
    check(gpu().driver(), gpu().driver().copy_out(out.data(), memory->address(), out.size(), stream), "out");
    gpu().synchronize(stream);
    return out;
  }
  void flip(std::uint64_t at) {
    std::vector<std::uint8_t> now = bytes();
    now[at] ^= 0x10;
    check(gpu().driver(), gpu().driver().copy_in(memory->address() + at, now.data() + at, 1, stream), "in");
    gpu().synchronize(stream);
  }
  Image image;
  OwnStream stream;
  std::unique_ptr<Allocation> memory;
  RegionWork work;
};

const Plane nhd =
    plane_of(Dtype::bf16, {{Axis::block, 7}, {Axis::kv, 2}, {Axis::slot, 16}, {Axis::head, 4}, {Axis::channel, 64}});

TEST(Region, MatchesTheImageOfTheHost) {
  for (const std::uint64_t base : {4096, 4098, 4111}) {
    Placed placed(image_of(nhd, base, 4096 * 2 + 16 + 7 * 2 * 16 * 4 * 128));
    EXPECT_TRUE(placed.work.in_place());
    EXPECT_EQ(placed.bytes(), expected(placed.image)) << base;
    const auto difference = placed.work.check(placed.memory->address(), 8, placed.stream);
    EXPECT_EQ(difference.wrong_bytes, 0) << base;
    EXPECT_TRUE(difference.first.empty());
  }
}

TEST(Region, WorksInEveryKindOfMemory) {
  for (const auto kind : {MemoryKind::pool, MemoryKind::vmm, MemoryKind::pinned, MemoryKind::registered}) {
    if (!lack(gpu(), kind).empty()) continue;
    Placed placed(image_of(nhd, 4096, 4096 * 2 + 7 * 2 * 16 * 4 * 128), kind);
    EXPECT_EQ(placed.bytes(), expected(placed.image)) << name(kind);
    EXPECT_EQ(placed.work.check(placed.memory->address(), 8, placed.stream).wrong_bytes, 0) << name(kind);
  }
}

TEST(Region, WrongBytesAreCountedAndTheFirstAreNamedInOrder) {
  Placed placed(image_of(nhd, 4096, 4096 * 2 + 7 * 2 * 16 * 4 * 128));
  const std::vector<std::int64_t> wrong{0,     17,     5000,  5001,
                                        70000, 110000, 122879};  // guards, tags, free blocks, the last byte
  for (const std::int64_t at : wrong) placed.flip(static_cast<std::uint64_t>(at));
  const auto all = placed.work.check(placed.memory->address(), 100, placed.stream);
  EXPECT_EQ(all.wrong_bytes, 7);
  EXPECT_EQ(all.first, wrong);
  const auto some = placed.work.check(placed.memory->address(), 3, placed.stream);
  EXPECT_EQ(some.wrong_bytes, 7);
  EXPECT_EQ(some.first, (std::vector<std::int64_t>{0, 17, 5000}));
  // Everything wrong: the first reported bytes are still the first ones.
  check(gpu().driver(), gpu().driver().set_bytes(placed.memory->address(), 0xff, placed.image.bytes, placed.stream),
        "spoiling");
  const auto spoilt = placed.work.check(placed.memory->address(), 5, placed.stream);
  EXPECT_GT(spoilt.wrong_bytes, 120000);  // a tag may hold 0xff
  EXPECT_EQ(spoilt.first, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(Region, ComparesOverlappingPlanesWithTheirImage) {
  Plane part = nhd;  // the first half of every row, again
  part.modes.back().extent = 32;
  Image image = image_of(nhd, 0, 7 * 2 * 16 * 4 * 128 + 64);
  image.planes.push_back(part);
  image.planes.back().component = layout::Component::scale;
  Placed placed(image);
  EXPECT_FALSE(placed.work.in_place());
  EXPECT_EQ(placed.bytes(), expected(image));
  EXPECT_EQ(placed.work.check(placed.memory->address(), 8, placed.stream).wrong_bytes, 0);
  placed.flip(100);
  EXPECT_EQ(placed.work.check(placed.memory->address(), 8, placed.stream).first, std::vector<std::int64_t>{100});
  Plane alias = nhd;
  alias.modes[1].stride = 0;  // K and V at one place
  image.planes = {alias};
  EXPECT_THROW(RegionWork(gpu(), image, placed.stream), layout::Error);
}

TEST(Region, HandlesNibblesThatShareBytes) {
  const Plane odd = plane_of(Dtype::e2m1, {{Axis::block, 7}, {Axis::slot, 16}, {Axis::head, 3}, {Axis::channel, 5}});
  Placed placed(image_of(odd, 32, 32 + 7 * 16 * 3 * 5 / 2 + 40));
  EXPECT_FALSE(placed.work.in_place());
  EXPECT_EQ(placed.bytes(), expected(placed.image));
  EXPECT_EQ(placed.work.check(placed.memory->address(), 8, placed.stream).wrong_bytes, 0);
}

}  // namespace
}  // namespace kvcts::device
