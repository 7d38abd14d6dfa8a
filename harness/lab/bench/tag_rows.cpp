// Tags and poison written, checked and digested: the planes of typical pools, over the whole buffer.
#include <xxhash.h>

#include <memory>
#include <stdexcept>

#include "kernels/generate.hpp"
#include "kernels/poison.hpp"
#include "lab/bench/bench.hpp"
#include "layout/dtype.hpp"

namespace kvcts::bench {
namespace {

using layout::Axis;
using layout::Component;
using layout::Dtype;
using layout::Mode;

struct Pool {
  layout::Plane plane;
  std::vector<kernels::BlockContent> content;
  std::size_t bytes{0};
};

/// Packed, from the modes of one block, outermost first; blocks outermost, as many as the buffer holds.
Pool pool(std::size_t room, Dtype dtype, std::vector<Mode> modes, Component component = Component::data) {
  std::int64_t block_bits = layout::bits(dtype), tokens = 1;
  for (auto mode = modes.rbegin(); mode != modes.rend(); ++mode) {
    mode->stride = block_bits;
    block_bits *= mode->extent;
    if (mode->axis == Axis::slot) tokens *= mode->extent;
  }
  const std::int64_t blocks = static_cast<std::int64_t>(room) * 8 / block_bits;
  Pool out;
  out.plane.component = component;
  out.plane.dtype = dtype;
  modes.insert(modes.begin(), {Axis::block, blocks, block_bits});
  out.plane.modes = std::move(modes);
  out.bytes = static_cast<std::size_t>(blocks * block_bits / 8);
  for (std::int64_t b = 0; b < blocks; ++b) out.content.push_back({b, 1, b * tokens, 0, tokens});
  return out;
}

struct Named {
  std::string name;
  std::shared_ptr<const Pool> pool;
  std::string why;  ///< why it is slower than long rows, if it is: what perf shows
};

std::vector<Named> pools(std::size_t room) {
  const Mode slot{Axis::slot, 16}, head{Axis::head, 8}, channel{Axis::channel, 128};
  std::vector<Named> out;
  const auto add = [&](const std::string& name, Dtype dtype, std::vector<Mode> modes, const std::string& why = "",
                       Component component = Component::data) {
    out.push_back({name, std::make_shared<const Pool>(pool(room, dtype, std::move(modes), component)), why});
  };
  add("bf16 N H C128", Dtype::bf16, {slot, head, channel});
  add("fp16 N H C128", Dtype::fp16, {slot, head, channel});
  add("bf16 H N C128", Dtype::bf16, {head, slot, channel});
  add("bf16 N64 C576", Dtype::bf16, {{Axis::slot, 64}, {Axis::channel, 576}});
  add("bf16 H C/8 N C%8", Dtype::bf16, {head, {Axis::channel, 16, 0, 8}, slot, {Axis::channel, 8}});
  add("bf16 H C128 N", Dtype::bf16, {head, channel, slot});
  add("fp32 N H C128", Dtype::fp32, {slot, head, channel});
  add("e4m3fn N H C128", Dtype::e4m3fn, {slot, head, channel});
  add("e4m3fn N H C40", Dtype::e4m3fn, {slot, head, {Axis::channel, 40}},
      "a row of 40 bytes takes a whole vector under a mask, and its key two 64-bit products");
  add("e4m3fn H C/16 N C%16", Dtype::e4m3fn, {head, {Axis::channel, 8, 0, 16}, slot, {Axis::channel, 16}});
  const std::string columns = "codes of 16 rows are exchanged in registers, after the hash and not beside it";
  add("e4m3fn H C128 N", Dtype::e4m3fn, {head, channel, slot}, columns);
  add("int4 N H C128", Dtype::int4, {slot, head, channel});
  add("int4 H C128 N", Dtype::int4, {head, channel, slot}, columns);
  add("scale fp32 N H", Dtype::fp32, {slot, head},
      "a key (two 64-bit products) for every 4 bytes, and 40 bytes of block list for every 512", Component::scale);
  add("scale e4m3fn N H C8", Dtype::e4m3fn, {slot, head, {Axis::channel, 8}},
      "a key (two 64-bit products) for every 8 bytes", Component::scale);
  return out;
}

void add_tag_rows(Bench& bench) {
  const auto all = pools(bench.bytes());
  for (const auto& [name, what, why] : all) {
    BenchmarkRow row{.name = "generate " + name,
                     .against = "memset",
                     .target = 0.8,
                     .bytes = static_cast<double>(what->bytes),
                     .why = why};
    row.run = [&bench, what, key = kernels::TagKey{}]() mutable {
      ++key.pass;  // other bytes each time
      kernels::generate(bench.buffer(0).first(what->bytes), what->plane, what->content, key, 0, bench.threads());
    };
    row.reference = [&bench, n = what->bytes] { bench.set(n); };
    bench.add(row);
  }
  for (const auto& [name, what, why] : all) {
    BenchmarkRow row{
        .name = "check " + name, .against = "memcmp", .target = 0.8, .bytes = static_cast<double>(what->bytes), .why = why};
    row.prepare = [&bench, what] {
      kernels::generate(bench.buffer(0).first(what->bytes), what->plane, what->content, {}, 0, bench.threads());
      bench.copy(what->bytes);
    };
    row.run = [&bench, what] {
      const auto memory = bench.buffer(0).first(what->bytes);
      if (kernels::check(memory, what->plane, what->content, {}, 0, 16, bench.threads()).wrong_bytes != 0)
        throw std::logic_error("check() rejects what generate() wrote");
    };
    row.reference = [&bench, n = what->bytes] { bench.compare(n); };
    bench.add(row);
  }
}

void add_poison_rows(Bench& bench) {
  const auto whole = static_cast<double>(bench.bytes());
  BenchmarkRow poison{.name = "poison", .against = "memset", .target = 0.8, .bytes = whole};
  poison.run = [&bench, k = std::uint64_t{0}]() mutable { kernels::fill_poison(++k, 0, bench.buffer(0), bench.threads()); };
  poison.reference = [&bench] { bench.set(); };
  bench.add(poison);
  BenchmarkRow poison_check{.name = "check poison", .against = "memcmp", .target = 0.8, .bytes = whole};
  poison_check.prepare = [&bench] { kernels::fill_poison(1, 0, bench.buffer(0), bench.threads()), bench.copy(); };
  poison_check.run = [&bench] {
    if (kernels::check_poison(1, 0, bench.buffer(0), 16, bench.threads()).wrong_bytes != 0)
      throw std::logic_error("check_poison() rejects what fill_poison() wrote");
  };
  poison_check.reference = [&bench] { bench.compare(); };
  bench.add(poison_check);
}

void add_rows(Bench& bench) {
  add_tag_rows(bench), add_poison_rows(bench);
  const auto whole = static_cast<double>(bench.bytes());
  const auto equal = [&bench] { bench.set(), bench.copy(); };
  BenchmarkRow compare{.name = "compare two buffers", .against = "memcmp", .target = 0.8, .bytes = whole, .prepare = equal};
  compare.run = [&bench] {
    if (kernels::compare(bench.buffer(0), bench.buffer(1), 16, bench.threads()).wrong_bytes != 0)
      throw std::logic_error("equal buffers differ");
  };
  compare.reference = [&bench] { bench.compare(); };
  bench.add(compare);
  if (bench.threads() == 1) {
    BenchmarkRow digest{.name = "digest", .against = "XXH3 as inlined for x86-64", .target = 0.9, .bytes = whole};
    digest.run = [&bench, sum = std::uint64_t{0}]() mutable { sum += kernels::digest(bench.buffer(0)); };
    digest.reference = [&bench, s = std::uint64_t{0}]() mutable { s += XXH3_64bits(bench.buffer(0).data(), bench.bytes()); };
    bench.add(digest);
  }
}

const BenchmarkFamily tags{"tags", add_rows};

}  // namespace
}  // namespace kvcts::bench
