#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "kernels/convert/element.hpp"
#include "kernels/poison.hpp"
#include "kernels/tag.hpp"
#include "scene/machine/copy_program.hpp"
#include "scene/numbers.hpp"

namespace kvcts::scenario {

namespace {

namespace convert = kernels::convert;

std::int64_t byte_of(std::int64_t bit) { return bit >= 0 ? bit / 8 : -((7 - bit) / 8); }

void put_code(Bytes& bytes, int buffer, std::int64_t bit, int width, std::uint32_t code) {
  const std::int64_t at = byte_of(bit);
  if (width == 4) {
    const int shift = static_cast<int>(bit - at * 8);
    const std::uint8_t old = bytes.at(buffer, at);
    bytes.set(buffer, at, static_cast<std::uint8_t>((old & ~(0xf << shift)) | (code << shift)));
    return;
  }
  std::uint8_t out[4];
  for (int i = 0; i < width / 8; ++i) out[i] = static_cast<std::uint8_t>(code >> (8 * i));
  bytes.write(buffer, at, width / 8, out);
}

std::uint32_t get_code(const Bytes& bytes, const DecodeOp::Code& code) {
  const int width = layout::bits(code.dtype);
  const std::int64_t at = byte_of(code.bit);
  if (width == 4) return (bytes.at(code.buffer, at) >> static_cast<int>(code.bit - at * 8)) & 0xfu;
  std::uint8_t in[4];
  bytes.read(code.buffer, at, width / 8, in);
  std::uint32_t out = 0;
  for (int i = 0; i < width / 8; ++i) out |= static_cast<std::uint32_t>(in[i]) << (8 * i);
  return out;
}

// Every code of the dtype in turn, starting where the row's key says; a number, rounded to the dtype.
std::uint32_t code_of(const RowOp& op, const kernels::RowId& row, std::uint64_t key, std::int64_t channel) {
  if (op.content == "codes") return code_in_turn(op.dtype, key + static_cast<std::uint64_t>(channel));
  if (op.content == "values") {
    const std::uint32_t number = kernels::tag_code(key, row, layout::Dtype::bf16, channel) << 16;
    return convert::encode(op.dtype, number, convert::Overflow::saturate, convert::Rounding::nearest);
  }
  return kernels::tag_code(key, row, op.dtype, channel);
}

void write_row(const RowOp& op, Bytes& bytes, std::uint64_t seed, int pass, std::vector<std::uint8_t>& scratch) {
  const kernels::RowId row{op.component, op.kv, op.layer, op.head, op.token, op.generation};
  const std::uint64_t key = kernels::row_key({pass_seed(seed, pass), 0, 0}, row);
  const int width = layout::bits(op.dtype);
  const std::int64_t n = op.count * width / 8;
  if (op.content == "tags" && op.stride == width && op.bit % 8 == 0 && op.first * width % 8 == 0 &&
      op.count * width % 8 == 0 && !op.high_nibble_first) {
    scratch.resize(static_cast<std::size_t>(n));
    kernels::tag_row(key, row, op.dtype, op.first, op.count, scratch);
    bytes.write(op.buffer, op.bit / 8, n, scratch.data());
    return;
  }
  for (std::int64_t i = 0; i < op.count; ++i) {
    std::int64_t bit = op.bit + i * op.stride;
    if (width == 4 && op.high_nibble_first) bit ^= 4;
    put_code(bytes, op.buffer, bit, width, code_of(op, row, key, op.first + i));
  }
}

float number_of(const Bytes& bytes, const DecodeOp::Code& code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(convert::decode(code.dtype, get_code(bytes, code))));
}

/// Ranges of buffers.
class BufferRanges {
 public:
  bool touch(int buffer, std::int64_t begin, std::int64_t end) const {
    const auto& known = of(buffer);
    const auto after = known.lower_bound(end);
    return after != known.begin() && std::prev(after)->second > begin;
  }
  void add(int buffer, std::int64_t begin, std::int64_t end) {
    auto& known = of_[buffer];
    auto next = known.upper_bound(begin);
    if (next != known.begin() && std::prev(next)->second >= begin) --next;
    for (; next != known.end() && next->first <= end; next = known.erase(next))
      begin = std::min(begin, next->first), end = std::max(end, next->second);
    known.emplace(begin, end);
  }

