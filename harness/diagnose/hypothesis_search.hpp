// Makes and tries hypotheses. Internal to the diagnosis.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "case/outcome.hpp"
#include "diagnose/explain.hpp"
#include "diagnose/incremental_replay.hpp"
#include "diagnose/observed_moves.hpp"
#include "diagnose/symbolic_replay.hpp"
#include "scene/faults/variants.hpp"
#include "scene/machine/locator.hpp"

namespace kvcts::scenario {

struct Hypothesis {
  FaultClass fault_class{};
  std::string words;
  CandidateSteps bodies;
  double cost{0};  ///< how unlikely it is a priori; of two that fit the cheaper one is the cause
};

struct HypothesisGenerator;

/// What all searches about one observation cost, in nanoseconds of a core at fixed prices. Not the clock: a case gets the
/// same search on every machine.
class Work {
 public:
  bool over() const { return done_ >= most; }
  void add_execution(std::int64_t ops, std::int64_t compared_bytes) { done_ += 84 * ops + compared_bytes * 5 / 4; }
  void add_base(std::int64_t ops) { done_ += 3'500 * ops; }
  void add_observed_moves(std::size_t count) { done_ += 1'000 * static_cast<std::int64_t>(count); }
  void add_probe() { done_ += 28'000; }

 private:
  static constexpr std::int64_t most = 2'500'000'000;
  std::int64_t done_{0};
};

class HypothesisSearch {
 public:
  explicit HypothesisSearch(SearchEvidence& evidence);
  /// A step of which a piece is wrong: `right` is done first, and right.
  struct Piece {
    std::size_t step{0};
    std::vector<Action> right;
  };
  /// A search for what is wrong with that piece: `evidence.intended` has it in place of the step, and nothing else changes.
  HypothesisSearch(SearchEvidence& evidence, const HypothesisSearch& first, Piece piece);

  const Scenario& scenario() const { return evidence_.intended; }
  const SearchEvidence& evidence() const { return evidence_; }
  const Attributions& attributions() const { return evidence_.attributions; }
  const ElementIndex& element_index();
  /// What the bytes say about a step; see observed_moves.hpp.
  const std::vector<ObservedMove>& observed_moves(std::size_t step);
  /// A sample of them, as places.
  const std::vector<ByteMove>& byte_moves(std::size_t step);
  /// The share of a step's facts that a version of it would produce: of all, of those where this step writes, and of those
  /// that it reads (several steps may share a memory). Also 0 when that is unknown.
  struct Agreement {
    double all{0}, taken{0}, sent{0};
    double best() const { return std::max({all, taken, sent}); }
    bool better_than(const Agreement& o) const { return all > o.all || taken > o.taken || sent > o.sent; }
  };
  Agreement agreement(std::size_t step, const Action& body);
  Locators& locators() { return common_->locators; }
  /// Names of all bytes before a step, if everything runs as written.
  const std::vector<SymbolImage>& images_before(std::size_t step);
  Symbol name_before(std::size_t step, int buffer, std::int64_t offset);
  CandidateSteps bodies() const { return base_; }
  /// With the right part of a step of which a piece is examined.
  CandidateSteps whole(CandidateSteps bodies) const;
  const Action& action(std::size_t step) const { return scenario().steps[step].intended; }
  /// A request with everything that earlier steps assigned to it; empty when no such request exists.
  std::optional<ScenarioRequest> request_at(std::size_t step, const std::string& name) const;
  /// Block tables that a request had in a memory before its table at a step, oldest first.
  std::vector<std::vector<std::int64_t>> older_tables(std::size_t step, const std::string& name,
                                                      const std::string& memory) const;
  /// Whether a step could have caused the failure, judged before any trial: it moves, writes or reads.
  bool moves(std::size_t step) const;

  /// Tries one; true when it predicts everything. Keeps exact ones, and the best of the others.
  bool attempt(FaultClass fault_class, const std::string& words, CandidateSteps bodies);
  /// One step with another body.
  bool attempt(FaultClass fault_class, const std::string& words, std::size_t step, const Action& body);
  /// Without these steps.
  bool attempt_without(FaultClass fault_class, const std::string& words, const std::set<std::size_t>& steps);

  /// What predicts every byte of the first pass does so in the others.
  bool in_every_pass(const CandidateSteps& bodies);
  /// The sequence ended where it should not have, and nothing else is wrong: everything before is as intended.
  bool as_it_ended();
  /// The intended steps, done to the letter, produce all of it: the steps themselves are wrong.
  bool as_it_stands();

  /// Lets a generator generate.
  void ask(const HypothesisGenerator& generator);
  /// Until the next generator: proposals cost this much more than others of the generator.
  void penalty(double by) { penalty_ = by; }
  /// The generator that proposes has found one that fits.
  bool found() const { return exact_.size() > begun_; }
  const std::vector<Hypothesis>& exact() const { return exact_; }
  /// Whether it is known how many bytes moved.
  bool counted() const { return counted_; }
  /// They predict every byte, but not how many moved: the first of each class.
  const std::vector<Hypothesis>& uncounted() const { return uncounted_; }
  /// Some generator had more to generate than could be tried.
  bool cut() const { return cut_; }
  std::int64_t tried() const { return tried_; }
  /// This search, or all about this observation, has done enough.
  bool spent() const { return work_ >= limit_ || common_->work.over(); }
  /// At least this much from here on, unless it is limited already.
  void allow(std::int64_t more) { limit_ = limited_ ? limit_ : std::max(limit_, work_ + more); }
  /// No more than this from here on, whatever is allowed later.
  void allow_only(std::int64_t more) { limit_ = std::min(limit_, work_ + more), limited_ = true; }
  /// No generator can generate any more.
  bool exhausted() const { return (limited_ && work_ >= limit_) || common_->work.over(); }
  /// Of all searches about this observation.
  Work& work() { return common_->work; }
  /// Explains part of the failure.
  struct Partial {
    double share{0};         ///< of the wrong bytes
    double rank{0};          ///< higher if it also says where bytes came from
    std::uint64_t bytes{0};  ///< hash of its prediction
    Hypothesis hypothesis;
    bool all_bytes{false};  ///< only how it ended, or what was reported, differs
  };
  /// The best few, best first: no two predict the same bytes.
  const std::vector<Partial>& partial() const { return partial_; }
  /// Of one step: changes that produce all of its facts, in order of proposal, one per class.
  const std::vector<Hypothesis>& local(std::size_t step) const { return locals_[step]; }

 private:
  bool attempt(FaultClass fault_class, const std::string& words, CandidateSteps bodies, double agreement);
  void remember(Partial partial);
  bool is_vast(const CandidateSteps& bodies);
  std::optional<double> most_meant_;  ///< elements of a block, over the views of all steps
  /// A few elements of a changed step: how many of them lie where it would have moved them. None are asked where that says
  /// nothing.
  struct Probed {
    int asked{0}, agree{0};
  };
  Probed probe(std::size_t step, const std::vector<Action>& bodies);
  /// First and last wrong byte of data.
  std::pair<const Attribution*, const Attribution*> wrong_ends();
  /// A part of a step on the elements of those ends, whose generations it adds; none: it cannot be probed.
  std::optional<Action> ends_of(std::size_t step, Action part, std::set<std::uint32_t>& generations);
  using MovedSymbols = std::map<std::pair<int, std::int64_t>, Symbol>;
  /// What every nth op of a program moves; none: through a copy.
  std::optional<MovedSymbols> moved_by(const CopyProgram& program, std::size_t stride, const Checkpoint& check);
  Symbol expected(const Checkpoint& check, int buffer, std::int64_t offset);
  Symbol found_at(int buffer, std::int64_t offset, const Symbol& otherwise);
  /// What the sources and destinations of a step hold in the end is what it found and left there.
  bool settled(std::size_t step, const Action& body) const;
  bool plausible(std::size_t step, const Action& body);
  /// Some element is not where it would be.
  bool refuted(const CandidateSteps& bodies);
  double judge(const CandidateSteps& bodies, bool& all, bool& counts);
  std::uint64_t predicted_{0};  ///< by the last one judged: hash of its bytes
  bool all_bytes_{false};       ///< by the last one judged
  /// Bytes that matter and differ from the observation at a check in a pass.
  std::int64_t differing(const Bytes& bytes, int pass, std::size_t check, int buffer) const;
  /// Shared by all searches about one observation.
  struct Common {
    explicit Common(const AddressSpace& space) : locators(space) {}
    Locators locators;
    std::vector<Bytes> begin;  ///< in each pass, before the first step
    Work work;
  };
  HypothesisSearch(SearchEvidence& evidence, const Scenario& asked, bool ending_given, std::shared_ptr<Common> common,
                   std::optional<Piece> piece);
  /// Calls f(offset) for bytes that matter and differ from the observation; false: stop.
  template <class F>
  void each_difference(const Bytes& bytes, int pass, std::size_t check, int buffer, F&& f) const;
  const Bytes& begin(int pass);

  SearchEvidence& evidence_;
  const Scenario& asked_;  ///< the intended sequence
  std::optional<Piece> piece_;
  bool ending_given_{false};
  std::shared_ptr<Common> common_;
  CandidateSteps base_;
  IncrementalReplay replay_;                            ///< of the first pass
  std::vector<std::vector<std::int64_t>> base_misses_;  ///< check, buffer -> bytes that the base gets wrong
  std::int64_t all_base_misses_{0};
  nlohmann::json outcome_;  ///< the observed one
  std::int64_t moved_{0};   ///< bytes, as engines counted them
  bool counted_{true};
  std::vector<ObservedMove> observe_step(std::size_t step);
  std::optional<ElementIndex> element_index_;
  std::vector<std::optional<std::vector<ObservedMove>>> observed_moves_;
  std::vector<std::optional<std::vector<SymbolImage>>> images_;
  std::vector<std::optional<std::vector<ByteMove>>> byte_moves_;
  std::unordered_map<std::int64_t, std::size_t> attribution_at_;  ///< buffer and offset -> index of the attribution
  std::optional<std::pair<const Attribution*, const Attribution*>> wrong_ends_;
  std::vector<Hypothesis> exact_;
  std::size_t begun_{0};  ///< of them, found by earlier generators
  const HypothesisGenerator* asking_{nullptr};
  double cost_{0}, penalty_{0};
  std::vector<Partial> partial_;
  std::vector<std::vector<Hypothesis>> locals_;  ///< by step
  std::vector<Hypothesis> uncounted_;
  bool cut_{false};
  std::int64_t tried_{0}, refuted_{0};
  bool limited_{false};
  std::int64_t work_{0}, limit_{4000};  ///< in hypotheses of a small case; larger ones count several times
};

/// One generator of hypotheses: proposes to the search, simplest first.
struct HypothesisGenerator {
  std::string name;
  double cost{0};  ///< of its proposals, but for what they add
  std::function<void(HypothesisSearch&)> generate;
  std::vector<FaultClass> classes{};  ///< of its proposals; {} = those of the other generators
  bool of_pieces{false};              ///< searches of its own, by the other generators
};
/// What costs this much more than the cause is no rival of it.
inline constexpr double tie_margin = 0.8;
/// Ascending by cost. precedence.cpp
const std::vector<HypothesisGenerator>& generators();

// ---- generators (hypotheses/*.cpp) ----------------------------------------------------------------------------------

void generate_skips(HypothesisSearch& search);            ///< a step, or a group of steps, never happened
void generate_subsets(HypothesisSearch& search);          ///< a part of a step never happened
void generate_claims(HypothesisSearch& search);           ///< what was claimed of memories, and the other side's layout
void generate_options(HypothesisSearch& search);          ///< scales, decode, splits, direction, requirements, registration
void generate_keys(HypothesisSearch& search);             ///< stores: fields of keys that are left out
void generate_orders(HypothesisSearch& search);           ///< a step happened at another time
void generate_orders_together(HypothesisSearch& search);  ///< several steps happened at another time
void generate_tables_together(HypothesisSearch& search);  ///< each request of a batch uses another's table
void generate_lists(HypothesisSearch& search);            ///< block ids, layers, heads, kv, tokens that went elsewhere
void generate_unexpected(HypothesisSearch& search);       ///< an extra write, or one that reached further
void generate_shown_lists(HypothesisSearch& search);      ///< block ids, whatever the bytes show
void generate_memories(HypothesisSearch& search);         ///< another memory, another request, another generation
void generate_arithmetic(HypothesisSearch& search);       ///< 32-bit addresses, alignment
void generate_offsets(HypothesisSearch& search);          ///< a base that is off
void generate_layouts(HypothesisSearch& search);          ///< axes, blocks, strides, sizes: simple changes of a layout
void generate_scales(HypothesisSearch& search);           ///< scales elsewhere
void generate_far_layouts(HypothesisSearch& search);      ///< any order of axes
void generate_raw(HypothesisSearch& search);              ///< raw copies and fills: other lengths, offsets, steps
void generate_everywhere(HypothesisSearch& search);       ///< one belief about a memory in all steps
void generate_fits(HypothesisSearch& search);             ///< one linear map, read off the bytes
void generate_lengths(HypothesisSearch& search);          ///< more or fewer tokens than there are
void generate_copies(HypothesisSearch& search);           ///< a transfer as a list of copies: other lengths, joined, cut
void generate_transfer_list(HypothesisSearch& search);    ///< all moves as one list of pieces
void generate_first_pieces(HypothesisSearch& search);     ///< the list ends early
void generate_narrow_offsets(HypothesisSearch& search);   ///< of that list, at the destination
void generate_shift(HypothesisSearch& search);            ///< all is read, or written, some bytes off
void generate_steps(HypothesisSearch& search);       ///< the step of an axis halved or doubled, wherever bytes are moved
void generate_order(HypothesisSearch& search);       ///< another order of axes, wherever bytes are moved
void generate_other_rank(HypothesisSearch& search);  ///< all goes to the next rank's memory
void generate_pieces_of_others(HypothesisSearch& search);  ///< pieces that hold another's bytes, whatever they are
void generate_one_by_one(HypothesisSearch& search);        ///< blocks of two sizes, by their numbers
void generate_slabs(HypothesisSearch& search);             ///< dim 0 of the tensor taken for the blocks
void generate_tables(HypothesisSearch& search);            ///< ids of another unit, or of another time
void generate_extra(HypothesisSearch& search);             ///< a step, or a load, where nothing was meant
void generate_beside(HypothesisSearch& search);            ///< one id that is a small number beside the pool: -1
void generate_beyond(HypothesisSearch& search);            ///< ids beyond the pool, before or after it
void generate_pieces(HypothesisSearch& search);            ///< any of these, in a piece of a step only
void generate_plain_pieces(HypothesisSearch& search);      ///< the plainest of these, in the piece that is wrong
void generate_registered(HypothesisSearch& search);        ///< several registrations: a limit, a side, bases exchanged
void generate_stores(HypothesisSearch& search);            ///< several contents under one key, and who wins
void generate_ways_out(HypothesisSearch& search);          ///< where the elements of a step went
void generate_parts(HypothesisSearch& search);             ///< a layer, K or V, a head or a destination of a step differs
void generate_part_by_part(HypothesisSearch& search);      ///< regions paired by index, a table for each part
void generate_some_beliefs(HypothesisSearch& search);      ///< one belief about a memory in some steps
void generate_together(HypothesisSearch& search);          ///< one mistake in several steps, each with its own numbers
void generate_alike(HypothesisSearch& search);             ///< the same, of what was found of each since

}  // namespace kvcts::scenario
