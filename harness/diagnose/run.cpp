#include "diagnose/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "case/outcome.hpp"
#include "case/text.hpp"
#include "diagnose/effect.hpp"
#include "diagnose/explain.hpp"
#include "diagnose/what_happened.hpp"
#include "diagnose/window.hpp"
#include "kernels/tag.hpp"

namespace kvcts::scenario {

using nlohmann::json;

namespace {

// Deciding passes: enough for the smallest unit that code can move, a byte (a pair of 4-bit codes).
int deciding_passes(const Scenario& scenario) {
  int passes = 2;
  for (const auto& [name, memory] : scenario.memories) {
    for (const auto& plane : cache_of(memory.view).planes) {
      const std::int64_t elements = layout::bits(plane.dtype) == 4 ? 2 : 1;
      passes = std::max(passes, kernels::deciding_passes(plane.dtype, elements, plane.component));
    }
  }
  return std::min(passes, naming_passes);
}

/// Whether the step that ended the run reached beyond its memory.
bool left_its_memory(const Observation& seen) {
  return std::ranges::any_of(seen.events, [&](const json& event) {
    return event.value("violation", "") == "outside" && event.value("step", "") == seen.ending.step;
  });
}

Phase phase_of(const Observation& seen, std::optional<Operation> op) {
  const SequenceEnding& ending = seen.ending;
  if (ending.kind == "hung") {
    return ending.in == "handshake" ? Phase::registration : ending.in == "kernel" ? Phase::read_back : Phase::complete;
  }
  if (!op) return Phase::transfer;
  switch (*op) {
    case Operation::register_range:
    case Operation::unregister_range:
    case Operation::unpack:
    case Operation::require:
    case Operation::refuse:
      return Phase::registration;
    case Operation::write:
    case Operation::fill:
      return Phase::generate;
    case Operation::read:
      return Phase::read_back;
    case Operation::copy:
    case Operation::move:
      return left_its_memory(seen) ? Phase::plan : Phase::transfer;
    default:
      return Phase::transfer;
  }
}

std::optional<Operation> op_of(const Scenario& scenario, const std::string& step) {
  for (const Step& s : scenario.steps) {
    if (s.name != step) continue;
    if (!s.as_intended && !s.actual.empty()) return s.actual.back().op;
    return s.intended.op;
  }
  return std::nullopt;
}

// The first wrong bytes, in words, with the owner of the data found there.
std::vector<WrongByte> first_wrong(const Observation& o, const Mismatch& mismatch, Expectation& expectation,
                                   const AddressSpace& space, SymbolTable& symbols, const Attributions& attributions) {
  std::vector<WrongByte> out;
  for (const WrongRange& range : mismatch.ranges) {
    if (out.size() == 16) break;
    const Checkpoint* check = expectation.at(o.checks[range.check]);
    const std::int64_t bytes = std::min<std::int64_t>(range.end - range.begin, 8);
    std::vector<std::uint8_t> seen(static_cast<std::size_t>(bytes)), must;
    o.bytes[0][range.check].read(range.buffer, range.begin, bytes, seen.data());
    std::int64_t offset = 0;
    const std::string region = space.symbol_of({range.buffer, range.begin}, offset);
    const Buffer& b = space.buffers()[static_cast<std::size_t>(range.buffer)];
    for (std::int64_t i = 0; i < bytes; ++i) {
      if (!b.sparse) {
        must.push_back(
            expectation.dense(*check, range.buffer, 0)[static_cast<std::size_t>(range.begin + i + b.guard_below)]);
      } else {
        const std::int64_t at = range.begin + i, number = SymbolImage::page_of(at);
        must.push_back(
            expectation.page(*check, range.buffer, number, 0)[static_cast<std::size_t>(at - number * SymbolImage::page)]);
      }
    }
    std::string where = to_string(symbols.at(expectation.id(*check, range.buffer, range.begin, symbols)), space.buffers());
    const auto attribution = std::ranges::find_if(
        attributions.all, [&](const Attribution& c) { return c.buffer == range.buffer && c.offset == range.begin; });
    if (attribution != attributions.all.end())
      where += "; found: " +
               (attribution->untouched ? std::string("what was there before") : to_string(attribution->is, space.buffers()));
    if (range.end - range.begin > bytes) where += fmt::format("; wrong to {}", offset + range.end - range.begin - 1);
    out.push_back({region, offset, text::hex(must), text::hex(seen), where});
  }
  return out;
}

// Peak memory of the search below: all passes of every check, the names in each pass, and the facts about each byte of
// content.
double memory_of_diagnosis(const Observation& seen, const Mismatch& mismatch, const AddressSpace& space,
                           const SymbolTable& symbols, std::int64_t content) {
  // Measured, rounded up: attribution, observed move and place of a byte; a byte whose poison is looked up by its value.
  constexpr double per_attribution = 600, per_named = 128;
  double kept = 0, named = 0;
  for (const Bytes& bytes : seen.bytes.front()) {
    for (const Buffer& b : space.buffers()) {
      kept += b.sparse ? static_cast<double>(bytes.pages(b.ordinal).size() * Bytes::page)
                       : static_cast<double>(bytes.dense(b.ordinal).size());
      if (!b.sparse) named = std::max(named, static_cast<double>(bytes.dense(b.ordinal).size()));
    }
  }
  const double rendered = static_cast<double>(symbols.chunks()) * SymbolTable::chunk;
  return naming_passes * (2 * kept + rendered) + per_named * named +
         per_attribution * static_cast<double>(content + mismatch.wrong_bytes);
}

std::int64_t content_of(const Expectation& expectation, const SymbolTable& symbols) {
  std::int64_t out = 0;
  const Checkpoint* end = expectation.at("");
  if (end == nullptr) return 0;
  for (const SymbolImage& image : end->images) {
    for (const auto& [number, ids] : image.pages())
      out += std::count_if(ids->begin(), ids->end(),
                           [&](SymbolId id) { return id != hole && symbols.at(id).kind != Symbol::Kind::poison; });
  }
  return out;
}

/// The bytes of a run held against a truth.
struct Held {
  Truth truth;
  Expectation expectation;
  Mismatch mismatch;
  std::int64_t content{0};
  Attributions attributions;
  Held(Truth of, const AddressSpace& space, const SymbolTable& symbols, std::uint64_t seed)
      : truth(std::move(of)), expectation(truth, space, symbols, seed) {}
  Held(const Held&) = delete;
  /// The check that the attributions are of; null: no byte is wrong, or the truth never reaches it.
  const Checkpoint* wrong_at(const Observation& seen) const {
    return mismatch.ranges.empty() ? nullptr : expectation.at(seen.checks[attributions.check]);
  }
};

/// A run that stopped, held against the steps in front of that one: what came later was not due. Null: they are none by
/// themselves, as a later step has a place among them.
std::unique_ptr<Held> due_before(const std::string& step, const Scenario& scenario, const AddressSpace& space,
                                 SymbolTable& symbols, const Observation& seen, std::uint64_t seed) {
  Scenario part = without_faults(scenario);
  const auto stopped = std::ranges::find_if(part.steps, [&](const Step& s) { return s.name == step; });
  if (stopped == part.steps.end()) return nullptr;
  part.steps.erase(stopped, part.steps.end());
  std::unique_ptr<Held> out;
  try {
    out = std::make_unique<Held>(truth_of(part, space, symbols), space, symbols, seed);
  } catch (const std::runtime_error&) {
    return nullptr;
  }
  out->mismatch = compare(seen, out->truth, out->expectation, space);
  out->content = content_of(out->expectation, symbols);
  if (!out->mismatch.ranges.empty())
    out->attributions = attribute_bytes(seen, out->mismatch, out->truth, out->expectation, space, symbols, seed);
  return out;
}

/// Where accesses outside lie by the declared layout: " (block 9, slot 8, of 8 blocks)".
std::string beyond(const Observation& seen, const Scenario& scenario, const AddressSpace& space) {
  for (const json& event : seen.events) {
    if (event.value("violation", "") != "outside" || event.value("step", "") != seen.ending.step) continue;
    const BufferAddress place{event.value("backing", -1), event.value("offset", std::int64_t{0})};
    if (place.buffer < 0 || static_cast<std::size_t>(place.buffer) >= space.buffers().size()) continue;
    const std::string words = LayoutIndex(scenario, space).text_beyond(place);
    if (!words.empty()) return " (" + words + ")";
  }
  return "";
}

}  // namespace

void expect_playable(const Scenario& scenario) {
  const AddressSpace space(scenario);
  SymbolTable symbols;
  truth_of(without_faults(scenario), space, symbols);
  record(scenario, space, actual_sequence(scenario));
}

Report run_scenario(const Scenario& scenario, std::uint64_t seed, const CopyExecutor& executor) {
  using clock = std::chrono::steady_clock;
  const auto ns_since = [](clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begin).count();
  };
  const auto begin = clock::now();
  const AddressSpace space(scenario);
  SymbolTable symbols;
  Held whole(truth_of(without_faults(scenario), space, symbols), space, symbols, seed);
  const CopyProgram program = record(scenario, space, actual_sequence(scenario));
  Observation seen = observe(program, seed, deciding_passes(scenario), executor);
  Mismatch& mismatch = whole.mismatch;
  mismatch = compare(seen, whole.truth, whole.expectation, space);
  whole.content = content_of(whole.expectation, symbols);
  Report report;
  report.checked_bytes = mismatch.checked_bytes;
  report.wrong_bytes = mismatch.wrong_bytes;
  report.events.assign(seen.events.begin(), seen.events.end());
  for (const json& event : report.events) report.moved_bytes += event.value("bytes_moved", std::int64_t{0});
  report.expected_bytes = whole.content;
  report.compare_ns = ns_since(begin);
  const auto compared = clock::now();

