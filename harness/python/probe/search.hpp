// Searches for a cause: the simplest transformation of the correct map, or of its intended content, that predicts
// every byte. Internal to verify().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "python/probe/damage.hpp"
#include "python/probe/rows.hpp"
#include "python/probe/verify.hpp"

namespace kvcts::probe {

class Search {
 public:
  /// Refers to both.
  Search(const Question& question, const Damage& damage);

  Diagnosis run();

 private:
  void nothing_arrived();
  void other_content();
  void other_axes();
  void written_otherwise();
  void read_otherwise();

  bool attempt(FaultClass fault_class, const std::string& words, const layout::Cache& cache,
               const std::vector<kernels::BlockContent>& blocks);
  bool attempt(FaultClass fault_class, const std::string& words, const layout::Cache& cache) {
    return attempt(fault_class, words, cache, blocks_);
  }
  bool attempt_read(FaultClass fault_class, const std::string& words, const layout::Cache& from,
                    const std::vector<Request>& requests);
  void found(FaultClass fault_class, std::string words);
  /// Bytes of the damaged allocations that differ from this content in this cache, excluding open tails.
  std::int64_t wrong_bytes(const layout::Cache& cache, const std::vector<kernels::BlockContent>& blocks) const;
  bool plausible(const layout::Cache& cache, const std::vector<kernels::BlockContent>& blocks) const;
  bool plausible_read(const layout::Cache& from, const std::vector<Request>& requests) const;

  const Question& question_;
  const Damage& damage_;
  std::vector<kernels::BlockContent> blocks_;
  /// A second family is not asked where one has found something; nor are more causes told than these.
  static constexpr std::size_t most_causes = 9;
  bool full() const { return causes_.size() == most_causes; }
  std::vector<Cause> causes_;
};

}  // namespace kvcts::probe
