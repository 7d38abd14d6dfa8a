#include "run/store/store.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <unordered_map>
#include <unordered_set>

#include "run/store/db.hpp"
#include "run/store/lock.hpp"
#include "run/store/rows.hpp"
#include "run/store/schema.hpp"

namespace kvcts::store {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

// f_type of network file systems (linux/magic.h; CIFS and SMB2 from fs/smb).
bool is_network(const fs::path& directory) {
  struct statfs found{};
  if (::statfs(directory.c_str(), &found) != 0) return false;
  switch (static_cast<std::uint32_t>(found.f_type)) {
    case 0x6969:      // NFS
    case 0x517B:      // SMB
    case 0xFF534D42:  // CIFS
    case 0xFE534D42:  // SMB2
      return true;
    default:
      return false;
  }
}

std::string short_digest(std::string_view digest) { return std::string(digest.substr(0, 8)); }

struct Pending {
  std::int64_t ordinal{0};
  SplitResult result;
};

}  // namespace

fs::path new_run_directory(const fs::path& root, std::string_view suite) {
  std::string label;
  for (const char c : suite) label += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ? c : '-';
  if (label.size() > 60) label.resize(60);
  std::error_code ec;
  fs::create_directories(root, ec);
  if (ec) throw Error(fmt::format("run directory {}: cannot create it ({})", root.string(), ec.message()));
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  const std::string base = fmt::format("{:%Y%m%d-%H%M%S}-{}", parts, label.empty() ? "run" : label);
  for (int n = 1; n < 1000; ++n) {
    const fs::path directory = root / (n == 1 ? base : fmt::format("{}-{}", base, n));
    if (fs::create_directory(directory, ec)) return directory;
    if (ec) throw Error(fmt::format("run directory {}: cannot be made ({})", directory.string(), ec.message()));
  }
  throw Error(fmt::format("run directory {}: a thousand runs started in this second; try again", (root / base).string()));
}

struct RunStore::State {
  State(fs::path where, OpenMode mode)
      : directory(std::move(where)), lock(directory / "lock"), db(std::make_shared<Db>(directory / "store.db", mode)) {}

  fs::path directory;
  std::optional<WriterLock> lock;
  std::shared_ptr<Db> db;
  std::int64_t session_number{0};
  Session session;
  std::vector<Pending> pending;
  std::unordered_set<std::int64_t> pending_ordinals;
  Clock::time_point oldest{};
  bool failed{false};  // the last commit failed, perhaps after it reached the disk
  struct Statements {
    explicit Statements(Db& db)
        : planned(db,
                  "SELECT ordinal, digest, execution, EXISTS (SELECT 1 FROM results r JOIN executions e ON e.n = r.execution"
                  " WHERE r.ordinal = p.ordinal AND e.outcome <> 'NOT_RUN') FROM planned p WHERE id = ?"),
          decided(db,
                  "SELECT 1 FROM results r JOIN executions e ON e.n = r.execution WHERE r.ordinal = ? AND e.outcome <> "
                  "'NOT_RUN'"),
          same(db, "SELECT n FROM executions WHERE digest = ? AND hash = ?"),
          execution(db,
                    "INSERT INTO executions(digest, hash, ran, first, outcome, phase, fault_class, wall_ns, body, seal)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
          phase(db, "INSERT INTO phases VALUES (?, ?, ?, ?)"),
          evidence(db, "INSERT INTO evidence VALUES (?, ?, ?, ?)"),
          result(db, "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)") {}
    SqlStatement planned, decided, same, execution, phase, evidence, result;
  };
  std::optional<Statements> statements;

  void begin_session(const std::vector<std::string>& argv) {
    db->run("PRAGMA synchronous=FULL");
    session.argv = argv;
    session.pid = ::getpid();
    session.started_ms = session.ended_ms = now_ms();
    session_number = db->number("SELECT COALESCE(MAX(n), 0) + 1 FROM sessions");
    SqlStatement insert(*db, "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, '', '', ?)");
    insert.bind(1, session_number).bind(2, argv_text(argv)).bind(3, session.pid).bind(4, session.started_ms);
    insert.bind(5, session.ended_ms).bind(6, seal_session(session_number, session)).run();
    statements.emplace(*db);
  }

