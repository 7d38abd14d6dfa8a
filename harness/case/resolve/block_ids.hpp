// The block lists of requests that name none.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace kvcts {

/// Block ids of one side's pool in the order in which requests take them. By the rule of the case (block_id_rules):
///   shuffled   block 0 in use, neither contiguous nor monotonic (default)
///   identity   ascending from 0;  reversed: descending from the last one
///   gather     contiguous on the consumer's side only;  scatter: on the producer's only
///   gaps       ascending, every second one: even ids here, odd ids there
///   edges      from both ends: the last, the first, the last but one here; the first, the last there
/// Lists a pool of ordinary size completely; from a larger one, draws only the needed ids. Throws CaseError.
class BlockIds {
 public:
  BlockIds(const std::string& rule, bool producer, std::int64_t blocks, std::uint64_t seed, std::set<std::int64_t> taken);
  std::vector<std::int64_t> take(std::int64_t count, const char* side);
  std::int64_t left() const { return blocks_ - static_cast<std::int64_t>(taken_.size()) - given_; }

 private:
  void list();
  std::int64_t ordered(std::int64_t place) const;
  std::uint64_t draw();
  std::int64_t next();

  std::string rule_;
  bool producer_, shuffled_;
  std::int64_t blocks_;
  std::uint64_t state_;
  std::set<std::int64_t> taken_, drawn_;
  std::vector<std::int64_t> free_;
  std::int64_t given_{0}, cursor_{0};
};

}  // namespace kvcts
