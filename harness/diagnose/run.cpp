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

/// A run of a scenario, and what is reported of it.
class ScenarioRun {
  using Clock = std::chrono::steady_clock;

 public:
  ScenarioRun(const Scenario& scenario, std::uint64_t seed, const CopyExecutor& executor)
      : scenario_(scenario), seed_(seed), executor_(executor) {
    whole_.mismatch = compare(seen_, whole_.truth, whole_.expectation, space_);
    whole_.content = content_of(whole_.expectation, symbols_);
  }

  Report report() {
    report_bytes();
    const auto compared = Clock::now();
    ended_ = completed_ ? "" : seen_.ending.text + beyond(seen_, scenario_, space_);
    report_ending();
    if (whole_.mismatch.any()) {
      search();
      report_cause();
      report_.diagnose_ns = ns_since(compared);
    } else {
      report_.message =
          completed_ ? text_without_effect(steps_without_effect(scenario_, space_, seen_, true, seed_, executor_)) : ended_;
      conclude();
    }
    return std::move(report_);
  }

 private:
  static std::int64_t ns_since(Clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  }

  void report_bytes() {
    report_.checked_bytes = whole_.mismatch.checked_bytes;
    report_.wrong_bytes = whole_.mismatch.wrong_bytes;
    report_.events.assign(seen_.events.begin(), seen_.events.end());
    for (const json& event : report_.events) report_.moved_bytes += event.value("bytes_moved", std::int64_t{0});
    report_.expected_bytes = whole_.content;
    report_.compare_ns = ns_since(begin_);
  }

  void report_ending() {
    report_.outcome = hung_ ? Outcome::hang : crashed_ ? Outcome::crash : Outcome::fail;
    if (!completed_) report_.phase = phase_of(seen_, op_of(scenario_, seen_.ending.step));
    if (hung_) report_.hang = HangKind::stalled;
    if (completed_ && !whole_.mismatch.any()) report_.outcome = Outcome::pass;
    // A wrong refusal, before anything moved, is still a clean refusal.
    const bool moved = whole_.mismatch.any() && std::ranges::any_of(report_.events, [](const json& e) {
                         return e.value("moved", false) || e.value("hit", false);
                       });
    if (seen_.ending.kind == "refused" && !moved) report_.outcome = Outcome::refused;
  }

  // A hang or a crash without a cause is one.
  void conclude() {
    if (!hung_ && !crashed_) return;
    if (crashed_) report_.signal = seen_.ending.signal;
    if (report_.diagnosis.fault_class != FaultClass::none) return;
    const FaultClass fault = crashed_                            ? FaultClass::crash
                             : report_.phase == Phase::read_back ? FaultClass::hang_kernel
                                                                 : FaultClass::hang_transfer;
    // How it ended is known, why is not.
    report_.diagnosis = whole_.mismatch.any() ? Diagnosis{fault, false, report_.message, std::string(advice(fault))}
                                              : named({{fault, report_.message}}, "");
  }

  void attribute() {
    whole_.attributions = attribute_bytes(seen_, whole_.mismatch, whole_.truth, whole_.expectation, space_, symbols_, seed_);
  }

  void search() {
    needed_ = memory_of_diagnosis(seen_, whole_.mismatch, space_, symbols_, whole_.content);
    searched_ = needed_ <= diagnosis_memory;
    if (!searched_) {
      report_.what_happened = what_happened(
          scenario_, space_, symbols_, symbol_extents(seen_, whole_.mismatch, whole_.expectation, space_, symbols_, seed_));
      return;
    }
    observe_more(seen_, program_, seed_, naming_passes, executor_);
    whole_.mismatch = compare(seen_, whole_.truth, whole_.expectation, space_, &whole_.mismatch);
    attribute();
    if (whole_.attributions.unknown > 0 && name_declared(scenario_, symbols_)) attribute();
    if (!completed_) due_ = due_before(seen_.ending.step, scenario_, space_, symbols_, seen_, seed_);
    if (due_) reported_ = due_.get();
    report_.wrong_bytes = reported_->mismatch.wrong_bytes, report_.expected_bytes = reported_->content;
    if (const Checkpoint* check = reported_->wrong_at(seen_))
      report_.what_happened = what_happened(scenario_, space_, symbols_, *check, reported_->attributions);
    why_ = explain({without_faults(scenario_), space_, whole_.truth, seen_, whole_.mismatch, whole_.attributions,
                    whole_.expectation, symbols_, seed_});
    if (why_.exact && why_.words == seen_.ending.text) why_.words = ended_;
  }