  void save_session() {
    session.ended_ms = now_ms();
    SqlStatement update(*db, "UPDATE sessions SET touched_ms = ?, ending = ?, reason = ?, seal = ? WHERE n = ?");
    update.bind(1, session.ended_ms).bind(2, session.ending ? name(*session.ending) : "").bind(3, session.reason);
    update.bind(4, seal_session(session_number, session)).bind(5, session_number).run();
  }

  [[noreturn]] void damaged(std::int64_t ordinal) const { db->damaged(fmt::format("planned case {}", ordinal)); }
  Statements& writing() {
    if (!statements) throw Error(fmt::format("run {}: finished; open it again to resume it", directory.string()));
    return *statements;
  }

  std::int64_t insert_execution(const ExecutionRow& row, std::int64_t ordinal) {
    auto& s = writing();
    const std::string content = hash(row);
    if (!row.digest.empty()) {
      s.same.bind(1, row.digest).bind(2, content);
      if (s.same.step()) {
        const auto n = s.same.number(0);
        s.same.reset();
        return n;
      }
      s.execution.bind(1, row.digest);
    } else {
      s.execution.bind_null(1);  // NULLs are distinct: never shared
    }
    s.execution.bind(2, content).bind(3, row.ran ? 1 : 0).bind(4, ordinal).bind(5, row.outcome).bind(6, row.phase);
    s.execution.bind(7, row.fault_class)
        .bind(8, row.wall_ns)
        .bind(9, row.body)
        .bind(10, seal_execution(content, ordinal))
        .run();
    const auto n = db->last_row();
    for (std::size_t i = 0; i < row.phases.size(); ++i)
      s.phase.bind(1, n)
          .bind(2, static_cast<std::int64_t>(i))
          .bind(3, name(row.phases[i].phase))
          .bind(4, row.phases[i].ns)
          .run();
    for (std::size_t i = 0; i < row.evidence.size(); ++i)
      s.evidence.bind(1, n)
          .bind(2, static_cast<std::int64_t>(i))
          .bind(3, row.evidence[i].kind)
          .bind(4, row.evidence[i].text)
          .run();
    return n;
  }

  void write(const Pending& item) {
    const auto n = insert_execution(item.result.execution, item.ordinal);
    const auto& own = item.result.own;
    auto& result = writing().result;
    result.bind(1, item.ordinal).bind(2, n).bind(3, own.verdict).bind(4, own.evidence).bind(5, own.waiver);
    result.bind(6, own.facts).bind(7, seal_result(item.ordinal, n, own)).run();
  }

  /// A result in stored form, and whether its case has one. Throws Error if it was not planned, or was run with other
  /// data.
  std::pair<Pending, bool> take(const CaseResult& result) {
    auto& planned = writing().planned;
    planned.bind(1, result.id);
    if (!planned.step())
      throw Error(fmt::format("result of '{}': not a planned case of run {}", result.id, directory.string()));
    const std::string digest(planned.text(1)), execution(planned.text(2));
    std::pair<Pending, bool> out{{planned.number(0), split(result)}, planned.number(3) != 0};
    planned.reset();
    if (!result.case_digest.empty() && result.case_digest != digest)
      throw Error(fmt::format("result of '{}': it ran with data (digest {}) that differ from the plan ({})", result.id,
                              short_digest(result.case_digest), short_digest(digest)));
    if (out.first.result.execution.digest.empty()) out.first.result.execution.digest = execution;
    return out;
  }

