// Does a tensor hold what it should, and if not, what is it that it holds instead?
//
// One look at the bytes after one transfer, where the suite's own cases have many passes: what is named is named because a
// transformation of the right map predicts every byte; anything less has no class. Elements are told apart by rows of 64
// bits and more of their tags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "case/result.hpp"
#include "python/probe/content.hpp"

namespace kvcts::probe {

/// Where the bytes came from: lets verify() try readings of the producer, too. Its tensors must still hold what they held.
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
  int threads{0};  ///< 0: one a processor
};

/// A wrong byte, with a few that follow it.
struct Wrong {
  std::string allocation;
  std::int64_t offset{0};
  std::string expected, found;  ///< hex
  std::string where;            ///< "K layer 0 block 3 slot 2 head 1 channel 5"
  std::string is;               ///< whose row is there: "K layer 0 token 7 head 0, generation 1", "poison", "" = unknown
};

/// What became of one named block, for drawings.
struct BlockState {
  std::int64_t block{0}, first_token{0}, tokens{0};
  std::uint32_t generation{0};
  bool right{true};
};

struct Report {
  std::int64_t checked_bytes{0}, wrong_bytes{0};
  std::vector<Wrong> first;
  std::vector<BlockState> blocks;
  Diagnosis diagnosis;  ///< empty when nothing is wrong
};

/// Throws layout::Error when the question makes no sense.
Report verify(const Question& question);

}  // namespace kvcts::probe