  const std::string& kind = seen.ending.kind;
  const bool completed = kind == "completed", hung = kind == "hung", crashed = kind == "crashed";
  const std::string ended = completed ? "" : seen.ending.text + beyond(seen, scenario, space);
  report.outcome = hung ? Outcome::hang : crashed ? Outcome::crash : Outcome::fail;
  if (!completed) report.phase = phase_of(seen, op_of(scenario, seen.ending.step));
  if (hung) report.hang = HangKind::stalled;
  // A hang or a crash without a cause is one.
  const auto conclude = [&] {
    if (!hung && !crashed) return;
    if (crashed) report.signal = seen.ending.signal;
    if (report.diagnosis.fault_class != FaultClass::none) return;
    const FaultClass fault = crashed                            ? FaultClass::crash
                             : report.phase == Phase::read_back ? FaultClass::hang_kernel
                                                                : FaultClass::hang_transfer;
    // How it ended is known, why is not.
    report.diagnosis = mismatch.any() ? Diagnosis{fault, false, report.message, std::string(advice(fault))}
                                      : named({{fault, report.message}}, "");
  };
  if (!mismatch.any()) {
    if (completed || kind == "refused") report.outcome = completed ? Outcome::pass : Outcome::refused;
    if (!completed) report.message = ended;
    if (report.outcome == Outcome::pass)
      report.message = text_without_effect(steps_without_effect(scenario, space, seen, true, seed, executor));
    conclude();
    return report;
  }
  // A wrong refusal, before anything moved, is still a clean refusal.
  const bool moved =
      std::ranges::any_of(report.events, [](const json& e) { return e.value("moved", false) || e.value("hit", false); });
  if (kind == "refused" && !moved) report.outcome = Outcome::refused;

