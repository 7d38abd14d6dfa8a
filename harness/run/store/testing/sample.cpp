#include "run/store/testing/sample.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "run/store/counts.hpp"

namespace kvcts::store::sample {
namespace fs = std::filesystem;

RunInfo info() {
  RunInfo out;
  out.suite = "sample";
  out.selection = "--suite sample -e 'dtype==bf16 && engine!=nixl'";
  out.seed = 0xFFFFFFFFFFFFFFF0ULL;
  out.version = "0.1.0";
  out.machine = {{"cpu", "a CPU of 4 cores"}, {"memory_bytes", 34359738368}, {"gpus", nlohmann::json::array()}};
  out.provenance = {{"commit", "ef559fb+"},
                    {"cases", "00ff"},
                    {"golden", "ff00"},
                    {"host", "builder"},
                    {"ci", {{"system", "GitLab CI"}, {"job", "nightly"}}}};
  return out;
}

PlannedCase planned(int n) {
  constexpr std::array archs{"cpu", "sm_75", "sm_90", "sm_120"};
  const int execution = n / 4;
  const auto* arch = archs[static_cast<std::size_t>(n % 4)];
  return {fmt::format("flash_attn-nhd/memcpy/case={}/{}", execution, arch),
          fmt::format("digest{:026}", n),
          fmt::format("execution{:023}", execution),
          {Expected{}}};
}

std::vector<PlannedCase> plan(int count) {
  std::vector<PlannedCase> out;
  for (int n = 0; n < count; ++n) out.push_back(planned(n));
  return out;
}

CaseResult passed(const PlannedCase& from) {
  const auto execution = static_cast<std::int64_t>(std::hash<std::string>{}(from.execution) % 100000);
  CaseResult out;
  out.id = from.id;
  out.case_digest = from.digest;
  out.execution = from.execution;
  out.seed = 1;
  out.outcome = Outcome::pass;
  out.verdict = Verdict::as_expected;
  out.evidence = from.id.ends_with("/cpu") ? Evidence::executed : Evidence::modelled;
  out.message = "every byte as declared";
  for (int i = 0; i < phase_count; ++i) out.phases.push_back({static_cast<Phase>(i), execution * 10 + i});
  out.wall_ns = 400000 + execution;
  out.peak_bytes = 1 << 20;
  out.checked_bytes = 262144 + execution;
  out.planned_bytes = out.moved_bytes = out.expected_bytes = 65536;
  out.copies = 32;
  out.worker = "lane0/worker1";
  out.worker_ordinal = execution;
  out.facts = {
      {"arch", from.id.substr(from.id.rfind('/') + 1)}, {"dtype", "bf16"}, {"producer", "flash_attn"}, {"engine", "memcpy"}};
  return out;
}

std::vector<CaseResult> every_kind() {
  std::vector<CaseResult> out;
  out.reserve(32);  // references into it are held below
  const auto add = [&](std::string id, Outcome outcome, Verdict verdict, std::string message) -> CaseResult& {
    CaseResult r;
    r.id = "every/" + std::move(id);
    r.case_digest = fmt::format("d{:031}", out.size());
    r.execution = fmt::format("e{:031}", out.size());
    r.seed = 7;
    r.outcome = outcome;
    r.verdict = verdict;
    r.message = std::move(message);
    r.facts = {{"arch", "sm_75"}, {"engine", "memcpy"}};
    if (was_executed(outcome)) {
      r.phases = {{Phase::resolve, 1000}, {Phase::allocate, 20000}};
      r.wall_ns = 1500000;
    }
    return out.emplace_back(std::move(r));
  };
  add("pass", Outcome::pass, Verdict::as_expected, "every byte as declared").evidence = Evidence::executed;

  auto& fail =
      add("fail <&>'\"`$", Outcome::fail, Verdict::unexpected,
          "31,744 of 65,536 bytes are wrong: <b>not bold</b> & \"quoted\" ]]> \x1b[31mred\x07 nul:" + std::string(1, '\0') +
              " broken:\xff\xfe end");
  fail.phase = Phase::compare;
  fail.diagnosis = {FaultClass::axis_permuted,
                    true,
                    "written HND, read as NHD: explains 100 % of 31,744 wrong bytes",
                    "compare the declared axis order with the strides",
                    {{FaultClass::axis_permuted, "head <-> slot in layer 0 only", 0.5, true}}};
  fail.wrong_bytes = 31744;
  fail.checked_bytes = 65536;
  fail.digests = {{"0123456789abcdef", "0123456789abcdef"}, {"00000000ffffffff", "8899aabbccddeeff"}};
  fail.first_wrong = {{"consumer/g0/r0/kv.L0", 256, "3c01", "3c09", "K layer 0 block 3 slot 2 head 1 channel 0..3"},
                      {"consumer/g0/r0/kv.L0", -1, "a5", "00", "guard below"}};

  auto& fail2 = add("fail again", Outcome::fail, Verdict::unexpected, fail.message);
  fail2.message =
      "128 of 512 bytes are wrong: <b>not bold</b> & \"quoted\" ]]> \x1b[31mred\x07 nul:" + std::string(1, '\0') +
      " broken:\xff\xfe end";
  fail2.phase = Phase::compare;
  fail2.diagnosis = fail.diagnosis;

  auto& refused = add("refused", Outcome::refused, Verdict::as_expected, "expected 5 dimensions, got 3");
  refused.phase = Phase::registration;

  auto& hang = add("hang", Outcome::hang, Verdict::unexpected, "no progress for 2.0 s in complete: all bytes arrived");
  hang.phase = Phase::complete;
  hang.hang = HangKind::stalled;
  hang.diagnosis.fault_class = FaultClass::hang_transfer;
  hang.evidence_files = {{"stack", "#0 poll ()\n#1 main ()"}, {"stdout", "\x1b]0;title\x07 caf\xc3\xa9 \xe2\x80\xae rtl"}};

  auto& crash = add("crash", Outcome::crash, Verdict::unexpected, "the worker died of SIGSEGV while transferring");
  crash.phase = Phase::transfer;
  crash.signal = "SIGSEGV";
  crash.ran_before = "every/pass";

  add("unsupported", Outcome::unsupported, Verdict::as_expected, "fp8 conversion needs sm_89");
  add("skipped", Outcome::skipped, Verdict::skipped, "no GPU on this machine");
  add("not_run", Outcome::not_run, Verdict::not_run, "budget of 60 s used up");
  add("error", Outcome::error, Verdict::error, "the checker did not answer");

  auto& xfail = add("xfail", Outcome::fail, Verdict::xfail, "7 bytes are wrong");
  xfail.phase = Phase::compare;
  xfail.waiver = "mooncake-lbhnc";
  add("xpass", Outcome::pass, Verdict::xpass, "every byte as declared").waiver = "mooncake-lbhnc";
  auto& expired = add("expired", Outcome::fail, Verdict::expired_waiver, "9 bytes are wrong");
  expired.phase = Phase::compare;
  expired.waiver = "old-waiver";
  auto& flaky = add("flaky", Outcome::flaky, Verdict::unexpected, "failed 2 of 10 tries; in try 4: CRASH: the worker died");
  flaky.phase = Phase::transfer;
  flaky.signal = "SIGBUS";
  flaky.tries = {10,
                 2,
                 0,
                 {{4, Outcome::crash, Phase::transfer, FaultClass::none, "the worker died <4>", 1500000},
                  {8, Outcome::fail, Phase::compare, FaultClass::stale_block, "7 bytes are wrong", 900000}}};
  auto& always = add("always", Outcome::fail, Verdict::unexpected, "3 bytes are wrong");
  always.tries = {3,
                  3,
                  2,
                  {{1, Outcome::fail, std::nullopt, FaultClass::none, "3 bytes are wrong", 1},
                   {2, Outcome::fail, std::nullopt, FaultClass::none, "3 bytes are wrong", 1},
                   {3, Outcome::hang, Phase::complete, FaultClass::none, "no progress", 1}}};
  return out;
}

std::vector<PlannedCase> plan_for(const std::vector<CaseResult>& results) {
  std::vector<PlannedCase> out;
  for (const auto& r : results) out.push_back({r.id, r.case_digest, r.execution, {Expected{}}});
  return out;
}

CaseResult as_stored(const CaseResult& result) { return result_from_json(to_json(result)); }

}  // namespace kvcts::store::sample
