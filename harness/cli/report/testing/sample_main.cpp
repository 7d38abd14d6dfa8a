// A run that never was, for tests of the page: cases of the catalogue with made-up results, so that every outcome, verdict
// and evidence is in it, with pictures, stacks and texts that are hard to print. And the C++ answers to what the page's
// script works out for itself.
//
//   kvcts_report_sample write DIR [CASES]   a run store; up to 10,000 cases (default: suite smoke)
//   kvcts_report_sample where DIR           expressions from standard input, one a line -> JSON: row numbers, or the error
//   kvcts_report_sample pairs DIR           -> JSON: pairs of values in cases that ran, and in others only (covering_subset,
//   strength 2)
#include <fmt/format.h>

#include <functional>
#include <iostream>

#include "case/resolve/resolve.hpp"
#include "cli/report/picture.hpp"
#include "cli/report/vocabulary.hpp"
#include "matrix/ids.hpp"
#include "matrix/select.hpp"
#include "run/store/testing/sample.hpp"
#include "testing/checkout.hpp"

namespace {

using namespace kvcts;
using nlohmann::json;

const std::string cases_folder = checkout::source() + "/cases";

/// Copies of the K and the V of each block as they lie, whatever the layouts say: the commonest fault there is.
json raw_block_plan(const ResolvedCase& c) {
  const auto &producer = c.groups.at(0).producer.ranks.at(0), &consumer = c.groups.at(0).consumer.ranks.at(0);
  const auto& request = c.groups.at(0).requests.at(0);
  // Bytes of K (or V) of one block of one layer.
  const auto half = [&](const RankCache& rank) {
    const auto& g = rank.geometry;
    return g.block_size * g.heads * g.head_dim * layout::bits(rank.truth.planes[0].dtype) / 8;
  };
  const auto begin = [](const RankCache& rank, std::int64_t kv, std::int64_t block) {
    layout::Coord at = rank.truth.planes[0].origin;
    at[layout::Axis::kv] = kv, at[layout::Axis::block] = block;
    return layout::locate(rank.truth, layout::Component::data, at);
  };
  const auto bytes = std::min(half(producer), half(consumer));
  json sample = json::array();
  for (std::size_t i = 0; i < std::min(request.producer_blocks.size(), request.consumer_blocks.size()); ++i) {
    for (std::int64_t kv = 0; kv < 2; ++kv) {
      const auto from = begin(producer, kv, request.producer_blocks[i]),
                 to = begin(consumer, kv, request.consumer_blocks[i]);
      if (from && to) sample.push_back({from->allocation, from->bit / 8, to->allocation, to->bit / 8, bytes});
    }
  }
  return {{"sample", sample},
          {"copies", sample.size()},
          {"bytes", bytes * static_cast<std::int64_t>(sample.size())},
          {"relayout", false}};
}

/// Results of one case after the other. Which ends how depends on its axis values, as real faults do.
class Story {
 public:
  Story(const catalogue::Catalogue& catalogue, const matrix::Selection& selection)
      : catalogue_(catalogue), selection_(selection) {}

  store::PlannedCase planned(std::size_t i) const {
    const std::string id = selection_.id(i);
    const auto at = id.find("/arch=");
    const std::string execution =
        at == std::string::npos ? id : id.substr(0, at) + id.substr(std::min(id.find('/', at + 1), id.size()));
    return {
        id, fmt::format("{:032x}", matrix::id_hash(id)), fmt::format("{:032x}", matrix::id_hash(execution)), {Expected{}}};
  }