  const double needed = memory_of_diagnosis(seen, mismatch, space, symbols, whole.content);
  const bool searched = needed <= diagnosis_memory;
  std::unique_ptr<Held> due;
  Held* reported = &whole;  // what is said of the bytes; the cause is searched in the whole
  Explanation why;
  if (searched) {
    observe_more(seen, program, seed, naming_passes, executor);
    mismatch = compare(seen, whole.truth, whole.expectation, space, &mismatch);
    const auto find = [&] {
      whole.attributions = attribute_bytes(seen, mismatch, whole.truth, whole.expectation, space, symbols, seed);
    };
    find();
    if (whole.attributions.unknown > 0 && name_declared(scenario, symbols)) find();
    if (!completed) due = due_before(seen.ending.step, scenario, space, symbols, seen, seed);
    if (due) reported = due.get();
    report.wrong_bytes = reported->mismatch.wrong_bytes, report.expected_bytes = reported->content;
    if (const Checkpoint* check = reported->wrong_at(seen))
      report.what_happened = what_happened(scenario, space, symbols, *check, reported->attributions);
    why = explain({without_faults(scenario), space, whole.truth, seen, mismatch, whole.attributions, whole.expectation,
                   symbols, seed});
  } else {
    report.what_happened =
        what_happened(scenario, space, symbols, symbol_extents(seen, mismatch, whole.expectation, space, symbols, seed));
  }

