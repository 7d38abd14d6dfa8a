// A cache that arrived correctly and was gathered wrongly: reruns the reader here, with one wrong belief at a time.
#include <algorithm>

#include "diagnose/at_sight.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/reader/flashinfer_decode.hpp"

namespace kvcts::diagnose {

namespace {

/// What the reader gathers from these caches; empty if it would never end, or never start.
std::vector<std::uint8_t> gathered(const CaseBytes& bytes, const ResolvedCase& believed) {
  const auto targets = regions(bytes.truth, Side::consumer);
  std::vector<std::vector<std::uint8_t>> copies;
  std::vector<std::span<std::uint8_t>> caches;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto shape = oracle::file_shape(bytes.truth, targets[i].bytes);
    const auto part = bytes.consumer[i].subspan(static_cast<std::size_t>(shape.base), static_cast<std::size_t>(shape.bytes));
    copies.emplace_back(part.begin(), part.end());
  }
  for (auto& copy : copies) caches.emplace_back(copy);
  std::vector<std::uint8_t> out(bytes.output_before.begin(), bytes.output_before.end());
  const auto shape = oracle::file_shape(bytes.truth, reader::output_bytes(bytes.truth));
  const auto reader = reader::make_reader(believed.reader);
  reader->run(believed, caches,
              std::span(out).subspan(static_cast<std::size_t>(shape.base), static_cast<std::size_t>(shape.bytes)),
              process::Progress());
  return out;
}

const layout::TensorView* data_tensor(const ResolvedCase& c) {
  for (const auto& tensor : c.groups.at(0).consumer.ranks.at(0).claim.tensors) {
    if (tensor.component == layout::Component::data && tensor.dims.size() >= 4) return &tensor;
  }
  return nullptr;
}

reader::DecodePlan plan_under(const ResolvedCase& c, const layout::TensorView& tensor, const std::string& label) {
  const auto& group = c.groups.at(0);
  const auto view = reader::view_under_label(tensor, label);
  std::vector<Request> moved;
  for (const auto& r : group.requests) {
    if (r.transfer) moved.push_back(r);
  }
  return reader::plan_decode(moved, group.consumer.ranks.at(0).geometry.block_size, view.page_size,
                             c.reader.options.value("variant", "cuda-core"), c.reader.options.value("tile_tokens", 128u));
}

std::string other(const std::string& label) { return label == "NHD" ? "HND" : "NHD"; }

struct Belief {
  FaultClass fault_class;
  std::string words;
  ResolvedCase believed;
};

/// `ends`: a reader under the other label ends.
std::vector<Belief> beliefs_about(const ResolvedCase& c, const std::string& label, bool ends) {
  std::vector<Belief> beliefs;
  ResolvedCase reported = c;
  std::erase_if(reported.groups[0].requests, [](const Request& r) { return !r.transfer; });  // as the worker sees it
  if (ends) {
    beliefs.push_back(
        {FaultClass::axis_permuted, "the reader took the cache for " + other(label) + ", it is " + label, reported});
    beliefs.back().believed.reader.options["label"] = other(label);
  }
  const auto with_ids = [&](const std::string& words, auto&& change) {
    beliefs.push_back({FaultClass::wrong_block_id, words, reported});
    for (auto& r : beliefs.back().believed.groups[0].requests) change(r);
  };
  const std::int64_t pool = c.groups[0].consumer.ranks.at(0).geometry.blocks;
  with_ids("the reader walked the block table from its end", [](Request& r) { std::ranges::reverse(r.consumer_blocks); });
  with_ids("the reader sorted the block table", [](Request& r) { std::ranges::sort(r.consumer_blocks); });
  with_ids("the reader used the producer's block table", [&](Request& r) {
    const bool fit = std::ranges::all_of(r.producer_blocks, [&](auto id) { return id < pool; });
    if (fit && r.producer_blocks.size() == r.consumer_blocks.size()) r.consumer_blocks = r.producer_blocks;
  });
  with_ids("the reader took the first block and those that follow it", [&](Request& r) {
    for (std::size_t i = 1; i < r.consumer_blocks.size(); ++i)
      r.consumer_blocks[i] = (r.consumer_blocks[0] + static_cast<std::int64_t>(i)) % pool;
  });
  return beliefs;
}

}  // namespace

Diagnosis from_gathering(const CaseBytes& bytes) {
  const auto& c = bytes.truth;
  if (c.reader.kind != "flashinfer-decode" || c.groups.empty() || data_tensor(c) == nullptr) return {};
  const std::string label = c.reader.options.value("label", "");
  const auto plan = plan_under(c, *data_tensor(c), other(label));
  // A reader that never ended reports the numbers it started with.
  for (const auto& event : bytes.events) {
    if (!event.is_object() || !event.contains("hang")) continue;
    const std::string note = event["hang"].value("note", "");
    if (!plan.runaway().empty() && note.find(plan.text()) != std::string::npos) {
      return {FaultClass::axis_permuted,
              true,
              "the reader took the cache for " + other(label) + ", it is " + label + ": " + plan.text(),
              std::string(advice(FaultClass::axis_permuted)),
              {}};
    }
  }
  if (bytes.output.empty() ||
      std::equal(bytes.output.begin(), bytes.output.end(), bytes.output_expected.begin(), bytes.output_expected.end()))
    return {};
  std::vector<Cause> found;
  for (const auto& belief : beliefs_about(c, label, plan.runaway().empty())) {
    try {
      const auto out = gathered(bytes, belief.believed);
      if (!std::equal(out.begin(), out.end(), bytes.output.begin(), bytes.output.end())) continue;
    } catch (const std::exception&) {
      continue;  // such a reader could not have started
    }
    const bool competing = !found.empty() && belief.fault_class != found.front().fault_class;
    found.push_back({belief.fault_class, belief.words, 1, competing});
  }
  return found.empty() ? Diagnosis{} : named(std::move(found), "explains every byte that was gathered");
}

}  // namespace kvcts::diagnose
