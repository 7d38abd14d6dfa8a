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

TEST(Graphs, AReplayUsesTheBlockTableOfItsCapture) {
  // Plan/run drift: the gather is captured with a block table. Replay sees changes *in* the table, but not another
  // table.
  const Driver& d = gpu().driver();
  if (d.instantiate == nullptr) GTEST_SKIP() << "this driver cannot instantiate graphs with flags (CUDA 11.4)";
  OwnStream stream(gpu());
  constexpr std::uint64_t row = 32, slots = 4, blocks = 3;
  DeviceBuffer cache(gpu(), blocks * slots * row), rows(gpu(), slots * row), table(gpu(), 8), other(gpu(), 8),
      first(gpu(), 16);
  std::vector<std::uint8_t> content(blocks * slots * row), out(slots * row);
  for (std::size_t k = 0; k < content.size(); ++k) content[k] = static_cast<std::uint8_t>(k / (slots * row) + 1);
  const std::int32_t zero[2]{0, 0}, one[2]{1, 1}, two[2]{2, 2};
  const std::uint64_t prefix[2]{0, slots};
  const auto put = [&](DeviceBuffer& to, const void* from, std::size_t bytes) {
    to.write({static_cast<const std::uint8_t*>(from), bytes}, stream);
    gpu().synchronize(stream);
  };
  put(cache, content.data(), content.size());
  put(table, zero, 8);
  put(other, two, 8);
  put(first, prefix, 16);
  cuda::GatherArgs args;
  args.cache = static_cast<const cuda::u8*>(cache.pointer());
  args.rows = static_cast<cuda::u8*>(rows.pointer());
  args.block_table = static_cast<const std::int32_t*>(table.pointer());
  args.first_token = static_cast<const cuda::u64*>(first.pointer());
  args.requests = 1;
  args.table_stride = 2;
  args.tokens = slots;
  args.heads = cuda::divider(1, slots);
  args.block_size = cuda::divider(slots, slots);
  args.paged = {slots * row, row, row, row};
  const std::vector<std::uint64_t> places{row};
  cuda::shape_copy(args, row, 1, places);
  check(d, d.begin_capture(stream, 0), "capturing");
  gpu().launch("kvcts_gather", args, 1, stream);
  Graph graph = nullptr;
  check(d, d.end_capture(stream, &graph), "ending the capture");
  GraphExec replay = nullptr;
  check(d, d.instantiate(&replay, graph, 0), "instantiating");
  const auto gathered = [&] {
    check(d, d.launch_graph(replay, stream), "replaying");
    rows.read(out, stream);
    gpu().synchronize(stream);
    return out.front();
  };
  EXPECT_EQ(gathered(), 1);
  put(table, one, 8);
  EXPECT_EQ(gathered(), 2);  // the same table, new content
  args.block_table = static_cast<const std::int32_t*>(other.pointer());
  EXPECT_EQ(gathered(), 2);  // a new table that the graph does not know
  d.destroy_graph_exec(replay);
  d.destroy_graph(graph);
}

}  // namespace
}  // namespace kvcts::device
