#include "connector/contract.hpp"

#include <sstream>

#include "connector/planner.hpp"

namespace kvcts::connector {

namespace {

std::string shape_text(const layout::TensorView& tensor) {
  std::string out = "(";
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) out += (i ? ", " : "") + std::to_string(tensor.dims[i].extent);
  return out + ")";
}

}  // namespace

Contract::Contract(const nlohmann::json& options) : error_(options.value("error", "ValueError")) {
  unpack_ = options.at("unpack").get<std::vector<std::string>>();
  std::istringstream words(options.at("reading").get<std::string>());
  for (std::string word; words >> word;) reading_.push_back(word);
  if (reading_.size() != unpack_.size()) {
    throw std::runtime_error("contract: `reading` names " + std::to_string(reading_.size()) + " dims but `unpack` names " +
                             std::to_string(unpack_.size()) + "; give one group of letters (L K B N H C) for each name");
  }
}

void Contract::register_caches(const ResolvedCase& view, Side side) {
  for (const auto& group : view.groups) {
    for (const auto& rank : (side == Side::producer ? group.producer : group.consumer).ranks) {
      for (const auto& tensor : rank.claim.tensors) {
        const auto got = tensor.dims.size(), want = unpack_.size();
        if (got == want) continue;
        std::string names;
        for (const auto& n : unpack_) names += (names.empty() ? "" : ", ") + n;
        const std::string counts = "expected " + std::to_string(want) + ", got " + std::to_string(got) + ")";
        throw Raised(error_, (got < want ? "not enough values to unpack (" : "too many values to unpack (") + counts +
                                 " in `" + names + " = " + tensor.name + ".shape`; the " + std::string(name(side)) +
                                 "'s tensor is " + shape_text(tensor));
      }
    }
  }
}

std::vector<Contract::Believed> Contract::believe(const ResolvedCase& view, Side side) const {
  std::vector<Believed> out;
  int region = 0;
  for (const auto& group : view.groups) {
    const auto& caches = side == Side::producer ? group.producer : group.consumer;
    for (const auto& rank : caches.ranks) {
      for (const auto& tensor : rank.claim.tensors) {
        Believed b;
        b.region = region + tensor.allocation;
        b.offset = tensor.offset;
        std::int64_t stride = layout::bits(tensor.dtype) == 4 ? 1 : layout::bits(tensor.dtype) / 8;
        b.block_bytes = stride;
        for (std::size_t i = tensor.dims.size(); i-- > 0;) {
          // The code under test computes packed strides from the shape and ignores the tensor's own strides.
          const std::int64_t extent = tensor.dims[i].extent;
          if (reading_[i] == "K") b.kv = extent, b.kv_stride = stride;
          if (reading_[i] == "B") b.block_stride = stride;
          if (reading_[i] != "K" && reading_[i] != "B") b.block_bytes *= extent;
          stride *= extent;
        }
        out.push_back(b);
      }
      region += static_cast<int>(rank.claim.allocations.size());
    }
  }
  return out;
}

Plan Contract::plan(const ResolvedCase& view, process::Progress progress) {
  const auto sources = believe(view, Side::producer), targets = believe(view, Side::consumer);
  if (sources.size() != targets.size()) {
    throw Refusal("producer has " + std::to_string(sources.size()) + " tensors, consumer " + std::to_string(targets.size()) +
                  "; connector " + view.connector.name + " pairs them one to one");
  }
  Plan plan;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto &s = sources[i], &t = targets[i];
    if (s.block_bytes != t.block_bytes || s.kv != t.kv) {
      throw Refusal("tensor " + std::to_string(i) + ": producer block of " + std::to_string(s.block_bytes) +
                    " bytes, consumer block of " + std::to_string(t.block_bytes) + "; connector " + view.connector.name +
                    " moves whole blocks");
    }
    for (const auto& group : view.groups) {
      for (const auto& request : group.requests) {
        const auto pairs = std::min(request.producer_blocks.size(), request.consumer_blocks.size());
        for (std::size_t b = 0; b < pairs; ++b) {
          for (std::int64_t kv = 0; kv < s.kv; ++kv) {
            plan.copies.push_back({s.region, s.offset + kv * s.kv_stride + request.producer_blocks[b] * s.block_stride,
                                   t.region, t.offset + kv * t.kv_stride + request.consumer_blocks[b] * t.block_stride,
                                   s.block_bytes});
          }
        }
      }
    }
    progress.set(i + 1, sources.size());
  }
  join(plan.copies);
  plan.note = "whole blocks, as the contract reads the shape";
  return plan;
}

}  // namespace kvcts::connector
