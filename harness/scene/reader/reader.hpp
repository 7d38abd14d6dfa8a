// A reader consumes a cache the way an attention kernel does: block table, page size and declared layout -> gathered K and
// V.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "process/status.hpp"

namespace kvcts::reader {

struct ReadResult {
  std::uint64_t tokens{0};             ///< gathered
  std::vector<nlohmann::json> events;  ///< facts for the diagnoser, e.g. {"kv_len":152,"runaway_blocks":[2,3,6,7]}
};

class Reader {
 public:
  virtual ~Reader() = default;
  /// `caches`: the bytes of the consumer's regions in the order of kvcts::regions(case, Side::consumer). `output`: receives
  /// the gathered rows, as output_bytes() describes. Reports progress in tokens.
  virtual ReadResult run(const ResolvedCase& view, const std::vector<std::span<std::uint8_t>>& caches,
                         std::span<std::uint8_t> output, process::Progress progress) = 0;
};

/// Bytes of the output region: per request of group 0, K rows then V rows, [tokens, heads, head_dim] packed. 0 = no reader.
std::int64_t output_bytes(const ResolvedCase& resolved);
std::unique_ptr<Reader> make_reader(const ReaderSpec& spec);

}  // namespace kvcts::reader
