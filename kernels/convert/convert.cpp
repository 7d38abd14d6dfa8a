#include "kernels/convert/convert.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/convert/lanes.hpp"
#include "kernels/convert/nvfp4_short.hpp"
#include "kernels/parallel.hpp"
#include "layout/layout.hpp"

namespace kvcts::kernels::convert {
namespace {

using layout::Dtype;
using layout::Error;

/// Elements in flight at once: their fp32 words and codes stay in the first-level cache.
constexpr std::size_t chunk = 2048;
/// Outputs of this size and above exceed the caches: they are written past them.
constexpr std::size_t stream_from = std::size_t{8} << 20;

/// Enough blocks to be worth the half millisecond that the nvfp4 tables take.
constexpr std::int64_t tables_from = 1 << 16;

std::size_t index(Dtype dtype) { return static_cast<std::size_t>(dtype); }
std::size_t bytes_of(Dtype dtype, std::size_t n) {
  return static_cast<std::size_t>(packed_bytes(dtype, static_cast<std::int64_t>(n)));
}

void need_bytes(const char* what, std::size_t found, std::int64_t expected, std::int64_t n, Dtype dtype) {
  if (std::cmp_equal(found, expected)) return;
  throw Error(std::string(what) + " must have the " + std::to_string(expected) + " bytes of " + std::to_string(n) +
              " codes of " + std::string(layout::name(dtype)) + ", found " + std::to_string(found) +
              " bytes; pass a span of that size");
}

bool swaps(Dtype dtype, bool high_nibble_first) { return high_nibble_first && layout::bits(dtype) == 4; }

void swap_nibbles(std::uint8_t* bytes, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>((bytes[i] << 4) | (bytes[i] >> 4));
}

/// A tensor's codes as input, chunk by chunk: fixes the nibble order in a copy.
class Source {
 public:
  Source(Dtype dtype, std::span<const std::uint8_t> bytes, bool high_nibble_first)
      : dtype_(dtype), bytes_(bytes), swap_(swaps(dtype, high_nibble_first)) {
    if (swap_) copy_.resize(chunk);
  }
  /// Codes [first, first + n), low nibble first. first is even for nibbles.
  const std::uint8_t* codes(std::size_t first, std::size_t n) {
    const std::uint8_t* at = bytes_.data() + bytes_of(dtype_, first);
    if (!swap_) return at;
    const std::size_t bytes = bytes_of(dtype_, n);
    if (copy_.size() < bytes) copy_.resize(bytes);
    std::memcpy(copy_.data(), at, bytes);
    swap_nibbles(copy_.data(), bytes);
    return copy_.data();
  }

