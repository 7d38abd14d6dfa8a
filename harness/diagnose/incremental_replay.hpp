// Hypotheses about one failure are sequences that differ in a step or two. Everything before the first difference is
// recorded and played once; what follows and does not depend on it is played, but not recorded again.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scene/machine/recorder.hpp"

namespace kvcts::scenario {

using CandidateSteps = std::vector<std::vector<Action>>;  ///< what each step does, in a hypothesis

/// What a sequence did, besides its bytes.
struct ReplayResult {
  SequenceEnding ending;
  std::vector<std::string> checks;
  std::vector<nlohmann::json> visible_events;  ///< visible events: reports, and illegal accesses
  std::int64_t moved{0};                       ///< bytes, as engines count them
  std::size_t first_check{0};                  ///< the checks before it are those of the unchanged sequence
  std::int64_t ops{0};                         ///< number played
};

/// In one pass, from one base sequence.
class IncrementalReplay {
 public:
  /// Called at a check with the bytes there; false: nothing later is needed.
  using OnCheck = std::function<bool(std::size_t check, const Bytes& bytes)>;

  /// `base`: the sequence that hypotheses modify. `until`: leaves out this step's plays and everything after them.
  IncrementalReplay(const Scenario& scenario, const AddressSpace& space, Locators& locators, CandidateSteps base,
                    std::string until, std::uint64_t seed, int pass);

  /// The outcome of the base itself.
  const ReplayResult& unchanged() const { return unchanged_; }
  const std::vector<Bytes>& unchanged_bytes() const { return at_checks_; }
  const CopyProgram& unchanged_program() const { return program_; }
  /// How many ops of that program precede a step; all, if it never happens.
  std::size_t ops_before(const std::string& step) const;
  /// Throws std::runtime_error (std::exception) when bodies request the impossible.
  ReplayResult execute(const CandidateSteps& bodies, const OnCheck& on_check);
  /// The whole sequence on one program, for other passes.
  CopyProgram program(const CandidateSteps& bodies);

 private:
  /// One play of the base.
  struct Segment {
    std::size_t ops_begin{0}, ops_end{0};
    std::size_t buffers_begin{0}, buffers_end{0}, checks_begin{0}, checks_end{0};
    std::int64_t moved{0};
    std::vector<nlohmann::json> visible_events;
    RecorderProgress before, after;
    Bytes bytes;  ///< before it
  };
  /// Plays in order, taking those of unchanged steps from the base. `own` keeps the others.
  std::vector<const StepExecution*> order(const CandidateSteps& bodies, Sequence& own) const;
  Sequence cut(Sequence sequence) const;
  /// Its checks and buffers, up to a play.
  CopyProgram unchanged_until(std::size_t play) const;

  const Scenario& scenario_;
  const AddressSpace& space_;
  Locators& locators_;
  CandidateSteps base_;
  std::string until_;
  std::uint64_t seed_;
  int pass_;
  bool reordered_{false};  ///< the base has steps that execute out of place
  Sequence executions_;
  std::vector<std::size_t> first_;  ///< step -> its first play, if nothing is reordered; plus one entry at the end
  CopyProgram program_;
  std::vector<Segment> segments_;  ///< as far as the base got
  std::vector<Bytes> at_checks_;
  ReplayResult unchanged_;
};

}  // namespace kvcts::scenario
