#include "run/store/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "run/store/rows.hpp"
#include "run/store/schema.hpp"

namespace kvcts::store {
namespace {

std::optional<Ending> ending_from_name(std::string_view word) {
  for (const auto ending : {Ending::complete, Ending::interrupted, Ending::budget})
    if (name(ending) == word) return ending;
  return std::nullopt;
}

bool declares_not_run(const std::vector<Expected>& expected) {
  return std::any_of(expected.begin(), expected.end(), [](const Expected& e) { return e.outcome == Outcome::not_run; });
}

// Why an undecided case has no result.
std::string reason_not_run(const Session* last, bool by_case) {
  if (by_case) return "declared not to be run";
  if (last == nullptr || !last->ending) return "planned, but the run ended before it (killed, or still running)";
  switch (*last->ending) {
    case Ending::complete:
      return "planned, but the run ended without a result for it";
    case Ending::interrupted:
      return "the run was interrupted" + (last->reason.empty() ? "" : ": " + last->reason);
    case Ending::budget:
      return last->reason.empty() ? "the budget was exhausted" : last->reason;
  }
  return "?";
}

bool run_declares(const Session* last) { return last != nullptr && last->ending && *last->ending != Ending::complete; }

bool is_time(std::int64_t ms) { return ms >= 0 && ms < 253'402'300'800'000; }

constexpr const char* places_are_0_to_n =
    "SELECT n = run.planned AND first >= 0 AND last < n AND (SELECT COALESCE(MIN(ordinal), 0) FROM results) >= 0"
    " AND (SELECT COALESCE(MAX(ordinal), -1) FROM results) < n FROM run,"
    " (SELECT COUNT(*) AS n, COALESCE(MIN(ordinal), 0) AS first, COALESCE(MAX(ordinal), -1) AS last FROM planned)";

constexpr const char* columns =
    "SELECT p.ordinal, p.id, p.digest, p.execution, p.expected, p.seal,"
    " r.execution, r.verdict, r.evidence, r.waiver, r.facts, r.seal,"
    " e.digest, e.hash, e.ran, e.first, e.outcome, e.phase, e.fault_class, e.wall_ns, e.body, e.seal, e.n,"
    " CASE WHEN e.first <> p.ordinal THEN (SELECT id FROM planned WHERE ordinal = e.first) END"
    " FROM planned p LEFT JOIN results r ON r.ordinal = p.ordinal LEFT JOIN executions e ON e.n = r.execution ";

}  // namespace

RunReader::RunReader(std::shared_ptr<Db> db, std::filesystem::path directory)
    : db_(std::move(db)), directory_(std::move(directory)) {}

RunReader RunReader::open(const std::filesystem::path& directory) {
  auto db = std::make_shared<Db>(directory / "store.db", OpenMode::read);
  check_store(*db);
  RunReader reader(std::move(db), directory);
  reader.info();  // checks the seals of what every report shows
  reader.sessions();
  reader.planned();
  return reader;
}

RunInfo RunReader::info() const {
  SqlStatement get(*db_, "SELECT info, COALESCE(planned, -1), seal FROM run");
  if (!get.step()) {
    throw Error(fmt::format("run store {}: holds no run (it was stopped while being created); delete {} and start again",
                            db_->path().string(), directory_.string()));
  }
  const std::string info(get.text(0));
  const auto planned = get.number(1);
  if (seal_run(info, planned) != get.number(2)) db_->damaged("the description of the run");
  if (planned >= 0 && !db_->number(places_are_0_to_n)) db_->damaged("the plan");
  return db_->reading("the description of the run", [&] { return info_from_text(info); });
}

bool RunReader::planned() const { return db_->number("SELECT COALESCE(planned, -1) FROM run") >= 0; }

std::vector<Session> RunReader::sessions() const {
  std::vector<Session> out;
  SqlStatement get(*db_, "SELECT n, argv, pid, started_ms, touched_ms, ending, reason, seal FROM sessions ORDER BY n");
  while (get.step()) {
    Session session;
    session.argv = db_->reading("a sitting of the run", [&] { return argv_from_text(get.text(1)); });
    session.pid = get.number(2);
    session.started_ms = get.number(3);
    session.ended_ms = get.number(4);
    session.ending = ending_from_name(get.text(5));
    session.reason = get.text(6);
    if (seal_session(get.number(0), session) != get.number(7)) db_->damaged("a sitting of the run");
    if (!is_time(session.started_ms) || !is_time(session.ended_ms))
      db_->damaged("a sitting of the run", "expected times before the year 10000");
    out.push_back(std::move(session));
  }
  return out;
}

Row RunReader::read_row(SqlStatement& from, SqlStatement& phases, SqlStatement& evidence) const {
  Row row;
  row.ordinal = from.number(0);
  row.planned.id = from.text(1);
  row.planned.digest = from.text(2);
  row.planned.execution = from.text(3);
  const auto where = [&] { return fmt::format("case {} '{}'", row.ordinal, row.planned.id); };
  if (seal_planned(row.ordinal, from.text(1), from.text(2), from.text(3), from.text(4)) != from.number(5))
    db_->damaged(fmt::format("planned case {}", row.ordinal));
  row.planned.expected = db_->reading(where, [&] { return expected_from_text(from.text(4)); });
  if (from.is_null(6)) return row;

  row.decided = true;
  const ResultRow own{std::string(from.text(7)), std::string(from.text(8)), std::string(from.text(9)),
                      std::string(from.text(10))};
  if (seal_result(row.ordinal, from.number(6), own) != from.number(11) || from.is_null(22))
    db_->damaged("the result of " + where());
  ExecutionRow execution;
  execution.digest = from.text(12);
  execution.ran = from.number(14) != 0;
  const auto first = from.number(15);
  execution.outcome = from.text(16);
  execution.phase = from.text(17);
  execution.fault_class = from.text(18);
  execution.wall_ns = from.number(19);
  execution.body = from.text(20);
  phases.bind(1, from.number(22));
  while (phases.step()) {
    const auto phase = phase_from_name(phases.text(0));
    if (!phase || phases.number(1) < 0 || phases.number(1) > std::int64_t{1} << 53) db_->damaged("the phases of " + where());
    execution.phases.push_back({*phase, phases.number(1)});
  }
  evidence.bind(1, from.number(22));
  while (evidence.step()) execution.evidence.push_back({std::string(evidence.text(0)), std::string(evidence.text(1))});
  if (hash(execution) != from.text(13) || seal_execution(from.text(13), first) != from.number(21))
    db_->damaged("the execution of " + where());
  row.result = db_->reading(where, [&] { return join(row.planned, execution, own); });
  row.executions = execution.ran && first == row.ordinal ? 1 : 0;
  if (first != row.ordinal) row.shared_with = from.text(23);
  return row;
}

void RunReader::select(std::string_view where, std::string_view bound, const std::function<void(const Row&)>& visit) const {
  const auto all_sessions = sessions();
  const Session* last = all_sessions.empty() ? nullptr : &all_sessions.back();
  SqlStatement rows(*db_, std::string(columns) + std::string(where) + " ORDER BY p.ordinal");
  SqlStatement phases(*db_, "SELECT phase, ns FROM phases WHERE execution = ? ORDER BY seq");
  SqlStatement evidence(*db_, "SELECT kind, text FROM evidence WHERE execution = ? ORDER BY seq");
  if (!bound.empty()) rows.bind(1, bound);
  while (rows.step()) {
    Row row = read_row(rows, phases, evidence);
    if (!row.decided) {
      const bool by_case = declares_not_run(row.planned.expected);
      row.declared_not_run = by_case || run_declares(last);
      row.result.id = row.planned.id;
      row.result.case_digest = row.planned.digest;
      row.result.execution = row.planned.execution;
      row.result.message = reason_not_run(last, by_case);
    }
    visit(row);
  }
}

void RunReader::for_each(const std::function<void(const Row&)>& visit) const { select("", "", visit); }

void RunReader::for_each_brief(const std::function<void(const Brief&)>& visit) const {
  const auto all_sessions = sessions();
  const bool run_says = run_declares(all_sessions.empty() ? nullptr : &all_sessions.back());
  SqlStatement get(*db_,
                   "SELECT p.ordinal, p.id, p.expected, r.execution, r.verdict, r.evidence, r.waiver, r.facts, r.seal,"
                   " e.outcome, e.phase, e.fault_class, e.wall_ns, e.ran <> 0 AND e.first = p.ordinal,"
                   " CASE e.outcome WHEN 'FLAKY' THEN json_extract(e.body, '$.tries.made') END,"
                   " CASE e.outcome WHEN 'FLAKY' THEN json_extract(e.body, '$.tries.failed') END"
                   " FROM planned p LEFT JOIN results r ON r.ordinal = p.ordinal LEFT JOIN executions e ON e.n = r.execution"
                   " ORDER BY p.ordinal");
  while (get.step()) {
    Brief one;
    one.id = get.text(1);
    one.decided = !get.is_null(3);
    if (one.decided) {
      const ResultRow own{std::string(get.text(4)), std::string(get.text(5)), std::string(get.text(6)),
                          std::string(get.text(7))};
      const auto outcome = outcome_from_name(get.text(9));
      const auto verdict = verdict_from_name(own.verdict);
      const auto fault = fault_class_from_name(get.text(11));
      if (seal_result(get.number(0), get.number(3), own) != get.number(8) || !outcome || !verdict || !fault)
        db_->damaged(fmt::format("the result of case {} '{}'", get.number(0), one.id));
      one.facts = get.text(7), one.outcome = *outcome, one.verdict = *verdict, one.fault_class = *fault;
      one.phase = phase_from_name(get.text(10));
      one.wall_ns = get.number(12), one.own_execution = get.number(13) != 0;
      one.made = std::max<std::int64_t>(1, get.number(14)), one.failed = get.number(15);
    } else {
      one.declared_not_run =
          run_says || declares_not_run(db_->reading("the plan", [&] { return expected_from_text(get.text(2)); }));
    }
    visit(one);
  }
}

std::vector<Row> RunReader::rows() const {
  std::vector<Row> out;
  for_each([&](const Row& row) { out.push_back(row); });
  return out;
}

std::vector<CaseResult> RunReader::results() const {
  std::vector<CaseResult> out;
  for_each([&](const Row& row) {
    if (row.decided) out.push_back(row.result);
  });
  return out;
}

std::optional<Row> RunReader::find(std::string_view id) const {
  std::optional<Row> out;
  select("WHERE p.id = ?", id, [&](const Row& row) { out = row; });
  return out;
}

/// Of the skipped cases, most frequent first.
static std::vector<Lack> lacks_of(Db& db) {
  std::map<std::pair<std::string, bool>, std::int64_t> lacks;
  SqlStatement skipped(db,
                       "SELECT r.facts FROM results r JOIN executions e ON e.n = r.execution"
                       " WHERE e.outcome = 'SKIPPED' AND r.verdict = 'skipped'");
  while (skipped.step()) {
    db.reading("a skipped case", [&] {
      const auto lack = facts_from_text(skipped.text(0)).value("lack", nlohmann::json::object());
      ++lacks[{lack.value("name", ""), lack.value("optional", false)}];
    });
  }
  std::vector<Lack> out;
  for (const auto& [lack, n] : lacks) out.push_back({lack.first, lack.second, n});
  std::ranges::stable_sort(out, std::greater(), &Lack::count);
  return out;
}

Counts RunReader::counts() const {
  Counts out;
  out.planned = db_->number("SELECT COUNT(*) FROM planned");
  SqlStatement decided(
      *db_,
      "SELECT e.outcome, r.verdict, r.evidence, e.ran, COUNT(*) FROM results r JOIN executions e ON e.n = r.execution"
      " GROUP BY 1, 2, 3, 4");
  while (decided.step()) {
    const auto outcome = outcome_from_name(decided.text(0));
    const auto verdict = verdict_from_name(decided.text(1));
    const auto evidence = evidence_from_name(decided.text(2));
    if (!outcome || !verdict || !evidence) db_->damaged("a word of a result");
    const auto n = decided.number(4);
    out.decided += n;
    out.outcome[static_cast<std::size_t>(*outcome)] += n;
    out.verdict[static_cast<std::size_t>(*verdict)] += n;
    if (decided.number(3) != 0) out.ids[static_cast<std::size_t>(*evidence)] += n;
  }
  SqlStatement unique(
      *db_,
      "SELECT strength, COUNT(*), SUM(wall_ns) FROM (SELECT e.wall_ns AS wall_ns,"
      " MAX(CASE r.evidence WHEN 'executed' THEN 2 WHEN 'compiled' THEN 1 ELSE 0 END) AS strength"
      " FROM executions e JOIN results r ON r.execution = e.n WHERE e.ran <> 0 GROUP BY e.n) GROUP BY strength");
  while (unique.step()) {
    if (unique.number(2) < 0 || unique.number(2) > std::int64_t{1} << 60)  // three of them still add up
      db_->damaged("the times of its cases", "expected at most 2^60 ns in all");
    out.executions[static_cast<std::size_t>(unique.number(0))] += unique.number(1);
    out.case_ns += unique.number(2);
  }
  const auto all_sessions = sessions();
  const Session* last = all_sessions.empty() ? nullptr : &all_sessions.back();
  out.interrupted = last != nullptr && last->ending == Ending::interrupted;
  out.allow_incomplete =
      last != nullptr && std::find(last->argv.begin(), last->argv.end(), allow_incomplete_flag) != last->argv.end();
  if (last != nullptr && last->ending == Ending::budget) out.stopped = last->reason;
  const RunInfo about = info();
  out.left_out = about.left_out;
  out.not_isolated = why_not_isolated(about);
  out.lacks = lacks_of(*db_);
  const auto undecided = out.planned - out.decided;
  out.outcome[static_cast<std::size_t>(Outcome::not_run)] += undecided;
  out.verdict[static_cast<std::size_t>(Verdict::not_run)] += undecided;
  if (undecided > 0 && !run_declares(last)) {
    SqlStatement absent(*db_, "SELECT expected FROM planned WHERE ordinal NOT IN (SELECT ordinal FROM results)");
    while (absent.step()) {
      const auto expected = db_->reading("the plan", [&] { return expected_from_text(absent.text(0)); });
      out.missing += declares_not_run(expected) ? 0 : 1;
    }
  }
  return out;
}

}  // namespace kvcts::store