 private:
  Dtype dtype_;
  std::span<const std::uint8_t> bytes_;
  bool swap_;
  std::vector<std::uint8_t> copy_;
};

/// The same for output: written in place, or staged if nibbles are swapped or memory is written past the caches.
class Sink {
 public:
  Sink(Dtype dtype, std::span<std::uint8_t> bytes, bool high_nibble_first)
      : dtype_(dtype), bytes_(bytes), swap_(swaps(dtype, high_nibble_first)), stream_(bytes.size() >= stream_from) {}
  ~Sink() {
    if (stream_) best_lanes().drain();
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Where to write codes [first, first + n); put() then commits them.
  std::uint8_t* begin(std::size_t first, std::size_t n) {
    at_ = bytes_.data() + bytes_of(dtype_, first);
    size_ = bytes_of(dtype_, n);
    if (!swap_ && !stream_) return at_;
    if (staged_.size() < size_) staged_.resize(size_);
    return staged_.data();
  }
  void put() {
    if (!swap_ && !stream_) return;
    if (swap_) swap_nibbles(staged_.data(), size_);
    if (stream_) {
      best_lanes().stream(at_, staged_.data(), size_);
    } else {
      std::memcpy(at_, staged_.data(), size_);
    }
  }

 private:
  Dtype dtype_;
  std::span<std::uint8_t> bytes_;
  bool swap_, stream_;
  std::uint8_t* at_{nullptr};
  std::size_t size_{0};
  std::vector<std::uint8_t> staged_;
};

/// fp32 words -> codes. Only e8m0 has roundings, and no special loop for its non-default ones.
void encode_words(Dtype to, const Options& options, const std::uint32_t* words, std::uint8_t* out, std::size_t n) {
  if (to == Dtype::e8m0 && options.rounding != Rounding::down) {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = static_cast<std::uint8_t>(encode_e8m0(words[i], options.overflow, options.rounding));
    return;
  }
  best_lanes().encode[index(to)][static_cast<std::size_t>(options.overflow)](words, out, n);
}

NarrowCodes narrow_codes(Dtype from, Dtype to, Overflow overflow) {
  const bool half = from == Dtype::fp16 || from == Dtype::bf16;
  if (!half || to < Dtype::e4m3fn || to > Dtype::e5m2fnuz) return nullptr;
  return best_lanes()
      .narrow[from == Dtype::bf16 ? 1 : 0][index(to) - index(Dtype::e4m3fn)][static_cast<std::size_t>(overflow)];
}

void convert_range(Dtype from, std::span<const std::uint8_t> in, Dtype to, std::span<std::uint8_t> out,
                   const Options& options, std::size_t begin, std::size_t end) {
  const NarrowCodes narrow = narrow_codes(from, to, options.overflow);
  Source source(from, in, options.from_high_nibble_first);
  Sink sink(to, out, options.to_high_nibble_first);
  alignas(64) std::uint32_t words[chunk];
  for (std::size_t at = begin; at < end; at += chunk) {
    const std::size_t n = std::min(chunk, end - at);
    const std::uint8_t* codes = source.codes(at, n);
    std::uint8_t* to_codes = sink.begin(at, n);
    if (narrow != nullptr) {
      narrow(codes, to_codes, n);
    } else if (from == to) {
      std::memcpy(to_codes, codes, bytes_of(to, n));
    } else {
      best_lanes().decode[index(from)](codes, words, n);
      encode_words(to, options, words, to_codes, n);
    }
    sink.put();
  }
}

enum class Kind : std::uint8_t { nvfp4, mx, row };

Kind kind_of(const BlockRule& rule) {
  const bool fp8 = rule.element >= Dtype::e4m3fn && rule.element <= Dtype::e5m2fnuz;
  if (rule.element == Dtype::e2m1 && rule.scale == Dtype::e4m3fn && rule.block == nvfp4_block) return Kind::nvfp4;
  if ((rule.element == Dtype::e2m1 || rule.element == Dtype::e4m3fn) && rule.scale == Dtype::e8m0 &&
      rule.block == mx_block) {
    return Kind::mx;
  }
  if ((fp8 || rule.element == Dtype::int8) && rule.scale == Dtype::fp32 && rule.block >= 1) return Kind::row;
  throw Error(
      "blocks of " + std::to_string(rule.block) + " " + std::string(layout::name(rule.element)) + " with scales of " +
      std::string(layout::name(rule.scale)) +
      ": expected nvfp4 (16 e2m1, e4m3fn), mx (32 e2m1 or e4m3fn, e8m0) or a row of fp8 or int8 with fp32; use nvfp4(), "
      "mxfp8(), mxfp4() or per_row()");
}

void check_blocks(const BlockRule& rule, Kind kind, Dtype full, std::size_t full_bytes, std::size_t codes,
                  std::size_t scales, std::int64_t blocks) {
  if (full != Dtype::fp32 && full != Dtype::fp16 && full != Dtype::bf16) {
    throw Error("quantised blocks are made of and read as fp32, fp16 or bf16, found " + std::string(layout::name(full)) +
                "; convert() to one of these");
  }
  if (kind == Kind::nvfp4 && !(rule.global > 0.0F && bits_of(rule.global) < fp32_infinity)) {
    throw Error("the global scale of nvfp4 must be a positive finite number, found " + std::to_string(rule.global) +
                "; it is the decoding factor that the cache stores");
  }
  if (kind == Kind::mx && rule.rounding == Rounding::nearest) {
    throw Error("MX scales are rounded down (OCP) or up (NVIDIA), found nearest; choose one of these");
  }
  if (blocks < 0 || blocks > INT64_MAX / 32 / rule.block) {
    throw Error("the number of blocks must be in [0, " + std::to_string(INT64_MAX / 32 / rule.block) + "], found " +
                std::to_string(blocks));
  }
  const std::int64_t n = blocks * rule.block;
  need_bytes("full-width elements", full_bytes, packed_bytes(full, n), n, full);
  need_bytes("codes", codes, packed_bytes(rule.element, n), n, rule.element);
  need_bytes("scales", scales, packed_bytes(rule.scale, blocks), blocks, rule.scale);
}

void put_scale(const BlockRule& rule, std::span<std::uint8_t> scales, std::size_t block, std::uint32_t code) {
  if (rule.scale == Dtype::fp32) {
    std::memcpy(scales.data() + 4 * block, &code, 4);
  } else {
    scales[block] = static_cast<std::uint8_t>(code);
  }
}

std::size_t blocks_at_once(const BlockRule& rule) {
  return std::max<std::size_t>(1, chunk / static_cast<std::size_t>(rule.block));
}

/// Blocks of one thread, batch by batch, with the buffers of a batch.
class Quantiser {
 public:
  Quantiser(const BlockRule& rule, Kind kind, Dtype from, std::span<const std::uint8_t> in, std::span<std::uint8_t> codes,
            std::span<std::uint8_t> scales, const Options& options)
      : rule_(rule),
        kind_(kind),
        from_(from),
        block_(static_cast<std::size_t>(rule.block)),
        batch_(blocks_at_once(rule)),
        in_(in),
        scales_(scales),
        sink_(rule.element, codes, options.to_high_nibble_first),
        words_(batch_ * block_),
        maxima_(batch_),
        factors_(batch_) {}

