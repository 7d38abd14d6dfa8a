// Conversions compared with the bandwidth bound: the time in which memcpy reads and writes the same number of bytes.
// A ratio of 0.5 is twice the bound.
#include <cstring>
#include <random>

#include "kernels/convert/convert.hpp"
#include "lab/bench/bench.hpp"
#include "layout/layout.hpp"

namespace kvcts::bench {
namespace {

using layout::Dtype;
namespace conv = kernels::convert;

/// Realistic cache values of a 16- or 8-bit dtype, repeated.
void fill(std::span<std::uint8_t> bytes, Dtype dtype) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::uint8_t> some(1 << 18);
  const std::size_t width = static_cast<std::size_t>(layout::bits(dtype)) / 8;
  for (std::size_t i = 0; i < some.size(); i += width) {
    const std::uint32_t code = conv::encode(dtype, conv::bits_of(normal(random)));
    std::memcpy(some.data() + i, &code, width);
  }
  for (std::size_t i = 0; i < bytes.size(); i += some.size())
    std::memcpy(bytes.data() + i, some.data(), std::min(some.size(), bytes.size() - i));
}

struct Work {
  std::string name;
  double target;
  Dtype from;
  std::size_t read, written;
  std::function<void()> run;
};

void add(Bench& bench, Work work) {
  // memcpy of n bytes reads n and writes n.
  Row row{.name = std::move(work.name),
          .against = "memcpy",
          .target = work.target,
          .bytes = static_cast<double>(work.read + work.written) / 2};
  row.reference_bytes = static_cast<double>(bench.bytes());
  row.prepare = [&bench, from = work.from] { fill(bench.buffer(0), from); };
  row.run = std::move(work.run);
  row.reference = [&bench] { bench.copy(); };
  bench.add(std::move(row));
}

void add_conversion(Bench& bench, Dtype from, Dtype to, double target) {
  const std::int64_t widest = std::max(layout::bits(from), layout::bits(to)) / 8;
  const std::int64_t n = static_cast<std::int64_t>(bench.bytes()) / widest;
  const auto read = static_cast<std::size_t>(conv::packed_bytes(from, n)),
             written = static_cast<std::size_t>(conv::packed_bytes(to, n));
  add(bench, {std::string("convert ") + std::string(layout::name(from)) + " to " + std::string(layout::name(to)), target,
              from, read, written, [=, &bench] {
                conv::convert(from, bench.buffer(0).first(read), to, bench.buffer(1).first(written), n,
                              {.threads = bench.threads()});
              }});
}

void add_quantisation(Bench& bench, const std::string& name, const conv::BlockRule& rule, double target) {
  const std::int64_t blocks = static_cast<std::int64_t>(bench.bytes()) / 2 / rule.block;
  const auto codes = static_cast<std::size_t>(conv::packed_bytes(rule.element, blocks * rule.block));
  const auto scales = static_cast<std::size_t>(conv::packed_bytes(rule.scale, blocks));
  const auto full = static_cast<std::size_t>(blocks * rule.block * 2);
  add(bench, {"quantise fp16 to " + name, target, Dtype::fp16, full, codes + scales, [=, &bench] {
                const auto out = bench.buffer(1);
                conv::quantise(rule, Dtype::fp16, bench.buffer(0).first(full), out.first(codes), out.subspan(codes, scales),
                               blocks, {.threads = bench.threads()});
              }});
}

void add_rows(Bench& bench) {
  for (const Dtype to : {Dtype::e4m3fn, Dtype::e5m2, Dtype::e4m3fnuz, Dtype::e5m2fnuz}) {
    add_conversion(bench, Dtype::fp16, to, 0.5);
    add_conversion(bench, Dtype::bf16, to, 0.5);
  }
  add_conversion(bench, Dtype::fp16, Dtype::int8, 0);
  add_conversion(bench, Dtype::e4m3fn, Dtype::fp16, 0);
  add_quantisation(bench, "nvfp4", conv::nvfp4(0.001F), 0.5);
  add_quantisation(bench, "mxfp8", conv::mxfp8(), 0);
  add_quantisation(bench, "mxfp4", conv::mxfp4(), 0);
  add_quantisation(bench, "fp8 per token and head", conv::per_row(Dtype::e4m3fn, 128), 0);
}

const Family convert_family{"convert", add_rows};

}  // namespace
}  // namespace kvcts::bench
