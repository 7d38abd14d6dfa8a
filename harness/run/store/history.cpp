#include "run/store/history.hpp"

#include <fmt/format.h>

#include <map>
#include <system_error>

#include "run/store/rows.hpp"
#include "run/store/schema.hpp"

namespace kvcts::store {
namespace {

constexpr std::int64_t history_id = 0x4B564348;  // "KVCH"
constexpr std::int64_t history_version = 1;

constexpr const char* tables = R"sql(
CREATE TABLE runs(
  n INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,   -- digest of the description and of the first sitting: the same run is the same everywhere
  content TEXT NOT NULL,      -- digest of the sessions: a resumed run has others
  suite TEXT NOT NULL,
  started_ms INTEGER NOT NULL,
  info TEXT NOT NULL) STRICT;
CREATE TABLE cases(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, axes TEXT NOT NULL) STRICT;
CREATE TABLE endings(n INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE results(
  run INTEGER NOT NULL,
  nth INTEGER NOT NULL,       -- of the case
  mark TEXT NOT NULL,         -- . F ~ x -
  ending INTEGER NOT NULL,    -- 0: none
  ns INTEGER NOT NULL,
  made INTEGER NOT NULL, failed INTEGER NOT NULL,
  PRIMARY KEY (run, nth)) STRICT, WITHOUT ROWID;
)sql";

Mark mark_of(const RunReader::Brief& row) {
  if (!row.decided) return row.declared_not_run ? Mark::not_run : Mark::bad;
  if (row.outcome == Outcome::flaky) return Mark::flaky;
  switch (row.verdict) {
    case Verdict::unexpected:
    case Verdict::expired_waiver:
    case Verdict::error:
      return Mark::bad;
    case Verdict::xfail:
    case Verdict::xpass:
      return Mark::waived;
    case Verdict::skipped:
    case Verdict::not_run:
      return Mark::not_run;
    case Verdict::as_expected:
      break;
  }
  return was_executed(row.outcome) ? Mark::good : Mark::not_run;
}

/// "FAIL axis-permuted at compare".
std::string ending_of(const RunReader::Brief& row) {
  if (!row.decided) return "absent";
  std::string out(name(row.outcome));
  if (row.fault_class != FaultClass::none) out += fmt::format(" {}", name(row.fault_class));
  return row.phase ? fmt::format("{} at {}", out, name(*row.phase)) : out;
}

/// Numbers of texts in a table of theirs.
class Interned {
 public:
  Interned(Db& db, const char* find, const char* add) : db_(db), find_(db, find), add_(db, add) {}
  std::int64_t number(const std::string& text, const std::function<std::string()>& more = nullptr) {
    const auto [at, fresh] = known_.try_emplace(text, 0);
    if (!fresh) return at->second;
    find_.bind(1, text);
    if (find_.step()) {
      at->second = find_.number(0);
      find_.reset();
    } else {
      add_.bind(1, text);
      if (more) add_.bind(2, more());
      add_.run();
      at->second = db_.last_row();
    }
    return at->second;
  }

 private:
  Db& db_;
  SqlStatement find_, add_;
  std::map<std::string, std::int64_t> known_;
};

void check(Db& db) {
  const auto refuse = [&](const std::string& what) { throw Error(fmt::format("history {}: {}", db.path().string(), what)); };
  if (db.number("PRAGMA application_id") != history_id)
    refuse("this is no history; expected a file that `kvcts history add` made");
  if (const auto version = db.number("PRAGMA user_version"); version != history_version)
    refuse(fmt::format("expected version {}, found {}; use the KV-CTS that wrote it", history_version, version));
}

}  // namespace

History History::open(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file))
    throw Error(fmt::format("history {}: not found; `kvcts history add RUN... --history FILE` makes one", file.string()));
  auto db = std::make_shared<Db>(file, OpenMode::read, "history");
  check(*db);
  return History(std::move(db));
}

History History::open_or_create(const std::filesystem::path& file) {
  const bool there = std::filesystem::exists(file);
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error) throw Error(fmt::format("history {}: its folder cannot be made: {}", file.string(), error.message()));
  auto db = std::make_shared<Db>(file, there ? OpenMode::write : OpenMode::create, "history");
  if (!there) {
    Transaction all(*db);
    db->run(fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", history_id, history_version).c_str());
    db->run(tables);
    all.commit();
  }
  check(*db);
  return History(std::move(db));
}

struct History::Texts {
  explicit Texts(Db& db)
      : cases(db, "SELECT n FROM cases WHERE id = ?", "INSERT INTO cases(id, axes) VALUES (?, ?)"),
        endings(db, "SELECT n FROM endings WHERE text = ?", "INSERT INTO endings(text) VALUES (?)") {}
  Interned cases, endings;
};

std::vector<History::Added> History::add(const std::vector<std::filesystem::path>& folders) {
  std::vector<Added> out;
  Transaction all(*db_);
  Texts texts(*db_);
  for (const auto& folder : folders) out.push_back(add(RunReader::open(folder), texts));
  all.commit();
  return out;
}

