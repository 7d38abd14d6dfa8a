// A cache dtype ("scheme"): the data codes of a KV cache and their scales.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "layout/dtype.hpp"

namespace kvcts::layout {

/// Block or row scales: one scale of `dtype` per `group` channels. group 0 = the whole row (one per token and head).
struct ScaleSpec {
  Dtype dtype{Dtype::fp32};
  std::int64_t group{0};
  bool operator==(const ScaleSpec&) const = default;
};

/// e.g. nvfp4 = {e2m1, {e4m3fn, 16}, fp32 per (layer, kv)}; bf16 = {bf16, none, none}.
struct Scheme {
  std::string name;
  Dtype data{Dtype::fp16};
  std::optional<ScaleSpec> scale;
  std::optional<Dtype> global_scale;
  bool operator==(const Scheme&) const = default;
};

}  // namespace kvcts::layout
