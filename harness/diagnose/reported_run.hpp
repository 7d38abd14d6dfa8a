// A run that was not played here: known by what came where. It is rendered as if it had been played, so that the same search
// names its cause.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "case/scenario.hpp"
#include "diagnose/explain.hpp"

namespace kvcts::scenario {

/// Bytes that are not what they must be.
struct Patch {
  enum class Is : std::uint8_t {
    content,   ///< what must be at `from`
    lies,      ///< what lies at `from`, patched or not
    before,    ///< what was at `from` before the first step
    constant,  ///< `value`, one byte
    changed,   ///< what must be here, exclusive or `value`
  };
  BufferAddress at;
  std::int64_t bytes{0};
  Is is{};
  BufferAddress from{};
  std::vector<std::uint8_t> value{};
};

/// What came of steps as intended, at the end.
struct ReportedRun {
  std::vector<Patch> patches;                               ///< applied in order
  std::map<int, std::map<std::int64_t, std::int64_t>> any;  ///< bytes that do not matter, as in Checkpoint
  bool real{false};  ///< the bytes of pass 0 are those that were found: they alone decide
};

/// Names the cause. Throws std::runtime_error when the steps cannot be played.
Explanation explain(const Scenario& scenario, const AddressSpace& space, const ReportedRun& reported, std::uint64_t seed,
                    std::vector<Claim> claims = {});

}  // namespace kvcts::scenario
