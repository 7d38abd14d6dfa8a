// What happened to a case -> its outcome and text.
#include "run/supervisor/decide.hpp"
#include "run/supervisor/supervisor.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace kvcts::supervisor {
namespace {

using nlohmann::json;
using Kind = PhaseResult::Kind;

Report compared(Outcome outcome, std::int64_t wrong, FaultClass fault_class = FaultClass::none, bool exact = true) {
  Report report;
  report.outcome = outcome;
  report.wrong_bytes = wrong, report.checked_bytes = 1000, report.expected_bytes = 600;
  report.state = wrong == 0 ? "no byte had arrived" : "100 of 600 bytes had arrived";
  if (wrong != 0) report.message = std::to_string(wrong) + " wrong bytes";
  report.first_wrong = {{"consumer/g0/r0/kv", 7, "01", "02", "K"}};
  report.diagnosis = {fault_class, exact, "told", "look", {}};
  return report;
}

CaseResult result_of(const PhaseResult& ended, const std::optional<Report>& report) {
  CaseResult result;
  decide(ended, report, result);
  return result;
}

TEST(Decide, TakesTheVerdictOfTheCheckerOnCompletion) {
  const CaseResult pass = result_of({}, compared(Outcome::pass, 0));
  EXPECT_EQ(pass.outcome, Outcome::pass);
  EXPECT_FALSE(pass.phase);
  EXPECT_EQ(pass.checked_bytes, 1000);
  EXPECT_EQ(pass.expected_bytes, 600);
  const CaseResult fail = result_of({}, compared(Outcome::fail, 5, FaultClass::axis_permuted));
  EXPECT_EQ(fail.outcome, Outcome::fail);
  EXPECT_EQ(fail.phase, Phase::compare);
  EXPECT_EQ(fail.diagnosis.fault_class, FaultClass::axis_permuted);
  EXPECT_EQ(fail.wrong_bytes, 5);
  ASSERT_EQ(fail.first_wrong.size(), 1u);
  EXPECT_EQ(fail.first_wrong[0].offset, 7);
  EXPECT_EQ(result_of({}, Report{}).outcome, Outcome::error);
}

TEST(Decide, TakesTheEndingOfAScenario) {
  Report report = compared(Outcome::hang, 5);
  report.phase = Phase::read_back, report.hang = HangKind::stalled;
  const CaseResult hang = result_of({}, report);
  EXPECT_EQ(hang.outcome, Outcome::hang);
  EXPECT_EQ(hang.phase, Phase::read_back);
  EXPECT_EQ(hang.hang, HangKind::stalled);
  EXPECT_EQ(hang.wrong_bytes, 5);

  report.outcome = Outcome::crash, report.phase = Phase::transfer, report.signal = "SIGBUS";
  EXPECT_EQ(result_of({}, report).outcome, Outcome::crash);
  EXPECT_EQ(result_of({}, report).signal, "SIGBUS");

  report.outcome = Outcome::refused, report.diagnosis.fault_class = FaultClass::stale_block;
  EXPECT_EQ(result_of({}, report).outcome, Outcome::refused);
  EXPECT_EQ(result_of({}, report).diagnosis.fault_class, FaultClass::stale_block) << "why it refused what fits";
}

TEST(Decide, ARefusalIsCleanOnlyIfNothingWasWritten) {
  PhaseResult ended;
  ended.kind = Kind::refused;
  ended.phase = Phase::plan;
  ended.text = "head slices are not contiguous";
  const CaseResult clean = result_of(ended, compared(Outcome::pass, 0, FaultClass::wrong_stride));
  EXPECT_EQ(clean.outcome, Outcome::refused);
  EXPECT_EQ(clean.phase, Phase::plan);
  EXPECT_EQ(clean.message, "head slices are not contiguous");
  EXPECT_EQ(clean.diagnosis.fault_class, FaultClass::none);
  const CaseResult dirty = result_of(ended, compared(Outcome::fail, 100));
  EXPECT_EQ(dirty.outcome, Outcome::fail);
  EXPECT_NE(dirty.message.find("after bytes had moved"), std::string::npos);
}

TEST(Decide, NamesAnExceptionByItsDiagnosis) {
  PhaseResult ended;
  ended.kind = Kind::raised;
  ended.phase = Phase::registration;
  ended.type = "ValueError";
  ended.text = "not enough values to unpack (expected 5, got 3)";
  const CaseResult named = result_of(ended, compared(Outcome::pass, 0, FaultClass::rank_mismatch));
  EXPECT_EQ(named.outcome, Outcome::fail);
  EXPECT_EQ(named.phase, Phase::registration);
  EXPECT_EQ(named.diagnosis.fault_class, FaultClass::rank_mismatch);
  EXPECT_NE(named.message.find("ValueError: not enough values to unpack (expected 5, got 3)"), std::string::npos);
  EXPECT_EQ(result_of(ended, compared(Outcome::pass, 0)).diagnosis.fault_class, FaultClass::raised);
}

TEST(Decide, FailsCorrectBytesThatTookAnotherPath) {
  const json path{{"verbs", "am"}, {"transport", "tcp/lo"}};
  const auto decided = [&](const json& seen, Outcome outcome = Outcome::pass) {
    CaseResult result;
    result.outcome = outcome;
    decide_path(path, seen, result);
    return result;
  };
  EXPECT_EQ(decided({{"verbs", "am"}, {"transport", "tcp/lo"}, {"requests", "1"}}).outcome, Outcome::pass);
  const CaseResult other = decided({{"verbs", "rma"}, {"transport", "tcp/lo"}});
  EXPECT_EQ(other.outcome, Outcome::fail);
  EXPECT_EQ(other.diagnosis.fault_class, FaultClass::false_success);
  EXPECT_NE(other.message.find("expected verbs \"am\", engine reported \"rma\""), std::string::npos) << other.message;
  EXPECT_EQ(decided({{"verbs", "am"}}).outcome, Outcome::fail);
  EXPECT_EQ(decided(nullptr).outcome, Outcome::fail) << "it reported nothing";
  EXPECT_EQ(decided(nullptr, Outcome::refused).outcome, Outcome::refused) << "nothing moved";
}

TEST(Decide, DescribesTheDataAtAHang) {
  PhaseResult ended;
  ended.kind = Kind::hung;
  ended.phase = Phase::complete;
  ended.hang = HangKind::stalled;
  Report reply = compared(Outcome::fail, 600);
  reply.state = "all 600 bytes had arrived", reply.all_arrived = true;
  const CaseResult done = result_of(ended, reply);
  EXPECT_EQ(done.outcome, Outcome::hang);
  EXPECT_EQ(done.hang, HangKind::stalled);
  EXPECT_EQ(done.diagnosis.fault_class, FaultClass::hang_transfer);
  EXPECT_NE(done.message.find("all 600 bytes had arrived, the completion never did"), std::string::npos);
  EXPECT_EQ(done.wrong_bytes, 0);  // half a transfer is not judged byte for byte
  ended.phase = Phase::read_back;
  EXPECT_EQ(result_of(ended, compared(Outcome::fail, 600, FaultClass::axis_permuted)).diagnosis.fault_class,
            FaultClass::axis_permuted);
  EXPECT_EQ(result_of(ended, compared(Outcome::fail, 600, FaultClass::axis_permuted, false)).diagnosis.fault_class,
            FaultClass::hang_kernel);
  EXPECT_NE(result_of(ended, std::nullopt).message, "");
}

TEST(Decide, RecordsTheSignalOfACrash) {
  PhaseResult ended;
  ended.kind = Kind::crashed;
  ended.phase = Phase::transfer;
  ended.role = "consumer";
  ended.signal = "SIGBUS";
  const CaseResult result = result_of(ended, compared(Outcome::fail, 100));
  EXPECT_EQ(result.outcome, Outcome::crash);
  EXPECT_EQ(result.signal, "SIGBUS");
  EXPECT_EQ(result.message, "SIGBUS in transfer (consumer); 100 of 600 bytes had arrived");
  EXPECT_EQ(result.diagnosis.fault_class, FaultClass::crash);
}

TEST(Decide, FailsAPassOnLateWrites) {
  CaseResult pass = result_of({}, compared(Outcome::pass, 0));
  decide_late_write({true, 64, "first at offset 5"}, PhaseResult::Kind::completed, pass);
  EXPECT_EQ(pass.outcome, Outcome::fail);
  EXPECT_EQ(pass.diagnosis.fault_class, FaultClass::false_success);
  EXPECT_EQ(pass.message, "64 bytes changed after completion; first at offset 5");
  CaseResult fail = result_of({}, compared(Outcome::fail, 5, FaultClass::axis_permuted));
  decide_late_write({true, 64, ""}, PhaseResult::Kind::completed, fail);
  EXPECT_EQ(fail.diagnosis.fault_class, FaultClass::axis_permuted);
  EXPECT_NE(fail.message.find("64 bytes changed after completion"), std::string::npos);
  CaseResult arrived_late = result_of({}, compared(Outcome::fail, 5, FaultClass::silently_skipped));
  decide_late_write({true, 0, ""}, PhaseResult::Kind::completed, arrived_late);
  EXPECT_EQ(arrived_late.diagnosis.fault_class, FaultClass::read_before_ready);
  EXPECT_EQ(arrived_late.message,
            "completion was reported before the data had arrived: 5 bytes were wrong then, all are right a while later");
  CaseResult refused;
  refused.outcome = Outcome::refused;
  decide_late_write({true, 64, ""}, PhaseResult::Kind::refused, refused);
  EXPECT_EQ(refused.outcome, Outcome::fail);  // refused, but wrote anyway
  EXPECT_EQ(refused.diagnosis.fault_class, FaultClass::stale_block);
  EXPECT_EQ(refused.message, "64 bytes changed after the failure was reported");
  CaseResult whole;
  whole.outcome = Outcome::refused;
  decide_late_write({true, 0, ""}, PhaseResult::Kind::refused, whole);
  EXPECT_EQ(whole.message, "bytes changed after the failure was reported: by now all of the transfer has arrived");
  PhaseResult half_way;
  half_way.kind = PhaseResult::Kind::refused;
  half_way.phase = Phase::complete;
  half_way.text = "the engine returned -1";
  CaseResult half = result_of(half_way, compared(Outcome::fail, 5));
  decide_late_write({true, 0, ""}, half_way.kind, half);  // never reported completion
  EXPECT_EQ(half.diagnosis.fault_class, FaultClass::stale_block);
  EXPECT_EQ(half.wrong_bytes, 5);
  EXPECT_TRUE(half.message.starts_with("refused in complete (the engine returned -1) after bytes had moved"))
      << half.message;
  EXPECT_TRUE(half.message.ends_with("after the failure was reported: by now all of the transfer has arrived"))
      << half.message;
}

TEST(Decide, NamesTheTeardownCall) {
  CaseResult arrived = result_of({}, compared(Outcome::fail, 5, FaultClass::silently_skipped));
  decide_late_write({true, 0, ""}, PhaseResult::Kind::completed, arrived, "release()");
  EXPECT_EQ(arrived.diagnosis.fault_class, FaultClass::read_before_ready);
  EXPECT_EQ(arrived.phase, Phase::complete);
  EXPECT_EQ(arrived.message,
            "completion was reported before the data had arrived: 5 bytes were wrong then, which arrived only in release()");
  CaseResult changed = result_of({}, compared(Outcome::pass, 0));
  decide_late_write({true, 64, ""}, PhaseResult::Kind::completed, changed, "close()");
  EXPECT_EQ(changed.diagnosis.fault_class, FaultClass::false_success);
  EXPECT_EQ(changed.message, "64 bytes changed in close(), after completion");
  PhaseResult late_no;
  late_no.kind = PhaseResult::Kind::refused;
  late_no.phase = Phase::complete;
  late_no.call = "release()";
  late_no.text = "busy";
  const CaseResult refused = result_of(late_no, compared(Outcome::pass, 0));
  EXPECT_EQ(refused.outcome, Outcome::fail) << "too late for a refusal";
  EXPECT_EQ(refused.message, "completion was reported, and then release() failed: busy");
}

TEST(Decide, AddsABadTeardownToTheLastCase) {
  PhaseResult end;
  end.kind = PhaseResult::Kind::crashed;
  end.phase = Phase::complete;
  end.role = "consumer";
  end.call = "close()";
  end.signal = "SIGSEGV";
  CaseResult pass = result_of({}, compared(Outcome::pass, 0)),
             fail = result_of({}, compared(Outcome::fail, 5, FaultClass::axis_permuted));
  decide_departure(end, pass);
  EXPECT_EQ(pass.outcome, Outcome::crash);
  EXPECT_EQ(pass.signal, "SIGSEGV");
  EXPECT_EQ(pass.phase, Phase::complete);
  EXPECT_EQ(pass.message, "SIGSEGV in complete (consumer), in close(), after this case, the last of its workers");
  decide_departure(end, fail);
  EXPECT_EQ(fail.outcome, Outcome::fail);
  EXPECT_EQ(fail.diagnosis.fault_class, FaultClass::axis_permuted);
  EXPECT_TRUE(fail.message.ends_with(pass.message)) << fail.message;
}

TEST(Decide, KeepsExpectationsOutOfEvents) {
  EXPECT_TRUE(event_of({}).is_null());
  PhaseResult ended;
  ended.kind = Kind::raised;
  ended.phase = Phase::registration;
  ended.type = "ValueError";
  EXPECT_EQ(event_of(ended)["raised"]["type"], "ValueError");
  EXPECT_EQ(event_of(ended)["phase"], "register");
  ended.kind = Kind::hung;
  ended.hang = HangKind::runaway;
  EXPECT_EQ(event_of(ended)["hang"]["kind"], "runaway");
  ended.kind = Kind::crashed;
  ended.signal = "SIGSEGV";
  EXPECT_EQ(event_of(ended)["crash"]["signal"], "SIGSEGV");
}

TEST(Watch, LastsWhileLateWritesArePossible) {
  Options options;
  ResolvedCase resolved;
  resolved.engine.plugin = "kvcts_engine_memcpy";
  EXPECT_EQ(watch_ms(resolved, options), 0);
  resolved.settle_ms = 2'000;  // the case asks for it
  EXPECT_EQ(watch_ms(resolved, options), 2'000);
  resolved.settle_ms = ResolvedCase{}.settle_ms;
  ::setenv("KVCTS_ENGINE_PATH", "/elsewhere", 1);  // another library of that name
  EXPECT_EQ(watch_ms(resolved, options), options.watch_ms);
  ::unsetenv("KVCTS_ENGINE_PATH");
  resolved.performer = Performer::program;
  EXPECT_EQ(watch_ms(resolved, options), options.watch_ms);
  resolved.performer = Performer::engine;
  resolved.engine.plugin = "kvcts_engine_shm";
  EXPECT_EQ(watch_ms(resolved, options), options.watch_ms);
  resolved.settle_ms = 0;
  EXPECT_EQ(watch_ms(resolved, options), 0);
  options.watch_asked = true;
  EXPECT_EQ(watch_ms(resolved, options), options.watch_ms);
}

}  // namespace
}  // namespace kvcts::supervisor