  void commit() {
    auto& s = writing();
    if (pending.empty()) return;
    const bool look_first = std::exchange(failed, true);
    {
      Transaction transaction(*db);
      for (const auto& item : pending) {
        if (look_first) {
          const bool there = s.decided.bind(1, item.ordinal).step();
          s.decided.reset();
          if (there) continue;
        }
        write(item);
      }
      save_session();
      transaction.commit();
    }
    failed = false;
    pending.clear();
    pending_ordinals.clear();
  }
};

RunStore::RunStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunStore::RunStore(RunStore&&) noexcept = default;
RunStore& RunStore::operator=(RunStore&&) noexcept = default;

RunStore::~RunStore() {
  if (!state_ || !state_->statements) return;
  try {
    state_->commit();
  } catch (const std::exception&) {
    // A destructor cannot report it: callers that care call flush() first.
  }
}

RunStore RunStore::create(const fs::path& directory, RunInfo info, const std::vector<std::string>& argv) {
  std::error_code ec;
  fs::create_directories(directory, ec);
  if (ec) throw Error(fmt::format("run directory {}: cannot create it ({})", directory.string(), ec.message()));
  if (is_network(directory)) {
    throw Error(fmt::format("run directory {}: on a network file system, where a run could be damaged; choose a local disk",
                            directory.string()));
  }
  if (info.started_ms == 0) info.started_ms = now_ms();
  auto state = std::make_unique<State>(directory, OpenMode::create);
  Db& db = *state->db;
  create_schema(db);
  const std::string text = info_text(info);
  SqlStatement insert(db, "INSERT INTO run VALUES (1, ?, NULL, ?)");
  insert.bind(1, text).bind(2, seal_run(text, -1)).run();
  db.run("PRAGMA journal_mode=WAL");
  state->begin_session(argv);
  return RunStore(std::move(state));
}

RunStore RunStore::open(const fs::path& directory, const std::vector<std::string>& argv) {
  std::error_code ec;
  if (!fs::exists(directory / "store.db", ec)) {
    throw Error(
        fmt::format("run {}: no store.db in it; give the directory of a run (runs/<time>-<suite>)", directory.string()));
  }
  auto state = std::make_unique<State>(directory, OpenMode::write);
  check_store(*state->db);
  RunReader reader(state->db, directory);
  reader.info();
  reader.sessions();
  state->db->run("PRAGMA journal_mode=WAL");
  state->begin_session(argv);
  return RunStore(std::move(state));
}

Drift RunStore::plan(const std::vector<PlannedCase>& cases) {
  state_->writing();
  Db& db = *state_->db;
  std::unordered_map<std::string_view, const PlannedCase*> wanted;
  wanted.reserve(cases.size());
  for (const auto& c : cases)
    if (!wanted.emplace(c.id, &c).second)
      throw Error(fmt::format("plan: '{}' is planned twice; an id stands for one case", c.id));
  RunReader reader(state_->db, state_->directory);
  Drift drift;
  if (reader.planned()) {
    const auto log = [&](std::string line) {
      if (drift.first.size() < 10) drift.first.push_back(std::move(line));
    };
    SqlStatement stored(db, "SELECT id, digest, ordinal, execution, expected, seal FROM planned ORDER BY ordinal");
    while (stored.step()) {
      if (seal_planned(stored.number(2), stored.text(0), stored.text(1), stored.text(3), stored.text(4)) != stored.number(5))
        state_->damaged(stored.number(2));
      const auto found = wanted.find(stored.text(0));
      if (found == wanted.end()) {
        ++drift.removed;
        log(fmt::format("removed: {}", stored.text(0)));
        continue;
      }
      if (found->second->digest != stored.text(1)) {
        ++drift.changed;
        log(fmt::format("changed: {} (digest {} -> {})", stored.text(0), short_digest(stored.text(1)),
                        short_digest(found->second->digest)));
      }
      wanted.erase(found);
    }
    for (const auto& c : cases) {
      if (wanted.count(c.id) == 0) continue;
      ++drift.added;
      log("added: " + c.id);
    }
    return drift;
  }
  Transaction transaction(db);
  SqlStatement insert(db, "INSERT INTO planned VALUES (?, ?, ?, ?, ?, ?)");
  std::int64_t ordinal = 0;
  for (const auto& c : cases) {
    const std::string expected = expected_text(c.expected);
    insert.bind(1, ordinal).bind(2, c.id).bind(3, c.digest).bind(4, c.execution).bind(5, expected);
    insert.bind(6, seal_planned(ordinal, c.id, c.digest, c.execution, expected)).run();
    ++ordinal;
  }
  const std::string text = db.text("SELECT info FROM run");
  SqlStatement update(db, "UPDATE run SET planned = ?, seal = ?");
  update.bind(1, ordinal).bind(2, seal_run(text, ordinal)).run();
  transaction.commit();
  return drift;
}

std::vector<PlannedCase> RunStore::missing() {
  flush();
  std::vector<PlannedCase> out;
  SqlStatement get(*state_->db,
                   "SELECT ordinal, id, digest, execution, expected, seal FROM planned"
                   " WHERE ordinal NOT IN (SELECT r.ordinal FROM results r JOIN executions e ON e.n = r.execution WHERE "
                   "e.outcome <> 'NOT_RUN')"
                   " ORDER BY ordinal");
  while (get.step()) {
    if (seal_planned(get.number(0), get.text(1), get.text(2), get.text(3), get.text(4)) != get.number(5))
      state_->damaged(get.number(0));
    auto expected = state_->db->reading("the plan", [&] { return expected_from_text(get.text(4)); });
    out.push_back({std::string(get.text(1)), std::string(get.text(2)), std::string(get.text(3)), std::move(expected)});
  }
  return out;
}

void RunStore::record(const CaseResult& result) {
  auto [item, decided] = state_->take(result);
  if (decided || state_->pending_ordinals.count(item.ordinal) != 0) {
    throw Error(fmt::format("result of '{}': the case has a result already; the second one is not stored", result.id));
  }
  const auto ordinal = item.ordinal;
  if (state_->pending.empty()) state_->oldest = Clock::now();
  state_->pending.push_back(std::move(item));
  state_->pending_ordinals.insert(ordinal);
  if (state_->pending.size() >= group_size) {
    state_->commit();
  } else {
    tick();
  }
}

void RunStore::replace(const CaseResult& result) {
  flush();
  auto [item, decided] = state_->take(result);
  if (!decided) throw Error(fmt::format("result of '{}': the case has no result to replace", result.id));
  Transaction transaction(*state_->db);
  SqlStatement had(*state_->db, "SELECT execution FROM results WHERE ordinal = ?");
  had.bind(1, item.ordinal).step();
  const std::int64_t old = had.number(0);
  had.reset();
  state_->write(item);
  SqlStatement used(*state_->db, "SELECT 1 FROM results WHERE execution = ?");
  if (!used.bind(1, old).step()) {  // no other case shares it
    for (const char* sql : {"DELETE FROM executions WHERE n = ?", "DELETE FROM phases WHERE execution = ?",
                            "DELETE FROM evidence WHERE execution = ?"})
      SqlStatement(*state_->db, sql).bind(1, old).run();
  }
  state_->save_session();
  transaction.commit();
}

std::optional<std::chrono::milliseconds> RunStore::due_in() const {
  if (state_->pending.empty()) return std::nullopt;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(state_->oldest + group_age - Clock::now());
  return std::max(left, std::chrono::milliseconds{0});
}

void RunStore::tick() {
  if (!state_->pending.empty() && Clock::now() - state_->oldest >= group_age) state_->commit();
}

void RunStore::flush() {
  if (state_->statements) state_->commit();
}

std::size_t RunStore::waiting() const { return state_->pending.size(); }

void RunStore::finish(Ending ending, std::string_view reason) {
  flush();
  state_->writing();
  state_->session.ending = ending;
  // It may name a folder, whose name may be any bytes: a text of the store is UTF-8.
  state_->session.reason =
      nlohmann::json::parse(nlohmann::json(reason).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  {
    Transaction transaction(*state_->db);
    state_->save_session();
    transaction.commit();
  }
  state_->statements.reset();
  // Leave one file that can be copied. Impossible while another process reads the store, but then not needed either.
  try {
    sqlite3_busy_timeout(state_->db->handle(), 200);
    state_->db->run("PRAGMA wal_checkpoint(TRUNCATE)");
    state_->db->run("PRAGMA journal_mode=DELETE");
  } catch (const Error&) {
  }
  state_->lock.reset();
}

void RunStore::adopt(const std::vector<Session>& sessions) {
  flush();
  state_->writing();
  Transaction transaction(*state_->db);
  for (auto session = sessions.rbegin(); session != sessions.rend(); ++session) {
    const auto n = state_->db->number("SELECT MIN(n) - 1 FROM sessions");
    SqlStatement insert(*state_->db, "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    insert.bind(1, n)
        .bind(2, argv_text(session->argv))
        .bind(3, session->pid)
        .bind(4, session->started_ms)
        .bind(5, session->ended_ms);
    insert.bind(6, session->ending ? name(*session->ending) : "")
        .bind(7, session->reason)
        .bind(8, seal_session(n, *session))
        .run();
  }
  transaction.commit();
}

RunReader RunStore::reader() {
  flush();
  return {state_->db, state_->directory};
}

const fs::path& RunStore::directory() const { return state_->directory; }

}  // namespace kvcts::store
