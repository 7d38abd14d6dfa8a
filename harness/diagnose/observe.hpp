// What a run showed: the bytes at every check in every pass, the ending and the reports; and where they differ from what
// they must be.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scene/machine/copy_program.hpp"
#include "scene/truth/truth.hpp"

namespace kvcts::scenario {

struct Observation {
  SequenceEnding ending;
  std::vector<nlohmann::json> events;
  bool counted{true};                     ///< events say how many bytes moved
  std::vector<std::string> checks;        ///< names of the checks reached; "" = the end
  std::vector<std::vector<Bytes>> bytes;  ///< [pass][check]
};

/// Plays a program in passes [0, passes).
Observation observe(const CopyProgram& program, std::uint64_t seed, int passes, const CopyExecutor& executor = {});
/// Adds passes up to `passes`.
void observe_more(Observation& observation, const CopyProgram& program, std::uint64_t seed, int passes,
                  const CopyExecutor& executor = {});

/// What every byte must be, rendered pass by pass.
class Expectation {
 public:
  Expectation(const Truth& truth, const AddressSpace& space, const SymbolTable& symbols, std::uint64_t seed)
      : truth_(truth), space_(space), symbols_(symbols), seed_(seed) {}

  /// The truth's checkpoint for a check of the run; nullptr: the truth never reaches it.
  const Checkpoint* at(const std::string& check) const;
  /// Bytes of a dense buffer, guards included.
  const std::vector<std::uint8_t>& dense(const Checkpoint& check, int buffer, int pass);
  /// One page of a sparse buffer (`number` = offset / 4096); unwritten bytes are its poison.
  std::vector<std::uint8_t> page(const Checkpoint& check, int buffer, std::int64_t number, int pass);
  SymbolId id(const Checkpoint& check, int buffer, std::int64_t offset, SymbolTable& symbols) const;

 private:
  Rendering& rendering(int pass);
  const Bytes& fresh(int pass);
  const Truth& truth_;
  const AddressSpace& space_;
  const SymbolTable& symbols_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<Rendering>> renderings_;
  std::vector<std::unique_ptr<Bytes>> fresh_;
  std::map<std::tuple<const Checkpoint*, int, int>, std::vector<std::uint8_t>> done_;
};

/// Whether a byte is compared at a check.
bool matters(const Checkpoint& check, int buffer, std::int64_t offset);

/// Wrong bytes of one buffer at one check, in any pass.
struct WrongRange {
  std::size_t check{0};  ///< index into Observation::checks
  int buffer{0};
  std::int64_t begin{0}, end{0};
};
struct Mismatch {
  std::vector<WrongRange> ranges;  ///< ascending
  std::int64_t wrong_bytes{0};     ///< at the check with the most wrong bytes
  std::int64_t checked_bytes{0};
  bool ending_differs{false};
  bool reports_differ{false};  ///< completions, hits and misses
  bool any() const { return wrong_bytes > 0 || ending_differs || reports_differ; }
};
/// `decided`: the comparison of the deciding passes; where it finds a buffer correct at a check, the other passes are not
/// examined.
Mismatch compare(const Observation& observation, const Truth& truth, Expectation& expectation, const AddressSpace& space,
                 const Mismatch* decided = nullptr);

/// The events that count as reports: completions, failures, hits and misses.
std::vector<nlohmann::json> reports(const std::vector<nlohmann::json>& events);

}  // namespace kvcts::scenario
