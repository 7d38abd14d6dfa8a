// Hands over what a worker saw when completion was reported.
#include "process/snapshot.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvcts::process {
namespace {

TEST(Snapshot, ComesBackAsItWasTaken) {
  std::vector<std::uint8_t> file(4096), bytes(100);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  EXPECT_FALSE(read_snapshot(file)) << "none was taken";
  SnapshotWriter writer{std::span(file)};
  ASSERT_TRUE(writer.add(2, 7, bytes.data(), 100));
  ASSERT_TRUE(writer.add(0, 1ull << 40, bytes.data() + 3, 1));
  EXPECT_FALSE(read_snapshot(file)) << "not closed yet";
  writer.close();
  const auto view = read_snapshot(file);
  ASSERT_TRUE(view);
  EXPECT_GT(view->began_ns, 0);
  ASSERT_EQ(view->pieces.size(), 2u);
  EXPECT_EQ(view->pieces[0].file, 2u);
  EXPECT_EQ(view->pieces[0].offset, 7u);
  EXPECT_TRUE(std::ranges::equal(view->pieces[0].bytes, bytes));
  EXPECT_EQ(view->pieces[1].offset, 1ull << 40);
  EXPECT_EQ(view->pieces[1].bytes[0], 4);
  writer.clear();
  EXPECT_FALSE(read_snapshot(file));
}

// Of two snapshots, the one begun later counts, however long the other took.
TEST(Snapshot, IsOfTheTimeItWasBegunAt) {
  std::vector<std::uint8_t> slow(4096), late(4096), bytes(8);
  SnapshotWriter first{std::span(slow)}, second{std::span(late)};
  ASSERT_TRUE(first.add(0, 0, bytes.data(), 8));
  ASSERT_TRUE(second.add(0, 0, bytes.data(), 8));
  second.close();
  first.close();
  EXPECT_LT(read_snapshot(slow)->began_ns, read_snapshot(late)->began_ns);
}

TEST(Snapshot, IsFullAtSomeTime) {
  std::vector<std::uint8_t> file(4096), bytes(1000);
  SnapshotWriter writer{std::span(file)};
  int taken = 0;
  while (writer.add(0, 0, bytes.data(), 1000)) ++taken;
  EXPECT_EQ(taken, 4);
  writer.close();
  EXPECT_EQ(read_snapshot(file)->pieces.size(), 4u);
}

// It is written by a process that runs code under test.
TEST(Snapshot, GarbageIsNone) {
  std::vector<std::uint8_t> file(4096), bytes(64);
  SnapshotWriter writer{std::span(file)};
  ASSERT_TRUE(writer.add(0, 0, bytes.data(), 64));
  writer.close();
  for (std::size_t at = 0; at < 40; ++at)
    for (const std::uint8_t value : {0x00, 0x7f, 0xff}) {
      std::vector<std::uint8_t> damaged = file;
      damaged[at] = value;
      if (const auto view = read_snapshot(damaged)) {
        for (const auto& piece : view->pieces) EXPECT_LE(piece.bytes.size(), damaged.size());
      }
    }
  EXPECT_FALSE(read_snapshot(std::span(file).first(10)));
  EXPECT_FALSE(read_snapshot(std::span(file).first(60))) << "cut in the middle of a piece";
}

}  // namespace
}  // namespace kvcts::process
