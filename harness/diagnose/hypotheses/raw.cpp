// Raw copies of bytes instead of, or in addition to, the intended ones.
#include <algorithm>
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

void generate_raw(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op != Operation::copy && a.op != Operation::fill) continue;
    const auto attempt = [&](FaultClass fault_class, const std::string& words, const Action& body) {
      search.attempt(fault_class, words + " in " + symbol_of(search, i), i, body);
    };
    std::set<std::int64_t> lengths, shifts;
    std::int64_t wrong_in_row = 0;
    for (const WrongRange& range : search.evidence().mismatch.ranges) {
      wrong_in_row = range.end - range.begin;
      lengths.insert(a.bytes - wrong_in_row), lengths.insert(a.bytes + wrong_in_row);
      if (lengths.size() > 32) break;
    }
    for (const std::int64_t f : {2, 4, 8}) lengths.insert(a.bytes * f), lengths.insert(a.bytes / f);
    for (const std::int64_t bytes : lengths) {
      if (bytes < 0 || bytes == a.bytes) continue;
      Action body = a;
      body.bytes = bytes;
      attempt(bytes < a.bytes ? FaultClass::truncated : FaultClass::over_read,
              std::to_string(bytes) + " bytes instead of " + std::to_string(a.bytes), body);
    }
    for (std::int64_t count = 0; count < std::min<std::int64_t>(a.count, 64); ++count) {
      Action body = a;
      body.count = count;
      attempt(FaultClass::truncated, std::to_string(count) + " copies instead of " + std::to_string(a.count), body);
    }
    // Right up to some byte; after it, the content of another memory.
    if (a.op == Operation::copy && a.count == 1) {
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
            bodies[i] = {head, tail};
            search.attempt(FaultClass::truncated,
                           "right for " + std::to_string(cut) + " bytes, then " + b.name + " in " + symbol_of(search, i),
                           std::move(bodies));
          }
        }
      }
    }
    std::int64_t budget = 500;
    for (const Attribution& attribution : search.attributions().all) {
      if (!attribution.wrong || --budget < 0) continue;
      for (const BufferAddress& p : search.element_index().of(attribution.is)) {
        for (const BufferAddress& q : search.element_index().of(attribution.must)) shifts.insert(p.offset - q.offset);
        shifts.insert(attribution.offset - p.offset);
      }
      if (attribution.is.kind == Symbol::Kind::poison) {
        for (const BufferAddress& q : search.element_index().of(attribution.must))
          shifts.insert(attribution.is.offset - q.offset);
      }
      if (shifts.size() > 24) break;
    }
    for (const std::int64_t shift : shifts) {
      Action body = a;
      body.from_offset += shift;
      attempt(FaultClass::wrong_stride, "read " + std::to_string(shift) + " bytes off", body);
      body = a;
      body.to_offset += shift;
      attempt(FaultClass::wrong_stride, "written " + std::to_string(shift) + " bytes off", body);
      if (a.count > 1) {
        body = a;
        body.from_step += shift;
        attempt(FaultClass::wrong_stride,
                "a step of " + std::to_string(body.from_step) + " bytes instead of " + std::to_string(a.from_step), body);
        body = a;
        body.to_step += shift;
        attempt(FaultClass::wrong_stride,
                "a step of " + std::to_string(body.to_step) + " bytes instead of " + std::to_string(a.to_step), body);
      }
    }
  }
}

}  // namespace kvcts::scenario
