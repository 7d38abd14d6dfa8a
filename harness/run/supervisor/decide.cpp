#include "run/supervisor/decide.hpp"

#include <algorithm>

namespace kvcts::supervisor {

using nlohmann::json;
using Kind = PhaseResult::Kind;

namespace {

std::string sentence_join(const std::string& first, const std::string& second) {
  if (first.empty() || second.empty()) return first + second;
  return first + "; " + second;
}

Diagnosis plain(FaultClass fault_class, std::string text) {
  Diagnosis diagnosis;
  diagnosis.fault_class = fault_class;
  diagnosis.exact = true;
  diagnosis.text = std::move(text);
  diagnosis.what_to_do = advice(fault_class);
  return diagnosis;
}

void take_extent(const Report& report, CaseResult& result) {
  result.digests = report.digests;
  result.checked_bytes = report.checked_bytes;
  result.expected_bytes = report.expected_bytes;
}

void take_numbers(const Report& report, CaseResult& result) {
  take_extent(report, result);
  result.wrong_bytes = report.wrong_bytes;
  result.moved_bytes = report.moved_bytes;
  result.first_wrong = report.first_wrong;
  result.what_happened = report.what_happened;
  if (!report.trace.empty()) result.evidence_files.push_back({"hypotheses", report.trace});
}

/// "; the source was changed" and the state of the destination.
std::string data_text(const std::optional<Report>& report) {
  if (!report) return "the data is unavailable";
  return sentence_join(report->state, report->source_changed ? "the source changed" : "");
}

std::string where_text(const PhaseResult& ended) {
  return "in " + std::string(name(ended.phase)) +
         (ended.role.empty() || ended.role == "both" ? "" : " (" + ended.role + ")") +
         (ended.call.empty() ? "" : ", in " + ended.call);
}

}  // namespace

json event_of(const PhaseResult& ended) {
  switch (ended.kind) {
    case Kind::completed:
      return nullptr;
    case Kind::refused:
      return {{"phase", name(ended.phase)}, {"role", ended.role}, {"refused", {{"text", ended.text}, {"at", ended.at}}}};
    case Kind::raised:
      return {{"phase", name(ended.phase)},
              {"role", ended.role},
              {"raised", {{"type", ended.type}, {"text", ended.text}, {"at", ended.at}}}};
    case Kind::hung:
      return {{"phase", name(ended.phase)},
              {"role", ended.role},
              {"hang",
               {{"kind", ended.hang ? std::string(name(*ended.hang)) : ""},
                {"progress", ended.progress},
                {"note", ended.note}}}};
    case Kind::crashed:
      return {{"phase", name(ended.phase)},
              {"role", ended.role},
              {FaultClass::crash, {{"signal", ended.signal}, {"note", ended.note}}}};
    default:
      return {{"phase", name(ended.phase)}, {"error", {{"text", ended.text}}}};
  }
}

namespace {

/// How the case ended, and what the checker found in memory, if it compared.
struct Account {
  const PhaseResult& ended;
  const std::optional<Report>& compared;
  Diagnosis found{compared ? compared->diagnosis : Diagnosis{}};
  bool changed{compared && compared->wrong_bytes != 0};
  std::string message{changed ? compared->message : ""};
  std::string where{where_text(ended)};
};

void decide_completed(const Account& it, CaseResult& result) {
  if (!it.compared) return;
  const Report& report = *it.compared;
  take_numbers(report, result);
  result.outcome = report.outcome;
  result.message = report.message;
  if (result.outcome == Outcome::pass) return;
  result.phase = report.phase.value_or(Phase::compare);
  result.hang = report.hang;
  result.signal = report.signal;
  result.diagnosis = report.diagnosis;
  result.picture = report.picture;
  if (report.hang || !report.signal.empty()) result.message = sentence_join(result.message, report.state);
  if (result.outcome == Outcome::error && result.message.empty()) result.message = "the checker gave no outcome";
}

void decide_refused(const Account& it, CaseResult& result) {
  const PhaseResult& ended = it.ended;
  if (it.compared) take_numbers(*it.compared, result);
  if (!ended.call.empty()) {  // too late for a refusal
    result.outcome = Outcome::fail;
    result.diagnosis =
        plain(FaultClass::false_success, "completion was reported, and then " + ended.call + " failed: " + ended.text);
    result.message = sentence_join(result.diagnosis.text, it.message);
    return;
  }
  if (!it.changed && ended.moved.value_or(0) <= 0) {
    result.outcome = Outcome::refused;
    result.message = ended.text;
    return;
  }
  result.outcome = Outcome::fail;
  result.diagnosis = it.found;
  if (!it.changed)
    result.diagnosis = plain(FaultClass::false_success, "it reports moved bytes, but the destination is unchanged");
  result.message = "refused " + it.where + " (" + ended.text + ") after bytes had moved";
  if (ended.moved) result.message += ", by its own words " + std::to_string(*ended.moved);
  result.message = sentence_join(result.message, it.changed ? it.message : result.diagnosis.text);
}

void decide_raised(const Account& it, CaseResult& result) {
  const PhaseResult& ended = it.ended;
  if (it.compared) take_numbers(*it.compared, result);
  result.outcome = Outcome::fail;
  result.diagnosis = it.found;
  if (result.diagnosis.fault_class == FaultClass::none) {
    result.diagnosis = plain(FaultClass::raised, "the code under test raised an exception without a specific type");
  }
  result.message = ended.type + ": " + ended.text + (ended.at.empty() ? "" : " (at " + ended.at + ")");
  if (result.diagnosis.text != ended.text && result.diagnosis.fault_class != FaultClass::raised)
    result.message = sentence_join(result.message, result.diagnosis.text);
  if (ended.moved) result.message += "; by its own words " + std::to_string(*ended.moved) + " bytes had moved";
  if (it.changed) result.message = sentence_join(result.message, data_text(it.compared));
}

void decide_hung(const Account& it, CaseResult& result) {
  const PhaseResult& ended = it.ended;
  if (it.compared) take_extent(*it.compared, result);  // half a transfer: wrong bytes are not counted
  result.outcome = Outcome::hang;
  result.hang = ended.hang;
  // The data after half a transfer explains nothing; but a reader that was given a wrong label does explain.
  const bool reading = ended.phase == Phase::read_back;
  result.diagnosis =
      reading && it.found.exact ? it.found : plain(reading ? FaultClass::hang_kernel : FaultClass::hang_transfer, "");
  std::string words = "no end " + it.where + " after " + std::to_string(ended.after_ms) + " ms (deadline " +
                      std::to_string(ended.deadline_ms) + " ms): ";
  words += ended.hang ? std::string(name(*ended.hang)) : "unknown";
  if (!ended.progress.empty()) words += ", " + ended.progress;
  if (!ended.text.empty()) words += ", " + ended.text;
  if (!ended.note.empty()) words += "; " + ended.note;
  if (!reading) {
    const std::string data = data_text(it.compared);
    words = sentence_join(words, it.compared && it.compared->all_arrived ? data + ", the completion never did" : data);
  } else if (it.found.exact) {
    words = sentence_join(words, it.found.text);
  }
  if (result.diagnosis.text.empty()) result.diagnosis.text = words;
  result.message = words;
}

void decide_crashed(const Account& it, CaseResult& result) {
  if (it.compared) take_extent(*it.compared, result);
  result.outcome = Outcome::crash;
  result.signal = it.ended.signal;
  std::string words = it.ended.signal + " " + it.where;
  if (!it.ended.text.empty()) words += ": " + it.ended.text;
  if (!it.ended.note.empty()) words += " (" + it.ended.note + ")";
  words = sentence_join(words, data_text(it.compared));
  result.diagnosis = plain(FaultClass::crash, words);
  result.message = words;
}

}  // namespace

void decide(const PhaseResult& ended, const std::optional<Report>& compared, CaseResult& result) {
  const Account it{ended, compared};
  if (ended.kind != Kind::completed) result.phase = ended.phase;
  switch (ended.kind) {
    case Kind::completed:
      decide_completed(it, result);
      break;
    case Kind::refused:
      decide_refused(it, result);
      break;
    case Kind::raised:
      decide_raised(it, result);
      break;
    case Kind::hung:
      decide_hung(it, result);
      break;
    case Kind::crashed:
      decide_crashed(it, result);
      break;
    case Kind::skipped:
    case Kind::error:
      result.outcome = ended.kind == Kind::skipped ? Outcome::skipped : Outcome::error;
      result.message = ended.text;
      break;
  }
}

void decide_orphan(const std::string& orphan, CaseResult& result) {
  if (result.outcome != Outcome::pass) {
    result.message = sentence_join(result.message, orphan);
    return;
  }
  result.outcome = Outcome::fail;
  result.phase = Phase::complete;
  result.diagnosis = named({{FaultClass::crash, orphan}}, "");
  result.diagnosis.what_to_do = "Look at what the code under test starts, and who waits for it.";
  result.message = orphan;
}

void decide_path(const json& path, const json& seen, CaseResult& result) {
  if (result.outcome != Outcome::pass) return;
  for (const auto& [key, wanted] : path.items()) {
    const json reported = seen.is_object() ? seen.value(key, json()) : json();
    if (reported == wanted) continue;
    result.outcome = Outcome::fail;
    result.phase = Phase::transfer;
    result.diagnosis = plain(FaultClass::false_success, "the bytes are correct but took the wrong path: expected " + key +
                                                            " " + wanted.dump() + ", engine reported " +
                                                            (reported.is_null() ? "none" : reported.dump()));
    result.message = result.diagnosis.text;
    return;
  }
}

void decide_late_write(const LateWrite& write, PhaseResult::Kind ended, CaseResult& result, const std::string& call) {
  const std::int64_t late = write.bytes;
  const bool all_arrived = late == 0;
  std::string words = (late > 0 ? std::to_string(late) + " bytes changed" : std::string("bytes changed")) +
                      (call.empty() ? "" : " in " + call + ",") +
                      (ended == Kind::completed                          ? " after completion"
                       : ended == Kind::refused || ended == Kind::raised ? " after the failure was reported"
                                                                         : " afterwards");
  if (ended == Kind::refused) {
    if (late == 0) words += ": by now all of the transfer has arrived";  // counted is what is not as it was meant
    if (result.outcome == Outcome::refused) result.wrong_bytes = late;
    result.outcome = Outcome::fail;
    words = sentence_join(words, write.message);
    // The new owner may have given the blocks to another request.
    if (late == 0 || !result.diagnosis.exact) result.diagnosis = plain(FaultClass::stale_block, words);
    result.message = sentence_join(result.message, words);
    return;
  }
  if (result.outcome != Outcome::pass) {  // already wrong: a further fact, not the cause
    result.message = sentence_join(result.message, words);
    if (ended == Kind::completed && result.outcome == Outcome::fail && result.wrong_bytes > 0 && all_arrived) {
      // Bytes that were wrong then are right now: that is the cause.
      result.diagnosis = plain(FaultClass::read_before_ready,
                               "completion was reported before the data had arrived: " + std::to_string(result.wrong_bytes) +
                                   " bytes were wrong then, " +
                                   (call.empty() ? "all are right a while later" : "which arrived only in " + call));
      result.message = result.diagnosis.text;
      result.phase = Phase::complete;
    }
    return;
  }
  result.outcome = Outcome::fail;
  result.wrong_bytes = late;
  result.phase = Phase::complete;
  result.diagnosis =
      all_arrived
          ? plain(FaultClass::read_before_ready,
                  "completion was reported before the data had arrived: bytes changed afterwards, and now all are right")
          : plain(FaultClass::false_success, sentence_join(words, write.message));
  result.message = result.diagnosis.text;
}

void decide_departure(const PhaseResult& ended, CaseResult& result) {
  const bool was_wrong = result.outcome != Outcome::pass && result.outcome != Outcome::refused;
  CaseResult end;
  decide(ended, Report{}, end);  // the bytes were compared before
  const std::string words = end.message + ", after this case, the last of its workers";
  if (was_wrong) {  // a further fact
    result.message = sentence_join(result.message, words);
    return;
  }
  result.outcome = end.outcome;
  result.phase = end.phase;
  result.signal = end.signal;
  result.hang = end.hang;
  result.diagnosis = end.diagnosis;
  result.diagnosis.text = result.message = words;
}

}  // namespace kvcts::supervisor
