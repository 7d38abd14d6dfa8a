// One case's memory and its expected content.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/result.hpp"
#include "process/memory_file.hpp"
#include "run/checker/content.hpp"
#include "run/checker/digests.hpp"
#include "run/checker/reuse.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

class OpenCase {
 public:
  /// Allocates a sealed memory file for every allocation of both sides, and one for the reader's output. `own`: the other
  /// side is on another host, whose checker compares it; here it stays as it was filled.
  explicit OpenCase(ResolvedCase resolved, std::optional<Side> own = std::nullopt);

  nlohmann::json describe() const;       ///< the `files` of the reply to open
  std::vector<int> descriptors() const;  ///< in the same order

  /// Writes poison and tags: the state before the transfer.
  nlohmann::json fill(int pass);
  /// Keeps what the destination holds now, when completion is reported. A later call replaces it: a program's transfer is
  /// over when both sides report it.
  void see();
  /// The producer said that the transfer's blocks are free, and the consumer is still pending: another request has them
  /// until compare().
  /// The blocks of this request, all if "", are the next request's from now on, as the producer's `word` says.
  void reuse(const std::string& request, const std::string& word);
  /// Compares every byte of every file with its expected value, and what was seen with what is there now; diagnoses a
  /// mismatch.
  Report compare(const nlohmann::json& request);
  /// Current bytes of a region: {"hex"}. Throws std::runtime_error if there is no such region or byte.
  nlohmann::json look(const std::string& region, std::int64_t offset, std::int64_t bytes) const;
  /// Whether any byte changed since the last compare.
  LateWrite recheck();

 private:
  struct File {
    RegionRef region;  ///< output: side consumer, group -1
    oracle::FileShape shape;
    process::MemoryFile memory;
    std::span<std::uint8_t> bytes() const { return memory.map.bytes(); }
  };
  struct Wrong {
    std::int64_t bytes{0};
    std::vector<WrongByte> first;
  };

  struct Traced;

  /// A file's bytes or, if the destination is large, a digest of each page.
  struct Seen {
    std::size_t file;
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint64_t> pages;
  };

  struct Differences {
    Wrong source, target, output;
    std::int64_t checked{0};  ///< bytes
  };

  /// Compares every byte of every file; without a transfer the destination must be unchanged.
  Differences differences(bool transferred);
  /// Planned, moved and expected bytes must agree (-1: unknown).
  std::optional<Diagnosis> miscounted(const oracle::Amount& expected, std::int64_t planned, std::int64_t moved) const;
  void compare_producer(std::size_t index, Wrong& wrong);
  void compare_consumer(std::size_t index, const std::vector<std::span<const std::uint8_t>>& producer_files, Wrong& wrong);
  void write_output(const File& file, std::span<std::uint8_t> out, bool expected) const;
  void compare_output(Wrong& wrong);
  /// Compares what was seen when completion was reported with the current bytes: a difference had not arrived.
  Wrong compare_seen() const;
  std::int64_t note_wrong(const File& file, std::span<const std::uint8_t> expected, Wrong& wrong) const;
  std::vector<std::span<const std::uint8_t>> producer_views() const;
  std::unique_ptr<Traced> trace(const Differences& found, const nlohmann::json& events) const;
  std::string lack_of_memory(bool source_changed) const;
  void add_state_of_data(Report& report) const;
  /// If all wrong bytes of the destination are those of the request that was given the producer's blocks.
  std::optional<Diagnosis> name_reuse() const;
  /// What happened and why, of a comparison with wrong bytes or a run that ended early.
  void name_cause(Report& report, const Differences& found, const nlohmann::json& request);
  /// Of right bytes: whether the counts agree, and whether all had arrived when completion was reported.
  void judge_completion(Report& report, const oracle::Amount& amount, const nlohmann::json& request);
  std::optional<std::int64_t> wrong_as(const ResolvedCase& late) const;  ///< bytes, if that explains all of them
  /// Reads every file and stores the digests in found_.
  std::uint64_t digest_all();

  bool compares(Side side) const { return !own_ || *own_ == side; }

  const ResolvedCase case_;
  const std::optional<Side> own_;
  std::unique_ptr<CaseContent> content_;
  Reuse reuse_;
  int pass_{0};
  std::vector<File> files_;  ///< producer, consumer, output
  std::vector<Seen> seen_;
  std::size_t producers_{0}, consumers_{0};
  std::vector<std::uint8_t> scratch_;
  std::uint64_t compared_{0};
  std::vector<std::uint64_t> found_;  ///< digests of files_; where the oracle allows a choice, of what it would have written
  DigestFold digests_;                ///< over all passes
};

}  // namespace kvcts::checker