  /// Nothing: planned, but never decided.
  std::optional<CaseResult> result(std::size_t i, store::PlannedCase& plan) {
    CaseResult r = store::sample::passed(plan);
    r.facts = selection_.facts(i);
    const json axes = r.facts["axes"];
    const auto is = [&](const char* axis, std::string_view value) { return axes.value(axis, "") == value; };
    const std::string arch = axes.value("arch", "cpu");
    r.evidence = arch == "sm_90"                       ? Evidence::executed
                 : arch == "sm_80" || arch == "sm_100" ? Evidence::compiled
                                                       : Evidence::modelled;
    r.facts["engine"] = axes.value("engine", "memcpy");
    r.facts["engine_version"] = "1.2.0";
    r.worker = "lane0/worker1";
    const bool unlike = axes.value("producer", "") != axes.value("consumer", "");

    if (const auto declared = selection_.declared(i)) {
      r = not_run(r, declared->outcome == Outcome::refused ? Outcome::refused : Outcome::unsupported, Verdict::as_expected,
                  declared->reason);
      plan.expected = {Expected{r.outcome, {}, std::nullopt, ""}};
      return r;
    }
    if (is("engine", "ucx-tcp"))
      return not_run(r, Outcome::skipped, Verdict::skipped, "engine ucx-tcp: this machine's UCX has no transport tcp");
    if (is("geometry", "one-token"))
      return not_run(r, Outcome::not_run, Verdict::not_run, "the budget of 60 s was spent by the cases before it");
    if (is("dtype", "fp8_e5m2") && unlike) return failed(r, i, Verdict::unexpected);
    if (is("dtype", "mxfp8") && unlike) return hung(r);
    if (is("geometry", "d80") && is("engine", "shm")) return crashed(r);
    if (is("dtype", "int4") && is("engine", "ucx-shm")) {
      r = failed(r, i, is("op", "read") ? Verdict::expired_waiver : Verdict::xfail);
      r.waiver = is("op", "read") ? "old-nibbles" : "int4-nibbles";
      return r;
    }
    if (is("dtype", "nvfp4") && is("op", "read") && unlike) {
      r.verdict = Verdict::xpass;
      r.waiver = "nvfp4-scales";
      return r;
    }
    if (is("geometry", "heads-eq-block") && is("misalign", "64") && unlike)
      return not_run(r, Outcome::error, Verdict::error, "the checker did not answer within 30 s in compare");
    if (is("geometry", "block-2") && is("ids", "reversed") && is("op", "read")) return std::nullopt;
    return r;
  }

 private:
  static CaseResult not_run(CaseResult r, Outcome outcome, Verdict verdict, std::string why) {
    r.outcome = outcome;
    r.verdict = verdict;
    r.message = std::move(why);
    if (outcome == Outcome::unsupported || outcome == Outcome::skipped || outcome == Outcome::not_run) {
      r.phases.clear();
      r.wall_ns = r.checked_bytes = r.planned_bytes = r.moved_bytes = r.expected_bytes = r.copies = r.peak_bytes = 0;
      r.worker.clear();
    }
    return r;
  }
  CaseResult failed(CaseResult r, std::size_t i, Verdict verdict) {
    const CaseSpec spec = selection_.spec(i);
    r.outcome = Outcome::fail;
    r.phase = Phase::compare;
    r.verdict = verdict;
    r.wrong_bytes = 31744 + static_cast<std::int64_t>(i);
    r.diagnosis = {FaultClass::axis_permuted,
                   true,
                   fmt::format("blocks were moved as they are: explains 100 % of {} wrong bytes", r.wrong_bytes),
                   "Compare the axis order that is declared with the strides of the tensor that is really handed over.",
                   {{FaultClass::axis_permuted, "blocks were moved as they are"},
                    {FaultClass::kv_split_vs_interleaved, "the same for this geometry"}}};
    r.message = fmt::format("{} wrong bytes; {}", r.wrong_bytes, r.diagnosis.text);
    const ResolvedCase resolved = resolve(spec, catalogue_);
    const auto& consumer = resolved.groups[0].consumer.ranks[0];
    const std::string region = "consumer/g0/r0/" + consumer.truth.allocations[0].name;
    for (int k = 1; k <= 3; ++k) {
      r.first_wrong.push_back({region, 128 * k, "9b8ff714d708ab02", "1315f7899f9ad7ba",
                               fmt::format("K layer 0 block 0 slot 0 head {} channel 0..7", k)});
    }
    r.first_wrong.push_back({region, -8, "a5a5a5a5a5a5a5a5", "0000000000000000", "guard below"});
    r.picture = report::picture(resolved, raw_block_plan(resolved));
    return r;
  }
  static CaseResult hung(CaseResult r) {
    r.outcome = Outcome::hang;
    r.hang = HangKind::stalled;
    r.phase = Phase::complete;
    r.verdict = Verdict::unexpected;
    r.diagnosis.fault_class = FaultClass::hang_transfer;
    r.message = "no progress for 2.0 s in complete: all bytes arrived, the completion never did";
    r.evidence_files = {{"stack", "thread 1 (kvcts-worker)\n#0  poll ()\n#1  ucp_worker_wait ()\n#2  main ()"},
                        {"stdout", "posted 32 copies\n"}};
    return r;
  }
  static CaseResult crashed(CaseResult r) {
    r.outcome = Outcome::crash;
    r.signal = "SIGSEGV";
    r.phase = Phase::transfer;
    r.verdict = Verdict::unexpected;
    r.message = "the worker died of SIGSEGV while transferring; 24,576 of 65,536 bytes had arrived";
    r.ran_before = "kv/producer=vllm-fa-nhd";
    r.evidence_files = {{"stderr", "kvcts-worker: segmentation fault at 0x7f0000000000\n"}};
    return r;
  }

