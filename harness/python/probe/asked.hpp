// A question about live tensors as a case with two sides: the one diagnosis answers it. Internal to verify().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "case/provenance.hpp"
#include "diagnose/name_cause.hpp"
#include "python/probe/verify.hpp"

namespace kvcts::probe {

/// The consumer is the cache in question. The producer is the source; without one it is a pool of the same layout that has
/// the content. What else could be there, earlier generations and heads of other ranks, lies in memories that nothing reads.
class Asked {
 public:
  /// Refers to the question. `wrong_bytes`: open tails apart.
  Asked(const Question& question, std::int64_t wrong_bytes);
  Asked(const Asked&) = delete;

  Diagnosis diagnosis() const;
  std::vector<Finding> what_happened() const;
  /// What a wrong byte belongs to: "K layer 0 block 3 slot 2 head 1 channel 5", "padding".
  std::string where(int allocation, std::int64_t offset) const;
  /// Whose byte is there; "" = unknown.
  std::string provenance(int allocation, std::int64_t offset) const;

 private:
  void tell_groups();
  void add_earlier(const std::set<std::uint32_t>& generations, std::int64_t longest);
  void add_other_ranks(SideCache& producer);
  void add_producer();
  void add_elsewhere();
  void add_consumer(std::size_t allocation);
  std::vector<std::uint8_t>& image(std::size_t bytes) { return images_.emplace_back(bytes); }

  const Question& question_;
  ResolvedCase truth_;
  bool sent_{false};  ///< from the source
  std::vector<std::vector<std::uint8_t>> images_;
  diagnose::CaseBytes bytes_{truth_};
  std::optional<diagnose::RegionExtents> extents_;  ///< unless there are too many bytes
  std::vector<diagnose::RegionBytes> changed_;      ///< of the source
};

}  // namespace kvcts::probe
