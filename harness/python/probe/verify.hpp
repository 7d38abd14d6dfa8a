// Does a tensor hold what it should? If not, what does it hold instead?
//
// One look at the bytes after one transfer; the suite's own cases have many passes. A cause is named only if one
// transformation of the correct map predicts every byte; anything less has no class. Rows of 64 bits and more of
// their tags identify elements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "case/result.hpp"
#include "python/probe/content.hpp"

namespace kvcts::probe {

/// Where the bytes came from: lets verify() also try misreadings of the producer. Its tensors must be unchanged.
struct Source {
  Subject subject;
  Bound bound;
  Content content;
};

struct Question {
  Subject subject;
  Bound bound;
  Content content;
  bool open_tails{
      true};  ///< slots of a request's last block beyond its tokens may hold anything: transfers move whole blocks
  std::optional<Source> source;
  int threads{0};               ///< 0: one per processor
  std::int64_t model_heads{0};  ///< KV heads of all ranks: names rows of another rank; 0 = unknown
};

/// A wrong byte, with a few that follow it.
struct Wrong {
  std::string allocation;
  std::int64_t offset{0};
  std::string expected, found;  ///< hex
  std::string where;            ///< "K layer 0 block 3 slot 2 head 1 channel 5"
  std::string is;               ///< whose row is there: "K layer 0 token 7 head 0, generation 1", "poison", "" = unknown
};

/// The final state of one named block, for drawings.
struct BlockState {
  std::int64_t block{0}, first_token{0}, tokens{0};
  std::uint32_t generation{0};
  bool right{true};
};

struct Report {
  std::int64_t checked_bytes{0}, wrong_bytes{0};
  std::vector<Wrong> first;
  std::vector<BlockState> blocks;
  Diagnosis diagnosis;                 ///< empty when nothing is wrong
  std::vector<Finding> what_happened;  ///< to rows of data; empty for codes of 4 bits and for more than 2^20 rows
};

/// Throws layout::Error if the question is invalid.
Report verify(const Question& question);

}  // namespace kvcts::probe