  const catalogue::Catalogue& catalogue_;
  const matrix::Selection& selection_;
};

int write(const std::string& directory, std::size_t most) {
  const catalogue::Catalogue catalogue(cases_folder);
  matrix::Query query;
  query.suites = {most > 600 ? "full" : "smoke"};
  if (most > 600) query.shards = 100;
  const auto selection = matrix::select(catalogue, query);
  const std::size_t count = std::min(most, selection.size());
  Story story(catalogue, selection);

  auto results = store::sample::every_kind();
  auto hostile = results.at(1);  // the first failure
  hostile.id = "every/<i>id</i>";
  hostile.case_digest = hostile.execution = "hostile";
  results.push_back(hostile);
  auto plan = store::sample::plan_for(results);
  plan.push_back({"every/absent", "d", "x", {}});
  plan.push_back({"every/left out", "d", "y", {Expected{Outcome::not_run, {}, std::nullopt, ""}}});
  for (std::size_t i = 0; i < count; ++i) {
    auto planned = story.planned(i);
    if (auto result = story.result(i, planned)) {
      result->case_digest = planned.digest;
      result->execution = planned.execution;
      results.push_back(std::move(*result));
    }
    plan.push_back(std::move(planned));
  }
  auto info = store::sample::info();
  info.suite = "sample (made up)";
  info.machine["gpus"] = {
      {{"name", "a GPU that is not here"}, {"arch", "sm_90"}, {"memory_bytes", 85899345920}, {"driver", "575.00"}}};
  for (int n = 0; n < 40; ++n) info.machine["packages"][fmt::format("package_{}", n)] = fmt::format("{}.1.0.post1", n);
  info.machine["packages"]["engines/mooncake-0.3.12.post1/mooncake_transfer_engine_non_cuda"] = "0.3.12.post1";
  auto store = store::RunStore::create(directory, info, {"kvcts", "run", "--suite", "sample"});
  store.plan(plan);
  for (const auto& result : results) store.record(result);
  store.finish(store::Ending::complete);
  return 0;
}

int where(const std::string& directory) {
  const catalogue::Catalogue catalogue(cases_folder);
  matrix::Space space(catalogue);
  const auto rows = store::RunReader::open(directory).rows();
  json out = json::array();
  for (std::string line; std::getline(std::cin, line);) {
    json one{{"expression", line}};
    try {
      const matrix::Expression expression(line, space);
      one["rows"] = json::array();
      for (const auto& row : rows) {
        const auto axes = row.result.facts.find("axes");
        const json values = axes == row.result.facts.end() ? report::axes_of_id(space, row.planned.id) : *axes;
        if (expression.evaluate(matrix::lookup_of(space, values), row.planned.id)) one["rows"].push_back(row.ordinal);
      }
    } catch (const matrix::Error& error) {
      one["error"] = error.what();
    }
    out.push_back(std::move(one));
  }
  std::cout << out.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  return 0;
}

int pairs(const std::string& directory) {
  const catalogue::Catalogue catalogue(cases_folder);
  matrix::Space space(catalogue);
  const matrix::Constraints constraints(space);
  std::vector<matrix::Point> points;
  std::vector<int> stopped;
  for (const auto& row : store::RunReader::open(directory).rows()) {
    if (!matrix::is_matrix_id(row.planned.id)) continue;
    points.push_back(matrix::point_from_id(space, row.planned.id));
    // Effective block sizes are what the axes of a result say.
    for (const auto side : {matrix::AxisId::pbs, matrix::AxisId::cbs})
      matrix::at(points.back(), side) = space.number(side, std::to_string(space.block_size(points.back(), side)));
    stopped.push_back(row.decided && !row.result.phases.empty() ? 0 : 1);
  }
  // Every row that did not run is stopped by the first constraint there is: only the count is asked for.
  matrix::CoverReport report;
  matrix::covering_subset(space, constraints, points, stopped, 2, report);
  std::cout << json{{"ran", report.tuples}, {"stopped", report.excluded.size()}}.dump() << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() >= 2 && args[0] == "write") return write(args[1], args.size() > 2 ? std::stoul(args[2]) : 600);
  if (args.size() == 2 && args[0] == "where") return where(args[1]);
  if (args.size() == 2 && args[0] == "pairs") return pairs(args[1]);
  std::cerr << "usage: kvcts_report_sample write DIR [CASES] | where DIR | pairs DIR\n";
  return 2;
} catch (const std::exception& error) {
  std::cerr << "kvcts_report_sample: " << error.what() << '\n';
  return 3;
}