  const std::int64_t wrong = report.wrong_bytes;
  std::string text;
  if (!searched) {
    text = fmt::format(
        "the search for the cause was skipped: it needs {:.1f} GiB of memory, and the limit is {:.1f} GiB; reproduce the "
        "bug with fewer tokens, layers or heads",
        needed / (1 << 30), diagnosis_memory / (1 << 30));
    if (!report.what_happened.empty()) text += "; what happened: " + in_a_line(report.what_happened);
  } else if (why.exact) {
    if (why.words == seen.ending.text) why.words = ended;
    report.diagnosis = as_diagnosis(why, wrong);
    text = report.diagnosis.text;
  } else {
    text = not_identified;
    if (!report.what_happened.empty()) text += "; what happened: " + in_a_line(report.what_happened);
    // A guess states what contradicts it. All bytes and yet no proof: another ending, other reports, or right in some passes
    // only.
    const auto left = static_cast<std::int64_t>(std::llround((1 - why.share) * static_cast<double>(wrong)));
    if (!why.words.empty()) text += fmt::format("; best partial explanation (a guess): {}: ", why.words);
    if (!why.words.empty())
      text += left > 0 && !why.all_bytes ? fmt::format("it leaves {} of {} wrong bytes unexplained", left, wrong)
                                         : "it does not predict how the run ended and what was reported";
  }
  if (whole.attributions.damage > 0)
    text += fmt::format("; {} bytes that should hold no content were overwritten", whole.attributions.damage);
  if (whole.attributions.left > 0)
    text += fmt::format("; {} bytes that were to be erased were left", whole.attributions.left);
  std::vector<std::string> messages;
  if (!completed && why.words != seen.ending.text) messages.push_back(ended);
  if (wrong > 0) messages.push_back(fmt::format("{} wrong bytes", wrong));
  if (mismatch.reports_differ && !why.only_reports) messages.push_back("the reports do not match what happened");
  if (completed && whole.truth.ending.kind != "completed")
    messages.push_back("continued where it had to be " + whole.truth.ending.kind + ": " + whole.truth.ending.text);
  std::string message;
  for (const std::string& m : messages) message += (message.empty() ? "" : "; ") + m;
  report.message = message.empty() ? text : message + "; " + text;
  if (const std::string idle = text_without_effect(steps_without_effect(scenario, space, seen, false, seed, executor));
      !idle.empty())
    report.message += "; " + idle;
  if (!why.exact) report.diagnosis = {FaultClass::none, false, text, "", why.others};
  report.diagnosis.text = text;
  conclude();
  if (hung || crashed) {
    report.state = wrong == 0 && report.expected_bytes == 0 ? ""
                   : wrong == 0                             ? fmt::format("all {} bytes had arrived", report.expected_bytes)
                   : !searched ? fmt::format("{} of {} bytes were wrong", wrong, whole.content)
                               : fmt::format("{} of {} bytes were wrong, {} of them never written", wrong,
                                             report.expected_bytes, reported->attributions.untouched);
  }
  report.tried = why.tried, report.trace = why.trace;
  report.first_wrong = first_wrong(seen, reported->mismatch, reported->expectation, space, symbols, reported->attributions);
  if (const Checkpoint* check = searched ? reported->wrong_at(seen) : nullptr)
    report.picture = moves_of(scenario, space, symbols, *check, reported->attributions);
  report.diagnose_ns = ns_since(compared);
  return report;
}

}  // namespace kvcts::scenario
