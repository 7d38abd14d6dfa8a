// One side of a pair as a person or an engine describes it.
//
//   vllm-0.33.0:flash_attn:LBHNC:bf16:tp2     SYSTEM-VERSION:BACKEND, then in any order: a layout setting of the backend, a
//   dtype, tpN (ranks),
//                                             bsN (tokens of a block)
//   vllm-fa-nhd:fp8:tp2                       a layout or backend of the catalogue
//   side.json                                 {"backend": "vllm-0.33.0:flash_attn", "layout": "LBHNC", "dtype": "bf16",
//   "tp": 2,
//                                             "block_size": 16}, or instead of backend and layout {"shape": [...],
//                                             "strides": [...]} in elements with what is known of blocks, block_size, heads,
//                                             head_dim
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "case/catalogue/catalogue.hpp"

namespace kvcts::compat {

/// What was asked makes no sense: unknown names, words, keys.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// It fits several layouts: which, and what to declare.
struct Ambiguous : std::runtime_error {
  Ambiguous(const std::string& text, std::vector<std::string> names) : std::runtime_error(text), choices(std::move(names)) {}
  std::vector<std::string> choices;
};

struct Description {
  std::string written;                ///< as the user wrote it
  std::string system;                 ///< "vLLM"; "" for a layout of the catalogue
  std::string backend;                ///< catalogue id; "" = none: no limits of arch and dtype are known
  std::string layout;                 ///< catalogue id
  std::string dtype;                  ///< catalogue id; "" = not said
  std::int64_t tp{1}, block_size{0};  ///< 0 = not said
  std::string note;                   ///< what was assumed
};

/// Throws Error, Ambiguous.
Description describe(const std::string& text, const catalogue::Catalogue& catalogue);

/// Is `version` one of "0.8.5..0.22.1, 0.25.1"? An empty list has every version.
bool in_versions(const std::string& version, const std::string& list);

}  // namespace kvcts::compat