  /// The cause, or why there is none.
  std::string text_of_cause() const {
    const std::int64_t wrong = report_.wrong_bytes;
    const std::string happened = report_.what_happened.empty() ? "" : "; what happened: " + in_a_line(report_.what_happened);
    if (!searched_) {
      return fmt::format(
                 "the search for the cause was skipped: it needs {:.1f} GiB of memory, and the limit is {:.1f} GiB; "
                 "reproduce "
                 "the bug with fewer tokens, layers or heads",
                 needed_ / (1 << 30), diagnosis_memory / (1 << 30)) +
             happened;
    }
    if (why_.exact) return as_diagnosis(why_, wrong).text;
    if (why_.words.empty()) return std::string(not_identified) + happened;
    // A guess states what contradicts it. All bytes and yet no proof: another ending, other reports, or right in some passes
    // only.
    const auto left = static_cast<std::int64_t>(std::llround((1 - why_.share) * static_cast<double>(wrong)));
    return std::string(not_identified) + happened + fmt::format("; best partial explanation (a guess): {}: ", why_.words) +
           (left > 0 && !why_.all_bytes ? fmt::format("it leaves {} of {} wrong bytes unexplained", left, wrong)
                                        : "it does not predict how the run ended and what was reported");
  }

  std::string message_of(const std::string& text) const {
    std::vector<std::string> messages;
    if (!completed_ && why_.words != seen_.ending.text) messages.push_back(ended_);
    if (report_.wrong_bytes > 0) messages.push_back(fmt::format("{} wrong bytes", report_.wrong_bytes));
    if (whole_.mismatch.reports_differ && !why_.only_reports)
      messages.emplace_back("the reports do not match what happened");
    if (completed_ && whole_.truth.ending.kind != "completed")
      messages.push_back("continued where it had to be " + whole_.truth.ending.kind + ": " + whole_.truth.ending.text);
    messages.push_back(text);
    messages.push_back(text_without_effect(steps_without_effect(scenario_, space_, seen_, false, seed_, executor_)));
    std::string out;
    for (const std::string& m : messages) out += (out.empty() || m.empty() ? "" : "; ") + m;
    return out;
  }

  std::string state() const {
    const std::int64_t wrong = report_.wrong_bytes, expected = report_.expected_bytes;
    if (wrong == 0) return expected == 0 ? "" : fmt::format("all {} bytes had arrived", expected);
    if (!searched_) return fmt::format("{} of {} bytes were wrong", wrong, whole_.content);
    return fmt::format("{} of {} bytes were wrong, {} of them never written", wrong, expected,
                       reported_->attributions.untouched);
  }

  void report_cause() {
    std::string text = text_of_cause();
    if (whole_.attributions.damage > 0)
      text += fmt::format("; {} bytes that should hold no content were overwritten", whole_.attributions.damage);
    if (whole_.attributions.left > 0)
      text += fmt::format("; {} bytes that were to be erased were left", whole_.attributions.left);
    report_.message = message_of(text);
    report_.diagnosis =
        why_.exact ? as_diagnosis(why_, report_.wrong_bytes) : Diagnosis{FaultClass::none, false, text, "", why_.others};
    report_.diagnosis.text = text;
    conclude();
    if (hung_ || crashed_) report_.state = state();
    report_.tried = why_.tried, report_.trace = why_.trace;
    report_.first_wrong =
        first_wrong(seen_, reported_->mismatch, reported_->expectation, space_, symbols_, reported_->attributions);
    if (const Checkpoint* check = searched_ ? reported_->wrong_at(seen_) : nullptr)
      report_.picture = moves_of(scenario_, space_, symbols_, *check, reported_->attributions);
  }

  const Clock::time_point begin_ = Clock::now();
  const Scenario& scenario_;
  std::uint64_t seed_;
  const CopyExecutor& executor_;
  AddressSpace space_{scenario_};
  SymbolTable symbols_;
  Held whole_{truth_of(without_faults(scenario_), space_, symbols_), space_, symbols_, seed_};
  CopyProgram program_ = record(scenario_, space_, actual_sequence(scenario_));
  Observation seen_ = observe(program_, seed_, deciding_passes(scenario_), executor_);
  bool completed_ = seen_.ending.kind == "completed", hung_ = seen_.ending.kind == "hung",
       crashed_ = seen_.ending.kind == "crashed";
  std::string ended_;  ///< how, unless it completed
  Report report_;
  double needed_{0};  ///< bytes of memory, for the search
  bool searched_{false};
  std::unique_ptr<Held> due_;
  Held* reported_{&whole_};  ///< what is said of the bytes; the cause is searched in the whole
  Explanation why_;
};

}  // namespace

void expect_playable(const Scenario& scenario) {
  const AddressSpace space(scenario);
  SymbolTable symbols;
  truth_of(without_faults(scenario), space, symbols);
  record(scenario, space, actual_sequence(scenario));
}

Report run_scenario(const Scenario& scenario, std::uint64_t seed, const CopyExecutor& executor) {
  return ScenarioRun(scenario, seed, executor).report();
}

}  // namespace kvcts::scenario
