// Streams, events and graphs: what is ordered, what is not, and what a graph captures.
#include <cstring>

#include "device/memory.hpp"
#include "device/testing/device.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/plan.hpp"

namespace kvcts::device {
namespace {

using testing::gpu;

/// A word that both host and device can access.
struct Flag {
  Flag() : memory(allocate(gpu(), MemoryKind::pinned, 64)) { std::memset(memory->host(), 0, 64); }
  volatile std::uint32_t& operator*() { return *reinterpret_cast<volatile std::uint32_t*>(memory->host()); }
  const volatile cuda::u32* address() { return reinterpret_cast<const volatile cuda::u32*>(memory->address()); }
  std::unique_ptr<Allocation> memory;
};

constexpr std::uint64_t second = 1'000'000'000;

TEST(Streams, AReaderThatSkipsTheEventReadsOldBytes) {
  const Driver& d = gpu().driver();
  OwnStream producer(gpu()), reader(gpu());
  OwnEvent written(gpu());
  DeviceBuffer cache(gpu(), 256);
  Flag go;
  check(d, d.set_bytes(cache.address(), 0x11, 256, producer), "before");
  gpu().synchronize(producer);
  // The producer is blocked, for at most ten seconds; its write follows.
  gpu().launch("kvcts_spin", cuda::SpinArgs{go.address(), 10 * second, nullptr}, 1, producer);
  check(d, d.set_bytes(cache.address(), 0x22, 256, producer), "the write");
  written.record(producer);
  EXPECT_FALSE(written.passed());
  std::vector<std::uint8_t> early(256), late(256);
  cache.read(early, reader);  // read before ready
  gpu().synchronize(reader);
  EXPECT_EQ(early, std::vector<std::uint8_t>(256, 0x11));
  check(d, d.wait_event(reader, written, 0), "waiting for the write");
  cache.read(late, reader);
  *go = 1;
  gpu().synchronize(reader);
  EXPECT_EQ(late, std::vector<std::uint8_t>(256, 0x22));
  EXPECT_TRUE(written.passed());
}

TEST(Streams, ASpinEndsAtItsTimeLimit) {
  OwnStream stream(gpu());
  DeviceBuffer passed(gpu(), 8);
  check(gpu().driver(), gpu().driver().set_bytes(passed.address(), 0, 8, stream), "clearing");
  gpu().launch("kvcts_spin", cuda::SpinArgs{nullptr, second / 100, static_cast<cuda::u64*>(passed.pointer())}, 1, stream);
  std::uint64_t count = 0;
  passed.read({reinterpret_cast<std::uint8_t*>(&count), 8}, stream);
  gpu().synchronize(stream);
  EXPECT_EQ(count, 1U);
}

/// A gather of one row from each of three blocks' worth of bytes 1, 2 and 3, captured with `table` in a graph.
class CapturedGather {
 public:
  CapturedGather() {
    std::vector<std::uint8_t> content(blocks * slots * row);
    for (std::size_t k = 0; k < content.size(); ++k) content[k] = static_cast<std::uint8_t>(k / (slots * row) + 1);
    const std::uint64_t prefix[2]{0, slots};
    put(cache_, content.data(), content.size());
    put(first_, prefix, 16);
    name_block(table, 0);
    name_block(other, 2);
    args.cache = static_cast<const cuda::u8*>(cache_.pointer());
    args.rows = static_cast<cuda::u8*>(rows_.pointer());
    args.block_table = static_cast<const std::int32_t*>(table.pointer());
    args.first_token = static_cast<const cuda::u64*>(first_.pointer());
    args.requests = 1;
    args.table_stride = 2;
    args.tokens = slots;
    args.heads = cuda::divider(1, slots);
    args.block_size = cuda::divider(slots, slots);
    args.paged = {slots * row, row, row, row};
    cuda::shape_copy(args, row, 1, std::vector<std::uint64_t>{row});
    check(driver_, driver_.begin_capture(stream_, 0), "capturing");
    gpu().launch("kvcts_gather", args, 1, stream_);
    check(driver_, driver_.end_capture(stream_, &graph_), "ending the capture");
    check(driver_, driver_.instantiate(&replay_, graph_, 0), "instantiating");
  }
  ~CapturedGather() {
    driver_.destroy_graph_exec(replay_);
    driver_.destroy_graph(graph_);
  }
  CapturedGather(const CapturedGather&) = delete;
  CapturedGather& operator=(const CapturedGather&) = delete;

  void name_block(DeviceBuffer& in, std::int32_t block) {
    const std::int32_t both[2]{block, block};
    put(in, both, 8);
  }
  /// The first byte that a replay gathers.
  int replayed() {
    check(driver_, driver_.launch_graph(replay_, stream_), "replaying");
    std::vector<std::uint8_t> out(slots * row);
    rows_.read(out, stream_);
    gpu().synchronize(stream_);
    return out.front();
  }

  DeviceBuffer table{gpu(), 8}, other{gpu(), 8};
  cuda::GatherArgs args;

 private:
  static constexpr std::uint64_t row = 32, slots = 4, blocks = 3;

  void put(DeviceBuffer& to, const void* from, std::size_t bytes) {
    to.write({static_cast<const std::uint8_t*>(from), bytes}, stream_);
    gpu().synchronize(stream_);
  }

  const Driver& driver_{gpu().driver()};
  OwnStream stream_{gpu()};
  DeviceBuffer cache_{gpu(), blocks * slots * row}, rows_{gpu(), slots * row}, first_{gpu(), 16};
  Graph graph_{nullptr};
  GraphExec replay_{nullptr};
};

// Plan/run drift: replay sees changes *in* the table that was captured, but not another table.
TEST(Graphs, AReplayUsesTheBlockTableOfItsCapture) {
  if (gpu().driver().instantiate == nullptr) GTEST_SKIP() << "this driver cannot instantiate graphs with flags (CUDA 11.4)";
  CapturedGather gather;
  EXPECT_EQ(gather.replayed(), 1);
  gather.name_block(gather.table, 1);
  EXPECT_EQ(gather.replayed(), 2) << "the same table, new content";
  gather.args.block_table = static_cast<const std::int32_t*>(gather.other.pointer());
  EXPECT_EQ(gather.replayed(), 2) << "a new table that the graph does not know";
}

}  // namespace
}  // namespace kvcts::device
