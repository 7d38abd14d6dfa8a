#include "diagnose/at_sight.hpp"

#include <algorithm>
#include <regex>

#include "diagnose/values.hpp"
#include "layout/layout.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/reader/flashinfer_decode.hpp"

namespace kvcts::diagnose {

namespace {

bool same(const std::vector<ByteView>& a, const std::vector<ByteView>& b) {
  return std::ranges::equal(a, b, [](ByteView x, ByteView y) { return std::ranges::equal(x, y); });
}

Diagnosis finding(FaultClass fault_class, std::string text) {
  Diagnosis d;
  d.fault_class = fault_class, d.exact = true;
  d.text = std::move(text), d.what_to_do = advice(fault_class);
  return d;
}

/// "HND" or "NHD" by the declared axes, where the reader was given the other label.
Diagnosis from_label(const CaseBytes& bytes) {
  const auto& c = bytes.truth;
  if (c.reader.kind != "flashinfer-decode" || c.groups.empty()) return {};
  const auto& group = c.groups.front();
  const auto& rank = group.consumer.ranks.at(0);
  for (const auto& tensor : rank.truth.tensors) {
    const auto n = tensor.dims.size();
    if (n < 4 || tensor.component != layout::Component::data) continue;
    const std::string is = tensor.dims[n - 3].axes + tensor.dims[n - 2].axes + "D";
    const std::string reported = c.reader.options.value("label", "");
    if (is == reported || (is != "HND" && is != "NHD")) return {};
    const auto view = reader::view_under_label(tensor, reported);
    const auto plan =
        reader::plan_decode(group.requests, rank.geometry.block_size, view.page_size,
                            c.reader.options.value("variant", "cuda-core"), c.reader.options.value("tile_tokens", 128u));
    return finding(FaultClass::axis_permuted,
                   "cache stored " + is + ", reader was given " + reported + ": it takes page_size " +
                       std::to_string(view.page_size) + " and " + std::to_string(view.num_heads) +
                       " KV heads from a tensor that has page_size " + std::to_string(rank.geometry.block_size) + " and " +
                       std::to_string(rank.geometry.heads) + "; " + plan.text());
  }
  return {};
}

Diagnosis from_an_earlier_transfer(const CaseBytes& bytes) {
  const auto targets = regions(bytes.truth, Side::consumer);
  std::vector<std::uint8_t> stale;
  for (int pass = 0; pass < bytes.pass; ++pass) {
    std::size_t alike = 0;
    for (; alike < targets.size(); ++alike) {
      stale.resize(bytes.consumer[alike].size());
      oracle::write_expected(bytes.truth, targets[alike], pass, stale);
      if (!std::ranges::equal(stale, bytes.consumer[alike])) break;
    }
    if (alike == targets.size())
      return named(
          {{FaultClass::stale_block, "what an earlier transfer to the same places delivered (pass " + std::to_string(pass) +
                                         ", this is pass " + std::to_string(bytes.pass) + ")"}},
          explains_all(bytes.wrong_bytes));
  }
  return {};
}

/// Whatever was to arrive is 0.
Diagnosis from_zeros(const CaseBytes& bytes) {
  for (std::size_t i = 0; i < bytes.consumer.size(); ++i) {
    const ByteView now = bytes.consumer[i], before = bytes.consumer_before[i], expected = bytes.consumer_expected[i];
    for (std::size_t b = 0; b < now.size(); ++b)
      if (now[b] != 0 && (now[b] != before[b] || before[b] != expected[b])) return {};
  }
  return named({{FaultClass::read_before_ready, "zeros arrived: the memory's content before any write"}},
               explains_all(bytes.wrong_bytes));
}

Diagnosis from_codes(const CaseBytes& bytes) {
  ChangedCodes codes;
  const auto targets = regions(bytes.truth, Side::consumer);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto shape = oracle::file_shape(bytes.truth, targets[i].bytes);
    const auto dtype = bytes.truth.groups.at(static_cast<std::size_t>(targets[i].group)).consumer.scheme.data;
    const auto inside = [&](ByteView file) {
      return file.subspan(static_cast<std::size_t>(shape.base), static_cast<std::size_t>(shape.bytes));
    };
    const ByteView expected = inside(bytes.consumer_expected[i]), before = inside(bytes.consumer_before[i]);
    codes.look(dtype, expected, inside(bytes.consumer[i]), [&](std::size_t at) { return expected[at] != before[at]; });
  }
  const auto cause = codes.cause();
  return cause ? named({{cause->fault_class, cause->words}}, explains_all(bytes.wrong_bytes),
                       {.unexplained_part = right_ones(*cause)})
               : Diagnosis{};
}

}  // namespace

Diagnosis from_events(const CaseBytes& bytes) {
  static const std::regex counts(R"(expected (\d+), got (\d+))");
  for (const auto& event : bytes.events) {
    if (!event.is_object() || !event.contains("raised")) continue;
    const auto& raised = event["raised"];
    const std::string text = raised.value("text", "");
    std::smatch m;
    if (!std::regex_search(text, m, counts))
      return finding(FaultClass::raised, raised.value("type", "exception") + ": " + text);
    return finding(FaultClass::rank_mismatch, "expected " + m[1].str() + ", got " + m[2].str() +
                                                  ": the code unpacks a shape of " + m[1].str() +
                                                  " dims, the tensor it received has " + m[2].str() + " (" +
                                                  raised.value("type", "exception") + ": " + text + ")");
  }
  return from_label(bytes);
}

Diagnosis at_sight(const CaseBytes& bytes) {
  if (Diagnosis d = from_events(bytes); !d.text.empty()) return d;
  if (bytes.wrong_bytes + bytes.source_wrong == 0) return {};
  if (bytes.source_wrong != 0) {
    if (bytes.wrong_bytes != 0) return {};
    return named(
        {{FaultClass::stale_block, "the source was overwritten once it had been sent: the consumer has what it held"}}, "",
        {.unexplained_part = "what it was overwritten with"});
  }
  if (!bytes.consumer.empty() && same(bytes.consumer, bytes.consumer_before))
    return finding(
        FaultClass::silently_skipped,
        "nothing arrived: every byte of the consumer is as it was before the transfer, and no error was reported");
  if (same(bytes.consumer, bytes.consumer_expected)) return from_gathering(bytes);
  if (Diagnosis d = from_an_earlier_transfer(bytes); !d.text.empty()) return d;
  if (Diagnosis d = from_zeros(bytes); !d.text.empty()) return d;
  return from_codes(bytes);
}

}  // namespace kvcts::diagnose