  void run(std::size_t begin, std::size_t end, const ShortTables* tables) {
    for (std::size_t at = begin; at < end; at += batch_) {
      const std::size_t count = std::min(batch_, end - at);
      std::uint8_t* out = sink_.begin(at * block_, count * block_);
      std::size_t done = 0;
      for (; tables != nullptr && done + short_blocks <= count; done += short_blocks) {
        std::uint8_t* to = out + bytes_of(rule_.element, done * block_);
        if (!quantise_short(*tables, source(at + done), to, scales_.data() + at + done)) blocks(at + done, short_blocks, to);
      }
      if (done < count) blocks(at + done, count - done, out + bytes_of(rule_.element, done * block_));
      sink_.put();
    }
  }

 private:
  const std::uint8_t* source(std::size_t block) const { return in_.data() + bytes_of(from_, block * block_); }

  void blocks(std::size_t at, std::size_t count, std::uint8_t* out) {
    const Lanes& lanes = best_lanes();
    lanes.decode[index(from_)](source(at), words_.data(), count * block_);
    lanes.maxima(words_.data(), block_, count, maxima_.data());
    if (kind_ == Kind::nvfp4) {
      lanes.nvfp4_scales(maxima_.data(), rule_.global, count, scales_.data() + at, factors_.data());
      lanes.nvfp4(words_.data(), factors_.data(), count, out);
      return;
    }
    for (std::size_t b = 0; b < count; ++b) {
      const BlockScale scale =
          kind_ == Kind::mx ? mx_scale(maxima_[b], rule_.element, rule_.rounding) : row_scale(maxima_[b], rule_.element);
      put_scale(rule_, scales_, at + b, scale.code);
      factors_[b] = scale.factor;
    }
    lanes.scale_values(words_.data(), factors_.data(), block_, count);
    encode_words(rule_.element, {}, words_.data(), out, count * block_);
  }

