// Compares the suite's kernels with the driver's own operations on the same memory, in one run: ratios, not absolute
// speeds.
#include <algorithm>
#include <vector>

#include "device/check/checks.hpp"
#include "device/memory.hpp"
#include "device/region.hpp"
#include "kernels/cuda/plan.hpp"

namespace kvcts::device::checks {
namespace {

using layout::Dtype;

/// Median milliseconds of several runs, after one uncounted run.
template <class Work>
double median_ms(DeviceBench& b, Work&& work, int runs = 9) {
  OwnEvent begin(b.gpu), end(b.gpu);
  std::vector<double> times;
  for (int k = 0; k <= runs; ++k) {
    begin.record(b.stream);
    work();
    end.record(b.stream);
    check(b.gpu.driver(), b.gpu.driver().synchronize_event(end), "waiting for an event");
    float ms = 0;
    check(b.gpu.driver(), b.gpu.driver().elapsed(&ms, begin, end), "reading the time between events");
    if (k > 0) times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[static_cast<std::size_t>(runs / 2)];
}

struct Row {
  const char* name;
  const char* yardstick;  ///< name of its reference row; nullptr: none
  double target;
  double bytes_a_second;
};

std::string report(const std::vector<Row>& rows, nlohmann::json& numbers) {
  std::string text;
  for (const Row& row : rows) {
    nlohmann::json entry{{"gigabytes_a_second", row.bytes_a_second / 1e9}};
    if (row.yardstick != nullptr) {
      const auto yardstick = std::find_if(rows.begin(), rows.end(),
                                          [&](const Row& other) { return std::string_view(other.name) == row.yardstick; });
      const double ratio = row.bytes_a_second / yardstick->bytes_a_second;
      entry["of"] = row.yardstick;
      entry["ratio"] = ratio;
      if (row.target > 0) {
        entry["target"] = row.target;
        entry["reached"] = ratio >= row.target;
      }
    }
    numbers[row.name] = entry;
    text += "\n  " + std::string(row.name) + ": " + std::to_string(static_cast<int>(row.bytes_a_second / 1e9)) + " GB/s";
    if (entry.contains("ratio")) {
      text += ", " + std::to_string(entry["ratio"].get<double>()).substr(0, 4) + " of " + row.yardstick;
      if (entry.contains("target"))
        text += " (wanted " + std::to_string(row.target).substr(0, 4) +
                (entry["reached"].get<bool>() ? ", reached)" : ", missed)");
    }
  }
  return text;
}

}  // namespace

// One sequence: a row reads what the rows before it left in the buffers.
std::string speed(DeviceBench& b) {
  const Driver& d = b.gpu.driver();
  const std::int64_t heads = 8, channels = 128, block = 16 * heads * channels * 2;
  const std::int64_t blocks = static_cast<std::int64_t>(b.bytes) / block;
  const auto bytes = static_cast<std::uint64_t>(blocks * block);
  if (blocks < 64) throw Skip("too little free device memory to measure anything");
  DeviceBuffer one(b.gpu, bytes), two(b.gpu, bytes), word(b.gpu, 64);
  std::vector<Row> rows;
  const auto add = [&](const char* name, const char* yardstick, double target, std::uint64_t counted, auto&& work) {
    rows.push_back({name, yardstick, target, static_cast<double>(counted) / (median_ms(b, work) / 1000)});
  };
  const auto tiles = [&](std::uint64_t of) { return (of + 16 * cuda::range_vectors - 1) / (16 * cuda::range_vectors); };

  // Reference rows: bytes written, bytes read, bytes copied (counted once).
  add("memset", nullptr, 0, bytes, [&] { check(d, d.set_bytes(one.address(), 0x5a, bytes, b.stream), "memset"); });
  add("read", nullptr, 0, bytes, [&] {
    b.gpu.launch("kvcts_read",
                 cuda::ReadArgs{static_cast<const cuda::u8*>(one.pointer()), bytes, static_cast<cuda::u64*>(word.pointer()),
                                ~cuda::u64{0}},
                 tiles(bytes), b.stream);
  });
  add("copy", nullptr, 0, bytes, [&] { check(d, d.copy(two.address(), one.address(), bytes, b.stream), "copy"); });

  Image image;
  image.bytes = bytes;
  image.poison = 3;
  image.planes = {packed_pool("BNHC", Dtype::bf16, blocks, heads, channels)};
  for (std::int64_t k = 0; k < blocks; ++k) image.content.push_back({k, 1, k * 16, 0, 16});
  const auto plan = cuda::plan_rows(image.content, image.planes.front(), image.key, 0, 0, bytes);
  DeviceBuffer tables(b.gpu, plan.tables.bytes().size());
  tables.write(plan.tables.bytes(), b.stream);
  b.gpu.synchronize(b.stream);
  add("generate", "memset", 0.9, bytes, [&] {
    b.gpu.launch("kvcts_generate_rows", cuda::bind(plan, one.pointer(), tables.pointer()), plan.blocks(), b.stream);
  });
  RegionWork work(b.gpu, image, b.stream);
  add("check", "read", 0.9, bytes, [&] { work.launch_check(one.address(), b.stream); });
  if (const auto wrong = work.check(one.address(), 1, b.stream); wrong.wrong_bytes != 0)
    throw CheckFailure("the kernel generated wrong content at full speed");
  // Two buffers: of one, the second read would come from the cache.
  check(d, d.copy(two.address(), one.address(), bytes, b.stream), "copy");
  add("compare", "read", 0.9, 2 * bytes, [&] {
    check(d, d.set_bytes(word.address(), 0, 64, b.stream), "clearing");
    b.gpu.launch("kvcts_compare",
                 cuda::CompareArgs{static_cast<const cuda::u8*>(one.pointer()),
                                   static_cast<const cuda::u8*>(two.pointer()),
                                   bytes,
                                   {static_cast<cuda::Findings*>(word.pointer()), nullptr, 0, 0, 0}},
                 tiles(bytes), b.stream);
  });
  add("digest", "read", 0.9, bytes, [&] {
    b.gpu.launch(
        "kvcts_digest",
        cuda::DigestArgs{static_cast<const cuda::u8*>(one.pointer()), bytes, static_cast<cuda::u64*>(word.pointer())},
        tiles(bytes), b.stream);
  });
  const std::vector<cuda::Range> everything{{0, bytes}};
  const auto poison = cuda::plan_poison(everything, 3, bytes);
  DeviceBuffer poison_tables(b.gpu, poison.tables.bytes().size());
  poison_tables.write(poison.tables.bytes(), b.stream);
  b.gpu.synchronize(b.stream);
  add("poison", "memset", 0.9, bytes, [&] {
    b.gpu.launch("kvcts_write_poison", cuda::bind(poison, two.pointer(), poison_tables.pointer()), poison.blocks(),
                 b.stream);
  });

  struct Pair {
    const char* name;
    const char* to;
    double target;
  };
  for (const Pair pair : {Pair{"relayout NHD to HND", "BHNC", 0.85}, Pair{"relayout NHD to channels first", "BHCN", 0}}) {
    const layout::Plane from = packed_pool("BNHC", Dtype::bf16, blocks, heads, channels),
                        to = packed_pool(pair.to, Dtype::bf16, blocks, heads, channels);
    std::vector<cuda::TokenMove> tokens;
    for (std::int64_t k = 0; k < blocks * 16; ++k) tokens.push_back({k / 16, k % 16, blocks - 1 - k / 16, k % 16});
    const auto moves = cuda::plan_relayout(from, 0, to, 0, tokens);
    DeviceBuffer move_tables(b.gpu, moves.tables.bytes().size());
    move_tables.write(moves.tables.bytes(), b.stream);
    b.gpu.synchronize(b.stream);
    add(pair.name, "copy", pair.target, bytes, [&] {
      b.gpu.launch("kvcts_relayout", cuda::bind(moves, one.pointer(), two.pointer(), move_tables.pointer()), moves.blocks(),
                   b.stream);
    });
  }

  b.numbers["buffer_bytes"] = bytes;
  return std::to_string(bytes >> 20) + " MiB" + report(rows, b.numbers);
}

}  // namespace kvcts::device::checks
