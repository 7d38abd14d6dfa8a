// Searches for a cause: the simplest transformation of the correct map, or of its intended content, that predicts
// every byte. Internal to verify().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "python/probe/rows.hpp"
#include "python/probe/verify.hpp"

namespace kvcts::probe {

class Search {
 public:
  /// `wrong`: allocations with wrong content; `bytes`: number of wrong bytes.
  Search(const Question& question, std::vector<int> wrong, std::int64_t bytes);

  Diagnosis run();
  /// Bytes of the allocations that differ from this content in this cache, excluding open tails.
  static std::int64_t wrong_bytes(const Question& question, const layout::Cache& cache,
                                  const std::vector<kernels::BlockContent>& blocks, const std::vector<int>& allocations);

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
  bool plausible(const layout::Cache& cache, const std::vector<kernels::BlockContent>& blocks) const;

  const Question& question_;
  std::vector<int> wrong_;
  std::int64_t bytes_;
  std::vector<kernels::BlockContent> blocks_;
  /// A second family is not asked where one has found something; nor are more causes told than these.
  static constexpr std::size_t most_causes = 9;
  bool full() const { return causes_.size() == most_causes; }
  std::vector<Cause> causes_;
};

}  // namespace kvcts::probe
