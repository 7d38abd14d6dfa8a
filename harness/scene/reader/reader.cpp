#include "scene/reader/reader.hpp"

#include <stdexcept>

#include "scene/reader/flashinfer_decode.hpp"

namespace kvcts::reader {

std::int64_t output_bytes(const ResolvedCase& resolved) {
  if (resolved.reader.name.empty()) return 0;
  const auto& group = resolved.groups.at(0);
  const auto& geometry = group.consumer.ranks.at(0).geometry;
  std::int64_t tokens = 0;
  for (const auto& request : group.requests) tokens += request.tokens;
  return tokens * geometry.kv * geometry.heads * geometry.head_dim * layout::bits(group.consumer.scheme.data) / 8;
}

std::unique_ptr<Reader> make_reader(const ReaderSpec& spec) {
  if (spec.kind == "flashinfer-decode") return std::make_unique<FlashInferDecode>(spec.options);
  throw std::runtime_error("reader '" + spec.name + "': expected kind flashinfer-decode, found '" + spec.kind + "'");
}

}  // namespace kvcts::reader