  const BlockRule& rule_;
  Kind kind_;
  Dtype from_;
  std::size_t block_, batch_;
  std::span<const std::uint8_t> in_;
  std::span<std::uint8_t> scales_;
  Sink sink_;
  std::vector<std::uint32_t> words_, maxima_;
  std::vector<float> factors_;
};

float factor_of(const BlockRule& rule, Kind kind, std::span<const std::uint8_t> scales, std::size_t block) {
  if (kind == Kind::row) {
    float scale;
    std::memcpy(&scale, scales.data() + 4 * block, 4);
    return scale;
  }
  const float scale = float_of(decode(rule.scale, scales[block]));
  return kind == Kind::nvfp4 ? times(scale, rule.global) : scale;
}

void dequantise_range(const BlockRule& rule, Kind kind, std::span<const std::uint8_t> codes,
                      std::span<const std::uint8_t> scales, Dtype to, std::span<std::uint8_t> out, const Options& options,
                      std::size_t begin, std::size_t end) {
  const Lanes& lanes = best_lanes();
  const auto block = static_cast<std::size_t>(rule.block);
  const std::size_t batch = blocks_at_once(rule);
  Source source(rule.element, codes, options.from_high_nibble_first);
  Sink sink(to, out, false);
  std::vector<std::uint32_t> words(batch * block);
  std::vector<float> factors(batch);
  for (std::size_t at = begin; at < end; at += batch) {
    const std::size_t count = std::min(batch, end - at);
    lanes.decode[index(rule.element)](source.codes(at * block, count * block), words.data(), count * block);
    for (std::size_t b = 0; b < count; ++b) factors[b] = factor_of(rule, kind, scales, at + b);
    lanes.scale_values(words.data(), factors.data(), block, count);
    encode_words(to, options, words.data(), sink.begin(at * block, count * block), count * block);
    sink.put();
  }
}

}  // namespace

std::int64_t packed_bytes(Dtype dtype, std::int64_t n) {
  const int bits = layout::bits(dtype);
  return bits == 4 ? (n + 1) / 2 : n * (bits / 8);
}

void convert(Dtype from, std::span<const std::uint8_t> in, Dtype to, std::span<std::uint8_t> out, std::int64_t count,
             const Options& options) {
  if (count < 0 || count > INT64_MAX / 4)
    throw Error("the number of codes must be in [0, 2^61), found " + std::to_string(count));
  need_bytes("the input", in.size(), packed_bytes(from, count), count, from);
  need_bytes("the output", out.size(), packed_bytes(to, count), count, to);
  parallel_ranges(options.threads, static_cast<std::size_t>(count), chunk,
                  [&](std::size_t begin, std::size_t end) { convert_range(from, in, to, out, options, begin, end); });
}

BlockRule nvfp4(float global) { return {Dtype::e2m1, Dtype::e4m3fn, nvfp4_block, global, Rounding::down}; }
BlockRule mxfp8(Rounding rounding) { return {Dtype::e4m3fn, Dtype::e8m0, mx_block, 1.0F, rounding}; }
BlockRule mxfp4(Rounding rounding) { return {Dtype::e2m1, Dtype::e8m0, mx_block, 1.0F, rounding}; }
BlockRule per_row(Dtype element, std::int64_t elements) { return {element, Dtype::fp32, elements, 1.0F, Rounding::down}; }

BlockRule rule_of(const layout::Scheme& scheme, std::int64_t row, float global) {
  if (!scheme.scale)
    throw Error("dtype " + scheme.name + " has no scales: convert() its elements instead of quantising them");
  BlockRule rule{scheme.data, scheme.scale->dtype, scheme.scale->group == 0 ? row : scheme.scale->group,
                 scheme.global_scale ? global : 1.0F, Rounding::down};
  kind_of(rule);
  return rule;
}

void quantise(const BlockRule& rule, Dtype from, std::span<const std::uint8_t> in, std::span<std::uint8_t> codes,
              std::span<std::uint8_t> scales, std::int64_t blocks, const Options& options) {
  const Kind kind = kind_of(rule);
  check_blocks(rule, kind, from, in.size(), codes.size(), scales.size(), blocks);
  const auto tables = kind == Kind::nvfp4 && blocks >= tables_from ? short_tables(from, rule.global) : nullptr;
  parallel_ranges(options.threads, static_cast<std::size_t>(blocks), blocks_at_once(rule),
                  [&](std::size_t begin, std::size_t end) {
                    Quantiser(rule, kind, from, in, codes, scales, options).run(begin, end, tables.get());
                  });
}

void dequantise(const BlockRule& rule, std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, Dtype to,
                std::span<std::uint8_t> out, std::int64_t blocks, const Options& options) {
  const Kind kind = kind_of(rule);
  check_blocks(rule, kind, to, out.size(), codes.size(), scales.size(), blocks);
  parallel_ranges(options.threads, static_cast<std::size_t>(blocks), blocks_at_once(rule),
                  [&](std::size_t begin, std::size_t end) {
                    dequantise_range(rule, kind, codes, scales, to, out, options, begin, end);
                  });
}

}  // namespace kvcts::kernels::convert
