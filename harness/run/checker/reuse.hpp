// The blocks of a transfer, from the producer's word that they are free until the memory is compared: the next request has
// them at once. So bytes that are read after that word are another request's, and not right by luck.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "case/case.hpp"

namespace kvcts::checker {

class Reuse {
 public:
  /// Whole memory files of the producer, in the order of regions().
  using Files = std::vector<std::span<std::uint8_t>>;
  /// Requests that were given away, by generation, and the word by which.
  using Given = std::map<std::uint32_t, std::string>;

  /// `resolved` must outlive this.
  explicit Reuse(const ResolvedCase& resolved);

  /// Writes the next request's content over that of a request that is transferred (named as connector programs know it:
  /// "r1"; "": of all of them). Blocks that another request still holds are not free.
  void give(int pass, Files files, const std::string& request, const std::string& word);
  /// Puts back what was there. Bytes that something else has written since then stay: they are a changed source.
  void end();
  bool began() const { return !given_.empty(); }
  void forget() { given_.clear(), before_.clear(); }

  const Given& given() const { return given_; }
  std::uint32_t generation() const { return generation_; }  ///< the next request's
  /// The case as if the next request's content had been transferred for those that were given away, `but` one.
  ResolvedCase transferred_late(std::uint32_t but = 0) const;

 private:
  static bool is_free(const Group& group, std::int64_t block, const Given& given);
  void write(const RegionRef& region, std::span<std::uint8_t> file, const Given& earlier) const;

  const ResolvedCase& case_;
  std::uint32_t generation_{1};
  int pass_{0};
  Files files_;
  std::vector<std::vector<std::uint8_t>> before_;
  Given given_;
};

}  // namespace kvcts::checker