 private:
  const std::map<std::int64_t, std::int64_t>& of(int buffer) const {
    static const std::map<std::int64_t, std::int64_t> none;
    const auto found = of_.find(buffer);
    return found == of_.end() ? none : found->second;
  }
  std::map<int, std::map<std::int64_t, std::int64_t>> of_;  ///< begin -> end, disjoint
};

/// The copies from `begin` that may run in any order; at least one.
std::span<const ProgramOp> together(const CopyProgram& program, std::size_t begin, std::size_t end) {
  BufferRanges read, written;
  std::size_t o = begin;
  for (; o < end && program.ops[o].kind == ProgramOp::Kind::copy; ++o) {
    const ProgramOp& op = program.ops[o];
    const bool hurts = written.touch(op.src_buffer, op.src, op.src + op.n) ||
                       written.touch(op.dst_buffer, op.dst, op.dst + op.n) ||
                       read.touch(op.dst_buffer, op.dst, op.dst + op.n);
    if (hurts && o > begin) break;
    read.add(op.src_buffer, op.src, op.src + op.n);
    written.add(op.dst_buffer, op.dst, op.dst + op.n);
  }
  return std::span(program.ops).subspan(begin, o - begin);
}

}  // namespace

void execute(const CopyProgram& program, Bytes& bytes, std::uint64_t seed, int pass,
             const std::function<void(std::size_t)>& on_check, const CopyExecutor& executor) {
  execute(program, 0, program.ops.size(), bytes, seed, pass, on_check, executor);
}

void execute(const CopyProgram& program, std::size_t begin, std::size_t end, Bytes& bytes, std::uint64_t seed, int pass,
             const std::function<void(std::size_t)>& on_check, const CopyExecutor& executor) {
  std::vector<std::uint8_t> scratch;
  for (std::size_t o = begin; o < end; ++o) {
    const ProgramOp& op = program.ops[o];
    if (op.kind == ProgramOp::Kind::copy && executor) {
      const auto copies = together(program, o, end);
      executor(program, bytes, copies);
      o += copies.size() - 1;
      continue;
    }
    switch (op.kind) {
      case ProgramOp::Kind::copy:
        scratch.resize(static_cast<std::size_t>(op.n));
        bytes.read(op.src_buffer, op.src, op.n, scratch.data());
        bytes.write(op.dst_buffer, op.dst, op.n, scratch.data());
        break;
      case ProgramOp::Kind::nibble: {
        const std::int64_t from = byte_of(op.src);
        const std::uint32_t code = (bytes.at(op.src_buffer, from) >> static_cast<int>(op.src - from * 8)) & 0xfu;
        put_code(bytes, op.dst_buffer, op.dst, 4, code);
        break;
      }
      case ProgramOp::Kind::row:
        write_row(program.rows[op.extra], bytes, seed, pass, scratch);
        break;
      case ProgramOp::Kind::pattern: {
        const auto& pattern = program.patterns[op.extra];
        scratch.resize(static_cast<std::size_t>(op.n));
        for (std::int64_t i = 0; i < op.n; ++i) {
          scratch[static_cast<std::size_t>(i)] = pattern.empty() ? bytes.poison(op.dst_buffer, op.dst + i)
                                                                 : pattern[static_cast<std::size_t>(i) % pattern.size()];
        }
        if (op.src != 0) {
          const std::uint8_t mask = op.src == 1 ? 0x0f : 0xf0;
          scratch[0] = static_cast<std::uint8_t>((scratch[0] & mask) | (bytes.at(op.dst_buffer, op.dst) & ~mask));
        }
        bytes.write(op.dst_buffer, op.dst, op.n, scratch.data());
        break;
      }
      case ProgramOp::Kind::decode: {
        const DecodeOp& d = program.decodes[op.extra];
        float value = number_of(bytes, d.code);
        for (int i = 0; i < d.power; ++i) {
          if (d.scale.buffer >= 0) value *= number_of(bytes, d.scale);
          if (d.global_scale.buffer >= 0) value *= number_of(bytes, d.global_scale);
        }
        std::uint8_t out[4];
        const auto bits = std::isnan(value) ? convert::fp32_nan : std::bit_cast<std::uint32_t>(value);
        std::memcpy(out, &bits, 4);
        bytes.write(op.dst_buffer, op.dst, 4, out);
        break;
      }
      case ProgramOp::Kind::check:
        on_check(op.extra);
        break;
    }
  }
}

}  // namespace kvcts::scenario
