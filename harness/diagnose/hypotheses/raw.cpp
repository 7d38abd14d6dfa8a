// Raw copies of bytes instead of, or in addition to, the intended ones.
#include <algorithm>
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

namespace {

void attempt_raw(HypothesisSearch& search, FaultClass fault_class, const std::string& words, std::size_t step,
                 const Action& body) {
  search.attempt(fault_class, words + " in " + symbol_of(search, step), step, body);
}

void generate_raw_lengths(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  std::set<std::int64_t> lengths;
  for (const WrongRange& range : search.evidence().mismatch.ranges) {
    const std::int64_t wrong_in_row = range.end - range.begin;
    lengths.insert(a.bytes - wrong_in_row), lengths.insert(a.bytes + wrong_in_row);
    if (lengths.size() > 32) break;
  }
  for (const std::int64_t f : {2, 4, 8}) lengths.insert(a.bytes * f), lengths.insert(a.bytes / f);
  Action body = a;
  for (const std::int64_t bytes : lengths) {
    if (bytes < 0 || bytes == a.bytes) continue;
    body.bytes = bytes;
    attempt_raw(search, bytes < a.bytes ? FaultClass::truncated : FaultClass::over_read,
                std::to_string(bytes) + " bytes instead of " + std::to_string(a.bytes), step, body);
  }
  body = a;
  for (body.count = 0; body.count < std::min<std::int64_t>(a.count, 64); ++body.count)
    attempt_raw(search, FaultClass::truncated, std::to_string(body.count) + " copies instead of " + std::to_string(a.count),
                step, body);
}

// Right up to some byte; after it, the content of another memory.
void generate_raw_tails(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  const BufferAddress to = search.evidence().space.address(a.to.at(0).of);
  std::int64_t right = a.bytes;
  for (const WrongRange& range : search.evidence().mismatch.ranges) {
    const std::int64_t at = range.begin - to.offset - a.to_offset;
    if (range.buffer == to.buffer && at >= 0) right = std::min(right, at);
  }
  const std::int64_t unit = right & -right;  // the cut is at a round number; bytes before it may agree by chance
  for (std::int64_t cut = right; cut > 0 && cut < a.bytes && unit > 0; cut -= std::max<std::int64_t>(1, cut & -cut)) {
    for (const Buffer& b : search.evidence().space.buffers()) {
      for (const std::int64_t offset : {std::int64_t{0}, a.from_offset + cut}) {
        Action head = a, tail = a;
        head.bytes = cut;
        tail.from.at(0).of = b.name, tail.from_offset = offset, tail.to_offset = a.to_offset + cut,
        tail.bytes = a.bytes - cut;
        CandidateSteps bodies = search.bodies();
        bodies[step] = {head, tail};
        search.attempt(FaultClass::truncated,
                       "right for " + std::to_string(cut) + " bytes, then " + b.name + " in " + symbol_of(search, step),
                       std::move(bodies));
      }
    }
  }
}

/// How far wrong bytes lie from where they belong.
std::set<std::int64_t> shifts_seen(HypothesisSearch& search) {
  std::set<std::int64_t> out;
  std::int64_t budget = 500;
  for (const Attribution& attribution : search.attributions().all) {
    if (!attribution.wrong || --budget < 0) continue;
    for (const BufferAddress& p : search.element_index().of(attribution.is)) {
      for (const BufferAddress& q : search.element_index().of(attribution.must)) out.insert(p.offset - q.offset);
      out.insert(attribution.offset - p.offset);
    }
    if (attribution.is.kind == Symbol::Kind::poison) {
      for (const BufferAddress& q : search.element_index().of(attribution.must))
        out.insert(attribution.is.offset - q.offset);
    }
    if (out.size() > 24) break;
  }
  return out;
}

void generate_raw_shifts(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  const auto attempt = [&](std::int64_t Action::* number, std::int64_t shift, const std::string& words) {
    Action body = a;
    body.*number += shift;
    attempt_raw(search, FaultClass::wrong_stride, words, step, body);
  };
  const auto stepped = [](std::int64_t was, std::int64_t shift) {
    return "a step of " + std::to_string(was + shift) + " bytes instead of " + std::to_string(was);
  };
  for (const std::int64_t shift : shifts_seen(search)) {
    attempt(&Action::from_offset, shift, "read " + std::to_string(shift) + " bytes off");
    attempt(&Action::to_offset, shift, "written " + std::to_string(shift) + " bytes off");
    if (a.count <= 1) continue;
    attempt(&Action::from_step, shift, stepped(a.from_step, shift));
    attempt(&Action::to_step, shift, stepped(a.to_step, shift));
  }
}

}  // namespace

void generate_raw(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op != Operation::copy && a.op != Operation::fill) continue;
    generate_raw_lengths(search, i);
    if (a.op == Operation::copy && a.count == 1) generate_raw_tails(search, i);
    generate_raw_shifts(search, i);
  }
}

}  // namespace kvcts::scenario
