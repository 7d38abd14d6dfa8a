#include "diagnose/reported_run.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "diagnose/attributions.hpp"
#include "diagnose/observe.hpp"
#include "scene/machine/recorder.hpp"

namespace kvcts::scenario {

namespace {

void apply(const Patch& patch, Bytes& bytes, const Bytes& right) {
  std::vector<std::uint8_t> in(static_cast<std::size_t>(patch.bytes));
  switch (patch.is) {
    case Patch::Is::content:
      right.read(patch.from.buffer, patch.from.offset, patch.bytes, in.data());
      break;
    case Patch::Is::lies:
      bytes.read(patch.from.buffer, patch.from.offset, patch.bytes, in.data());
      break;
    case Patch::Is::before:
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = bytes.fresh(patch.from.buffer, patch.from.offset + static_cast<std::int64_t>(i));
      break;
    case Patch::Is::constant:
      std::ranges::fill(in, patch.value.at(0));
      break;
    case Patch::Is::changed:
      right.read(patch.at.buffer, patch.at.offset, patch.bytes, in.data());
      for (std::size_t i = 0; i < in.size(); ++i) in[i] ^= patch.value.at(i);
      break;
  }
  bytes.write(patch.at.buffer, patch.at.offset, patch.bytes, in.data());
}

/// Who the patches say lies where; what they do not reach is as it must be.
class Brought {
 public:
  Brought(const std::vector<Patch>& patches, const std::function<Symbol(const BufferAddress&)>& right) {
    for (const Patch& patch : patches) {
      for (std::int64_t i = 0; i < patch.bytes; ++i) {
        const BufferAddress from{patch.from.buffer, patch.from.offset + i};
        Symbol symbol;
        if (patch.is == Patch::Is::content) symbol = right(from);
        if (patch.is == Patch::Is::lies) symbol = at(from).value_or(right(from));
        if (patch.is == Patch::Is::before)
          symbol.kind = Symbol::Kind::poison, symbol.buffer = from.buffer, symbol.offset = from.offset;
        if (patch.is == Patch::Is::constant) symbol.kind = Symbol::Kind::constant, symbol.byte = patch.value.at(0);
        symbol_[{patch.at.buffer, patch.at.offset + i}] = symbol;
      }
    }
  }
  std::optional<Symbol> at(const BufferAddress& address) const {
    const auto found = symbol_.find({address.buffer, address.offset});
    return found == symbol_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  struct Hash {
    std::size_t operator()(const std::pair<int, std::int64_t>& address) const {
      return static_cast<std::size_t>(address.second * 64 + address.first);
    }
  };
  std::unordered_map<std::pair<int, std::int64_t>, Symbol, Hash> symbol_;
};

}  // namespace

Explanation explain(const Scenario& scenario, const AddressSpace& space, const ReportedRun& reported, std::uint64_t seed,
                    std::vector<Claim> claims) {
  constexpr int passes = 4;  // who lies where is known: bytes that are right by chance are not so in all of them
  SymbolTable symbols;
  Truth truth = truth_of(scenario, space, symbols);
  truth.checks.back().any = reported.any;
  Expectation expectation(truth, space, symbols, seed);
  const CopyProgram program = record(scenario, space, actual_sequence(scenario));
  Observation seen = observe(program, seed, passes);
  seen.counted = false;
  for (auto& checks : seen.bytes) {
    const Bytes right = checks.back();
    for (const Patch& patch : reported.patches) apply(patch, checks.back(), right);
  }
  const Mismatch mismatch = compare(seen, truth, expectation, space);
  if (!mismatch.any()) return {};
  const Checkpoint& end = *expectation.at(seen.checks.back());
  const auto right = [&](const BufferAddress& address) {
    return symbols.at(expectation.id(end, address.buffer, address.offset, symbols));
  };
  const Brought brought(reported.patches, right);
  const Attributions attributions = attribute_bytes(
      seen, mismatch, expectation, space, symbols,
      [&](const Symbol& must, int buffer, std::int64_t offset) { return brought.at({buffer, offset}).value_or(must); });
  constexpr std::int64_t few = 4;  // wrong bytes that nothing had: any step could be said to have moved them
  const bool isolated = attributions.unknown == attributions.wrong && attributions.wrong < few;
  if (attributions.unknown > 0 && (!reported.real || isolated)) return {};  // no step moves content that nothing had
  return explain({scenario, space, truth, seen, mismatch, attributions, expectation, symbols, seed, true, std::move(claims),
                  reported.real});
}

}  // namespace kvcts::scenario
