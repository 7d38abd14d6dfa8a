#include "diagnose/arrived.hpp"

#include <algorithm>

#include "diagnose/clues.hpp"
#include "diagnose/facts.hpp"
#include "diagnose/observe.hpp"
#include "scene/machine/recorder.hpp"

namespace kvcts::script {

namespace {

void apply(const Patch& patch, Bytes& bytes, const Bytes& right) {
  std::vector<std::uint8_t> in(static_cast<std::size_t>(patch.bytes));
  switch (patch.is) {
    case Patch::Is::content:
      right.read(patch.from.backing, patch.from.offset, patch.bytes, in.data());
      break;
    case Patch::Is::lies:
      bytes.read(patch.from.backing, patch.from.offset, patch.bytes, in.data());
      break;
    case Patch::Is::before:
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = bytes.fresh(patch.from.backing, patch.from.offset + static_cast<std::int64_t>(i));
      break;
    case Patch::Is::constant:
      std::ranges::fill(in, patch.value.at(0));
      break;
    case Patch::Is::changed:
      right.read(patch.at.backing, patch.at.offset, patch.bytes, in.data());
      for (std::size_t i = 0; i < in.size(); ++i) in[i] ^= patch.value.at(i);
      break;
  }
  bytes.write(patch.at.backing, patch.at.offset, patch.bytes, in.data());
}

}  // namespace

Explanation explain(const Script& script, const Arena& arena, const Arrived& arrived, std::uint64_t seed,
                    const Elsewhere* elsewhere) {
  Names names;
  Truth truth = paint(script, arena, names);
  truth.checks.back().any = arrived.any;
  Expectation expectation(truth, arena, names, seed);
  const Tape tape = record(script, arena, actual_sequence(script));
  Observation seen = observe(tape, seed, naming_passes);
  seen.counted = false;
  for (auto& checks : seen.bytes) {
    const Bytes right = checks.back();
    for (const Patch& patch : arrived.patches) apply(patch, checks.back(), right);
  }
  const Mismatch mismatch = compare(seen, truth, expectation, arena);
  if (!mismatch.any()) return {};
  Clues clues = find_clues(seen, mismatch, truth, expectation, arena, names, seed);
  if (clues.unknown > 0 && name_declared(script, names))
    clues = find_clues(seen, mismatch, truth, expectation, arena, names, seed);
  if (clues.unknown > 0) return {};  // no step moves content that nothing had
  return explain({script, arena, truth, seen, mismatch, clues, expectation, names, seed, elsewhere, true});
}

}  // namespace kvcts::script