History::Added History::add(const RunReader& run, Texts& texts) {
  const RunInfo info = run.info();
  const std::vector<Session> all_sessions = run.sessions();
  std::string first, all, text = info_text(info);
  for (const Session& s : all_sessions) {
    const std::string one = fmt::format("{} {} {} {};", s.pid, s.started_ms, s.ended_ms, s.ending ? name(*s.ending) : "");
    if (first.empty()) first = fmt::format("{} {}", s.pid, s.started_ms);
    all += one;
  }
  const std::string key = digest({text, first}), content = digest({all});
  SqlStatement had(*db_, "SELECT n, content FROM runs WHERE key = ?");
  had.bind(1, key);
  Added out = Added::added;
  if (had.step()) {
    if (had.text(1) == content) return Added::known;
    for (const char* sql : {"DELETE FROM results WHERE run = ?", "DELETE FROM runs WHERE n = ?"}) {
      SqlStatement remove(*db_, sql);
      remove.bind(1, had.number(0)).run();
    }
    out = Added::replaced;
  }
  had.reset();
  SqlStatement put_run(*db_, "INSERT INTO runs(key, content, suite, started_ms, info) VALUES (?, ?, ?, ?, ?)");
  put_run.bind(1, key).bind(2, content).bind(3, info.suite).bind(4, info.started_ms).bind(5, text).run();
  const std::int64_t number = db_->last_row();
  SqlStatement put(*db_, "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?)");
  run.for_each_brief([&](const RunReader::Brief& row) {
    const Mark mark = mark_of(row);
    const char letter = static_cast<char>(mark);
    const bool own_time = mark == Mark::good && row.own_execution && row.outcome == Outcome::pass;
    const auto axes = [&] {
      const auto facts = nlohmann::json::parse(row.facts.empty() ? "{}" : row.facts, nullptr, false);
      return facts.is_object() ? facts.value("axes", nlohmann::json::object()).dump() : "{}";
    };
    put.bind(1, number)
        .bind(2, texts.cases.number(std::string(row.id), axes))
        .bind(3, std::string_view(&letter, 1))
        .bind(4, mark == Mark::good ? std::int64_t{0} : texts.endings.number(ending_of(row)))
        .bind(5, own_time ? row.wall_ns : std::int64_t{0})
        .bind(6, row.made)
        .bind(7, row.failed)
        .run();
  });
  return out;
}

std::vector<History::Run> History::runs(const std::string& suite, std::int64_t until_ms) const {
  std::vector<Run> out;
  SqlStatement get(*db_, "SELECT info FROM runs WHERE started_ms <= ?1 AND (?2 = '' OR suite = ?2) ORDER BY started_ms, n");
  get.bind(1, until_ms).bind(2, suite);
  while (get.step()) out.push_back({db_->reading("a run", [&] { return info_from_text(get.text(0)); })});
  return out;
}

void History::read(const std::string& suite, std::int64_t until_ms, std::string_view id,
                   const std::function<void(const CaseHistory&)>& visit) const {
  std::map<std::int64_t, std::string> endings{{0, ""}};
  SqlStatement words(*db_, "SELECT n, text FROM endings");
  while (words.step()) endings.emplace(words.number(0), words.text(1));
  std::map<std::int64_t, std::vector<Point>> cases;
  SqlStatement runs(*db_, "SELECT n FROM runs WHERE started_ms <= ?1 AND (?2 = '' OR suite = ?2) ORDER BY started_ms, n");
  runs.bind(1, until_ms).bind(2, suite);
  SqlStatement get(*db_, std::string("SELECT nth, mark, ending, ns, made, failed FROM results WHERE run = ?") +
                             (id.empty() ? "" : " AND nth = (SELECT n FROM cases WHERE id = ?)"));
  for (std::size_t run = 0; runs.step(); ++run) {
    get.bind(1, runs.number(0));
    if (!id.empty()) get.bind(2, id);
    while (get.step()) {
      const std::string_view mark = get.text(1);
      const auto ending = get.number(2) == 0 ? endings.begin() : endings.find(get.number(2));
      if (mark.size() != 1 || std::string_view(".F~x-").find(mark[0]) == std::string_view::npos || ending == endings.end())
        db_->damaged("a result", "expected one of . F ~ x - and a known ending");
      cases[get.number(0)].push_back(
          {run, static_cast<Mark>(mark[0]), ending->second, get.number(3), get.number(4), get.number(5)});
    }
  }
  SqlStatement named(*db_, "SELECT id, axes FROM cases WHERE n = ?");
  for (auto& [number, points] : cases) {
    named.bind(1, number);
    if (!named.step()) db_->damaged("a result", "its case is not there");
    visit({std::string(named.text(0)), std::string(named.text(1)), std::move(points)});
    named.reset();
  }
}

void History::for_each(const std::string& suite, std::int64_t until_ms,
                       const std::function<void(const CaseHistory&)>& visit) const {
  read(suite, until_ms, "", visit);
}

CaseHistory History::find(const std::string& id) const {
  CaseHistory out;
  read("", INT64_MAX, id, [&](const CaseHistory& one) { out = one; });
  return out;
}

}  // namespace kvcts::store
