// Identifies rows of tags by their first codes. Internal to verify().
#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "python/probe/verify.hpp"

namespace kvcts::probe {

/// A row of channels, by content.
struct RowName {
  std::int64_t layer{0}, kv{0}, token{0}, head{0};
  std::uint32_t generation{0};
  bool operator==(const RowName&) const = default;
};
std::string words(const RowName& row);

class Rows {
 public:
  explicit Rows(const Question& question);

  /// The row's data codes as the layout stores them; nullopt if the layout has no such row.
  std::optional<RowName> at(const layout::Coord& row) const;
  /// From now on only rows that hold what this one holds are learnt: of many rows, few are asked for.
  void want(const layout::Coord& row);
  /// From now on every token of this layer, kv and head is recognised.
  void know_tokens(std::int64_t layer, std::int64_t kv, std::int64_t head);
  /// Every layer, kv and head of these tokens.
  void know_axes(const std::set<std::int64_t>& tokens);

  /// Every row of the declared requests, here and at the source, and of the generation before each. False: too many.
  bool know_declared();

  std::int64_t layers_begin() const { return box_.lo[layout::Axis::layer]; }
  const layout::Box& box() const { return box_; }
  /// The expected content of token places, by block and slot.
  const std::vector<kernels::BlockContent>& blocks() const { return blocks_; }

 private:
  void know(const RowName& row);
  std::optional<std::uint64_t> fingerprint(const layout::Coord& row) const;

  const Question& question_;
  std::vector<kernels::BlockContent> blocks_;
  layout::Dtype dtype_;
  std::int64_t channels_{0};                  ///< channels in a fingerprint
  layout::Box box_;                           ///< of all data planes
  std::int64_t first_head_{0}, end_head_{0};  ///< of the rows that may be here: another rank's, too
  std::set<std::uint32_t> generations_;
  std::int64_t most_tokens_{0};
  std::unordered_map<std::uint64_t, RowName> known_;
  std::unordered_set<std::uint64_t> wanted_;  ///< empty: all
  std::vector<std::uint8_t> codes_;
};

}  // namespace kvcts::probe
