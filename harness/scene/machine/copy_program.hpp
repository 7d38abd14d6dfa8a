// What a sequence does to bytes, computed once: every run, refusal and missing key depends on addresses and tables alone, so
// every pass plays the same program with its own content.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "layout/dtype.hpp"
#include "layout/layout.hpp"
#include "scene/address_space.hpp"
#include "scene/bytes.hpp"
#include "scene/ending.hpp"
#include "scene/machine/sequence.hpp"

namespace kvcts::scenario {

struct ProgramOp {
  enum class Kind : std::uint8_t { copy, nibble, row, pattern, decode, check };
  Kind kind{Kind::copy};
  int src_buffer{-1}, dst_buffer{-1};
  std::int64_t src{0}, dst{0};  ///< bytes; nibble: bits; pattern: src 1, 2 = only the low, the high half of one byte
  std::int64_t n{0};            ///< bytes
  std::size_t extra{0};         ///< index into rows, patterns, decodes, checks
};

/// Codes of channels first, first + 1, ... of one row, `stride` bits apart.
struct RowOp {
  layout::Component component{};
  layout::Dtype dtype{};
  bool high_nibble_first{false};
  std::string content;  ///< tags | codes | values
  std::uint32_t generation{1};
  std::int64_t kv{0}, layer{0}, token{0}, head{0};
  std::int64_t first{0}, count{0};
  int buffer{-1};
  std::int64_t bit{0}, stride{0};  ///< of the first code; 4-bit: before the nibble order is applied
};

/// One code to an fp32 number.
struct DecodeOp {
  struct Code {
    int buffer{-1};  ///< -1: none
    std::int64_t bit{0};
    layout::Dtype dtype{};
  };
  Code code, scale, global_scale;
  int power{1};  ///< how often the scales apply: 0, 1, 2
};

struct CopyProgram {
  std::vector<Buffer> buffers;  ///< the address space's, then those that the sequence adds: captures and stored objects
  std::size_t own{0};           ///< how many are the address space's
  std::vector<ProgramOp> ops;
  std::vector<RowOp> rows;
  std::vector<std::vector<std::uint8_t>> patterns;  ///< empty = poison
  std::vector<DecodeOp> decodes;
  std::vector<std::string> checks;  ///< names of steps; "" = the end
  SequenceEnding ending;
  std::vector<nlohmann::json> events;
};

class Locators;

/// Never fails on what a sequence requests: an impossible action becomes an event, or an ending.
CopyProgram record(const Scenario& scenario, const AddressSpace& space, const Sequence& sequence);
CopyProgram record(const Scenario& scenario, const AddressSpace& space, const Sequence& sequence, Locators& locators);

/// Performs copies instead of execute(), in any order or all at once: none writes what another reads or writes.
using CopyExecutor = std::function<void(const CopyProgram&, Bytes&, std::span<const ProgramOp>)>;

/// Plays a program in one pass; `on_check` is called with the index of each check.
void execute(const CopyProgram& program, Bytes& bytes, std::uint64_t seed, int pass,
             const std::function<void(std::size_t)>& on_check, const CopyExecutor& executor = {});
/// Its ops [begin, end) only.
void execute(const CopyProgram& program, std::size_t begin, std::size_t end, Bytes& bytes, std::uint64_t seed, int pass,
             const std::function<void(std::size_t)>& on_check, const CopyExecutor& executor = {});

}  // namespace kvcts::scenario
