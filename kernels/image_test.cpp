#include "kernels/image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/intervals.hpp"
#include "kernels/parallel.hpp"
#include "kernels/poison.hpp"
#include "kernels/testing/reference.hpp"

namespace kvcts::kernels {
namespace {

using layout::Axis;
using layout::Component;
using layout::Dtype;
using layout::Mode;
using layout::Plane;

/// K and V of two layers in one allocation with padded rows, a scale after each row, and some free blocks.
struct Scene {
  Scene() {
    data.dtype = Dtype::e4m3fn;
    data.modes = {{Axis::layer, 2, 8 * 3840}, {Axis::kv, 2, 8 * 1920}, {Axis::block, 5, 8 * 384},
                  {Axis::slot, 4, 8 * 96},    {Axis::head, 2, 8 * 48}, {Axis::channel, 40, 8}};
    scale = data;
    scale.component = Component::scale;
    scale.dtype = Dtype::fp32;
    scale.offset = 8 * 40;
    scale.modes.back() = {Axis::channel, 1, 32};
    image = {poison_key(5, 1, 0, 2), 4099, 7680, {{&data, content, key, 0}, {&scale, content, key, 0}}};
    file.resize(12000);
    write(image, file);
  }

  Plane data, scale;
  std::vector<BlockContent> content{{4, 7, 0, 0, 4}, {1, 7, 4, 0, 4}, {3, 7, 8, 0, 3}};
  TagKey key{5, 1, 0};
  Image image;
  std::vector<std::uint8_t> file;
};

TEST(Image, ConsistsOfTagsOverPoison) {
  const Scene scene;
  std::vector<std::uint8_t> expected(scene.file.size());
  for (std::size_t k = 0; k < expected.size(); ++k) expected[k] = reference::poison(scene.image.poison, k);
  const auto allocation = std::span(expected).subspan(4099, 7680);
  reference::generate(allocation, scene.data, scene.content, scene.key, 0);
  reference::generate(allocation, scene.scale, scene.content, scene.key, 0);
  EXPECT_EQ(scene.file, expected);
}

TEST(Image, FindsAWrongByteAnywhere) {
  Scene scene;
  for (const int threads : {1, 3}) {
    ASSERT_EQ(check(scene.image, scene.file, 16, threads), Difference{});
    for (std::size_t at = 0; at < scene.file.size(); at += threads == 1 ? 1 : 101) {
      scene.file[at] ^= 0x11;
      ASSERT_EQ(check(scene.image, scene.file, 16, threads), (Difference{1, {static_cast<std::int64_t>(at)}}));
      scene.file[at] ^= 0x11;
    }
  }
}

TEST(Image, OwnsAValueOfTheWholeCache) {
  Scene scene;
  Plane global = scene.scale;
  global.component = Component::global_scale;
  global.offset = 8 * (5 * 384 * 4 - 8);  // in the free space at the end
  global.modes.clear();
  scene.image.tags.push_back({&global, scene.content, scene.key, 7});
  write(scene.image, scene.file);
  for (const int threads : {1, 3}) EXPECT_EQ(check(scene.image, scene.file, 16, threads), Difference{});
  const auto at = static_cast<std::size_t>(4099 + global.offset / 8);
  scene.file[at] ^= 1;
  EXPECT_EQ(check(scene.image, scene.file, 16, 1).wrong_bytes, 1);
}

TEST(Image, DiffersInEachPass) {
  Scene scene;
  Scene other;
  for (Tagged& tagged : other.image.tags) tagged.key.pass = 9;
  for (Tagged& tagged : other.image.tags) tagged.content = other.content;
  std::vector<std::uint8_t> expected(scene.file.size());
  write(other.image, expected);
  EXPECT_EQ(check(other.image, scene.file, 7, 2), compare(scene.file, expected, 7));
  EXPECT_GT(check(other.image, scene.file).wrong_bytes, 2000);
}

TEST(Image, ComparesOverlappingPlanesAsWritten) {
  Scene scene;
  scene.scale.offset = 8 * 38;  // over the last two channels
  write(scene.image, scene.file);
  EXPECT_EQ(check(scene.image, scene.file), Difference{});
  scene.file[4099 + 384 + 5] ^= 1;
  EXPECT_EQ(check(scene.image, scene.file), (Difference{1, {4099 + 384 + 5}}));
}

TEST(Image, RefusesAnAllocationBeyondItsFile) {
  Scene scene;
  scene.image.base = 4400;
  EXPECT_THROW(check(scene.image, scene.file), layout::Error);
  EXPECT_THROW(write(scene.image, scene.file), layout::Error);
}

TEST(Intervals, HolesAreTheRemainder) {
  Intervals intervals;
  EXPECT_EQ(intervals.holes(3), (std::vector<Interval>{{0, 3}}));
  intervals.add(4, 6);
  intervals.add(6, 8);
  intervals.add(0, 2);
  intervals.add(8, 9);
  ASSERT_TRUE(intervals.settle());
  EXPECT_EQ(intervals.all(), (std::vector<Interval>{{0, 2}, {4, 9}}));
  EXPECT_EQ(intervals.holes(12), (std::vector<Interval>{{2, 4}, {9, 12}}));
  EXPECT_EQ(intervals.holes(9), (std::vector<Interval>{{2, 4}}));
  intervals.add(8, 10);
  EXPECT_FALSE(intervals.settle());
}

TEST(Parallel, RunsEachPieceOnceAndPropagatesExceptions) {
  for (const int threads : {0, 1, 2, 9}) {
    std::vector<int> done(1000);
    parallel(threads, done.size(), [&](std::size_t k) { ++done[k]; });
    EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](int n) { return n == 1; }));
    std::vector<int> bytes(100003);
    parallel_ranges(threads, bytes.size(), 64, [&](std::size_t begin, std::size_t end) {
      EXPECT_EQ(begin % 64, 0u);
      for (std::size_t k = begin; k < end; ++k) ++bytes[k];
    });
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](int n) { return n == 1; }));
    EXPECT_THROW(parallel(threads, 100,
                          [](std::size_t k) {
                            if (k == 50) throw layout::Error("x");
                          }),
                 layout::Error);
  }
}

}  // namespace
}  // namespace kvcts::kernels
