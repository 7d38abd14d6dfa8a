// Untrusted stores: sound files with sound seals, whose schema, types, JSON and figures are not those of a run. Each is
// read, or refused in one sentence; none crashes a reader, keeps it for ever, or looks like an error of the suite.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>

#include "run/store/merge.hpp"
#include "run/store/schema.hpp"
#include "run/store/testing/sample.hpp"

namespace kvcts::store {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string_view argument(sqlite3_value* value) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  return text == nullptr ? std::string_view() : std::string_view(text, static_cast<std::size_t>(sqlite3_value_bytes(value)));
}

template <std::size_t... I>
std::int64_t sealed(sqlite3_value** values, std::index_sequence<I...>) {
  return seal({argument(values[I])...});
}
template <std::size_t Count>
void add_seal(sqlite3* db) {
  const auto call = [](sqlite3_context* to, int, sqlite3_value** values) {
    sqlite3_result_int64(to, sealed(values, std::make_index_sequence<Count>()));
  };
  sqlite3_create_function(db, "seal", Count, SQLITE_UTF8, nullptr, call, nullptr, nullptr);
}

/// A store as its owner's sqlite3 shell has it: no rule holds.
class Shell {
 public:
  explicit Shell(const fs::path& folder) {
    sqlite3_open((folder / "store.db").c_str(), &db_);
    add_seal<2>(db_), add_seal<5>(db_), add_seal<6>(db_), add_seal<7>(db_);
    const auto call = [](sqlite3_context* to, int, sqlite3_value** v) {
      const std::string made = digest({argument(v[0]), argument(v[1]), argument(v[2]), argument(v[3]), argument(v[4]),
                                       argument(v[5]), argument(v[6]), argument(v[7])});
      sqlite3_result_text(to, made.c_str(), -1, SQLITE_TRANSIENT);
    };
    sqlite3_create_function(db_, "hash", 8, SQLITE_UTF8, nullptr, call, nullptr, nullptr);
    run("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY; PRAGMA writable_schema=ON");
  }
  ~Shell() { sqlite3_close(db_); }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  bool run(const std::string& sql) { return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK; }
  void reseal() {
    if (text("SELECT type FROM sqlite_master WHERE name = 'evidence'") == "view") return;  // that would read it
    EXPECT_TRUE(run(R"sql(
      UPDATE run SET seal = seal(info, COALESCE(planned, -1));
      UPDATE sessions SET seal = seal(n, argv, pid, started_ms, touched_ms, ending, reason);
      UPDATE planned SET seal = seal(ordinal, id, digest, execution, expected);
      UPDATE results SET seal = seal(ordinal, execution, verdict, evidence, waiver, facts);
      UPDATE OR IGNORE executions SET hash = hash(digest, iif(ran, 'ran', ''), outcome, phase, fault_class, wall_ns, body,
        (SELECT COALESCE(group_concat(phase || '=' || ns || ';', ''), '') FROM
          (SELECT * FROM phases WHERE execution = n ORDER BY seq)) ||
        (SELECT COALESCE(group_concat(kind || ':' || length(CAST(text AS BLOB)) || ':' || text || char(10), ''), '') FROM
          (SELECT * FROM evidence WHERE execution = n ORDER BY seq)));
      UPDATE executions SET seal = seal(hash, first);)sql"))
        << sqlite3_errmsg(db_);
  }
  std::string text(const std::string& sql) {
    std::string out;
    sqlite3_exec(
        db_, sql.c_str(),
        [](void* to, int, char** v, char**) { return *static_cast<std::string*>(to) = v[0] ? v[0] : "", 0; }, &out, nullptr);
    return out;
  }
  void put(const std::string& column, const std::string& where, std::string_view value) {
    const auto dot = column.find('.');
    sqlite3_stmt* set = nullptr;
    const std::string sql = "UPDATE " + column.substr(0, dot) + " SET " + column.substr(dot + 1) + " = ? WHERE " + where;
    sqlite3_prepare_v2(db_, sql.c_str(), -1, &set, nullptr);
    sqlite3_bind_text64(set, 1, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
    sqlite3_step(set);
    sqlite3_finalize(set);
  }

 private:
  sqlite3* db_{nullptr};
};

std::string deep(int levels) {
  return std::string(static_cast<std::size_t>(levels), '[') + std::string(static_cast<std::size_t>(levels), ']');
}

class UntrustedStore : public ::testing::Test {
 protected:
  void SetUp() override {
    auto results = sample::every_kind();
    results[0].facts["axes"] = {{"engine", "memcpy"}, {"geometry.heads", 4}};
    results[0].facts["engine_claims"] = {{"transport", "cma"}};
    results[1].picture = {
        {"moves_from", "bytes"},
        {"moves",
         {{{"region", "kv"}, {"offset", 0}, {"bytes", 64}, {"should", {0, 0, 0, 1, 0, 0, 0, 0}}, {"did", "nothing"}}}}};
    RunInfo info = sample::info();
    json places = json::array();
    for (std::size_t i = 0; i < results.size(); ++i) places.push_back(i);
    info.part = {{"shard", 1}, {"shards", 3}, {"whole", 60}, {"selection", "--suite sample"}, {"places", places}};
    info.repro = {{"environment", {{"KVCTS_X", "1"}}}, {"cases", ""}, {"files", json::array()}, {"seed", 7}};
    auto plan = sample::plan_for(results);
    auto store = RunStore::create(original(), info, {"kvcts", "run"});
    store.plan(plan);
    results.pop_back();
    for (const auto& r : results) store.record(r);
    store.finish(Ending::complete, "some reason");
    fs::create_directory(copy());
  }
  fs::path original() const { return dir_.path() / "original"; }
  fs::path copy() const { return dir_.path() / "copy"; }

  template <typename Change>
  void lay_out(Change&& change) {
    fs::copy_file(original() / "store.db", copy() / "store.db", fs::copy_options::overwrite_existing);
    Shell shell(copy());
    change(shell);
    shell.reseal();
  }

  /// "" if it can be read and merged up to the shards that are missing; otherwise why not.
  std::string refusal() const {
    try {
      const RunReader reader = RunReader::open(copy());
      json all{reader.info().machine, reader.info().provenance, reader.info().part, reader.info().repro};
      for (const Session& s : reader.sessions()) all.push_back({s.argv, utc(s.started_ms), utc(s.ended_ms), s.reason});
      const Counts counts = reader.counts();
      all.push_back({counts.planned, counts.case_ns, counts.stopped, exit_status(counts)});
      reader.for_each([&](const Row& row) { all.push_back(to_json(row.result)); });
      if (all.dump().empty()) return "nothing to read";  // strict: every text is UTF-8
      merge(dir_.path() / "merged", {copy()}, {});
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      EXPECT_LT(text.size(), 1000u) << text;
      return text.starts_with("shard") ? "" : text;
    }
    return "";
  }

  template <typename Change>
  void refused(const char* with, Change&& change) {
    lay_out(change);
    const std::string why = refusal();
    EXPECT_NE(why.find(with), std::string::npos) << "expected to be refused with: " << with << "\nfound: " << why;
    EXPECT_NE(why.find(copy().string()), std::string::npos) << "names the store: " << why;
  }

  sample::TemporaryDirectory dir_;
};

TEST_F(UntrustedStore, ReadsASoundStore) {
  lay_out([](Shell&) {});
  EXPECT_EQ(refusal(), "");
}

TEST_F(UntrustedStore, RefusesOtherTablesViewsAndTriggers) {
  const std::string endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) ";
  refused("expected 'CREATE TABLE evidence", [&](Shell& s) {
    s.run("DROP TABLE evidence; CREATE VIEW evidence AS " + endless +
          "SELECT 1 AS execution, i AS seq, 'k' AS kind, 't' AS text FROM n");
  });
  refused("view report: expected 'CREATE VIEW report",
          [&](Shell& s) { s.run("DROP VIEW report; CREATE VIEW report AS " + endless + "SELECT i FROM n"); });
  refused("trigger t: expected '', found 'CREATE TRIGGER",
          [](Shell& s) { s.run("CREATE TRIGGER t AFTER INSERT ON results BEGIN DELETE FROM results; END"); });
  refused("table more: expected ''", [](Shell& s) { s.run("CREATE TABLE more(x)"); });
  refused("index i: expected ''", [](Shell& s) { s.run("CREATE INDEX i ON results(verdict)"); });
  refused("table results: expected 'CREATE TABLE results",
          [](Shell& s) { s.run("ALTER TABLE results ADD COLUMN more INT AS (1)"); });
  refused("found no more", [](Shell& s) { s.run("DROP VIEW report"); });
  lay_out([](Shell& s) { s.run("UPDATE sqlite_master SET sql = replace(sql, '-- JSON list', '-- in other words')"); });
  EXPECT_EQ(refusal(), "") << "comments differ between versions";
}

TEST_F(UntrustedStore, RefusesValuesOfAnotherType) {
  const auto with = [](const char* table, const char* change) {
    return [=](Shell& s) {
      const std::string at = " WHERE name = '" + std::string(table) + "'",
                        sql = s.text("SELECT sql FROM sqlite_master" + at);
      s.put("sqlite_master.sql", "name = '" + std::string(table) + "'", sql.substr(0, sql.rfind("STRICT")) + "");
      s.run("PRAGMA writable_schema=RESET; PRAGMA writable_schema=ON");
      EXPECT_TRUE(s.run(change));
      s.put("sqlite_master.sql", "name = '" + std::string(table) + "'", sql);
    };
  };
  refused("damaged", with("results", "UPDATE results SET waiver = CAST('x' AS BLOB)"));
  refused("damaged", with("results", "UPDATE results SET execution = 'one'"));
  refused("damaged", with("sessions", "UPDATE sessions SET pid = 1.5"));
  refused("expected UTF-8", [](Shell& s) { s.put("planned.id", "ordinal = 3", "every/\xff\xfe"); });
}

TEST_F(UntrustedStore, RefusesDeepJsonAndUnknownKinds) {
  for (const char* column : {"run.info", "results.facts", "executions.body", "planned.expected", "sessions.argv"}) {
    refused((std::string(column) + ": expected values at most 64 deep").c_str(),
            [&](Shell& s) { s.put(column, "rowid < 2", deep(200000)); });
    refused(": expected JSON, found '{'", [&](Shell& s) { s.put(column, "rowid < 2", "{"); });
    refused((std::string(column) + ": expected at most 2,097,152 values").c_str(),
            [&](Shell& s) { s.put(column, "rowid < 2", "[0" + std::string(6 << 20, ',') + "]"); });
  }
  const auto set = [](const char* column, const char* where, const char* key, const char* value) {
    return [=](Shell& s) {
      const std::string table(column, std::strchr(column, '.'));
      s.run("UPDATE " + table + " SET " + (std::strchr(column, '.') + 1) + " = json_set(" + (std::strchr(column, '.') + 1) +
            ", '$." + key + "', json('" + value + "')) WHERE " + where);
    };
  };
  refused("run.info/repro/environment/KVCTS_X: expected a text, found 5",
          set("run.info", "1", "repro.environment.KVCTS_X", "5"));
  refused("run.info/provenance/isolation: expected a text", set("run.info", "1", "provenance.isolation", "[]"));
  refused("run.info/provenance/ci/job: expected a text", set("run.info", "1", "provenance.ci.job", "null"));
  refused("run.info/part/shards: expected a whole number", set("run.info", "1", "part.shards", "4000000000"));
  refused("run.info/started_ms: expected a time", set("run.info", "1", "started_ms", "-1"));
  refused("run.info: expected the key 'suite'",
          [](Shell& s) { s.run("UPDATE run SET info = json_remove(info, '$.suite')"); });
  refused("case 0 'every/pass': results.facts/engine_claims/transport: expected a text, found true",
          set("results.facts", "ordinal = 0", "engine_claims.transport", "true"));
  refused("results.facts/axes/engine: expected a text, a number", set("results.facts", "ordinal = 0", "axes.engine", "{}"));
  refused("executions.body/picture/moves/0/should: expected a text or a list of 8",
          set("executions.body", "n = 2", "picture.moves[0].should", "[1]"));
  refused("executions: expected the outcome of executions.body",
          [](Shell& s) { s.run("UPDATE executions SET outcome = 'PASS' WHERE outcome = 'CRASH'"); });
}

TEST_F(UntrustedStore, BoundsLoopsOverItsFigures) {
  const auto shards = [&](const char* n) {
    lay_out([&](Shell& s) { s.run("UPDATE run SET info = json_set(info, '$.part.shards', " + std::string(n) + ")"); });
    try {
      merge(dir_.path() / "merged", {copy()}, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(
      shards("1000000000")
          .starts_with("shards 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 ... and 999,999,989 more of 1,000,000,000 are missing"))
      << shards("1000000000");
  EXPECT_NE(shards("0").find("found shard 1 of 0"), std::string::npos) << shards("0");
  refused("with 1 places", [](Shell& s) { s.run("UPDATE run SET info = json_set(info, '$.part.places', json('[1]'))"); });
  refused("the plan", [](Shell& s) { s.run("UPDATE results SET ordinal = 1 << 40 WHERE ordinal = 3"); });
  refused("the plan", [](Shell& s) { s.run("UPDATE planned SET ordinal = 1 << 40 WHERE ordinal = 3"); });
  refused("expected times", [](Shell& s) { s.run("UPDATE sessions SET touched_ms = 1 << 62"); });
  refused("the times of its cases", [](Shell& s) { s.run("UPDATE executions SET wall_ns = 1 << 62 WHERE n = 1"); });
  refused("the phases", [](Shell& s) { s.run("UPDATE phases SET ns = 1 << 62"); });
}

// ---- random ----------------------------------------------------------------------------------------------------------

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void change(Shell& shell) {
    if (below(3) == 0) {
      static const std::vector<std::string> columns{
          "run.planned",     "sessions.n",       "sessions.pid",           "sessions.started_ms", "sessions.touched_ms",
          "sessions.ending", "sessions.reason",  "planned.ordinal",        "planned.id",          "planned.digest",
          "executions.n",    "executions.ran",   "executions.first",       "executions.outcome",  "executions.phase",
          "phases.ns",       "phases.phase",     "executions.wall_ns",     "results.ordinal",     "results.execution",
          "results.verdict", "results.evidence", "executions.fault_class", "results.waiver",      "evidence.text"};
      const std::string& column = columns[below(columns.size())];
      const json value = leaf();
      shell.put(column, row(column), value.is_string() ? value.get<std::string>() : value.dump());
      return;
    }
    static const std::vector<std::string> columns{"run.info", "results.facts", "executions.body", "planned.expected",
                                                  "sessions.argv"};
    const std::string& column = columns[below(columns.size())];
    const std::string where = row(column), table = column.substr(0, column.find('.'));
    json value =
        json::parse(shell.text("SELECT " + column + " FROM " + table + " WHERE " + where + " ORDER BY random() LIMIT 1"),
                    nullptr, false);
    if (value.is_discarded()) return;
    const json whole = value.flatten();
    auto at = whole.begin();
    std::advance(at, whole.empty() ? 0 : below(whole.size()));
    json::json_pointer place(whole.empty() ? "" : at.key());
    for (auto up = below(4); up > 2 && !place.empty(); --up) place.pop_back();
    value[place] = leaf();
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (const auto hole = text.find("\"@deep\""); hole != std::string::npos)
      text.replace(hole, 7, deep(static_cast<int>(below(200)) * 7));
    if (below(20) == 0) text[below(text.size())] = static_cast<char>(below(256));
    shell.put(column, where, text);
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string row(const std::string& column) {
    return column.starts_with("run.") || below(4) == 0 ? "1" : "rowid = " + std::to_string(below(16));
  }
  json leaf() {
    switch (below(14)) {
      case 0:
        return nullptr;
      case 1:
        return true;
      case 2:
        return -1;
      case 3:
        return INT64_MIN;
      case 4:
        return INT64_MAX;
      case 5:
        return UINT64_MAX;
      case 6:
        return 1e300;
      case 7:
        return "";
      case 8:
        return "\xff\xfe";
      case 9:
        return std::string(below(3000), 'x');
      case 10:
        return json::array({1, "a"});
      case 11:
        return json{{"a", nullptr}};
      case 12:
        return "@deep";
      default:
        return static_cast<std::int64_t>(below(4));
    }
  }
  std::mt19937 random_;
};

// KVCTS_MUTATIONS=20000 KVCTS_SEED=5 runs more, others.
TEST_F(UntrustedStore, ReadsOrRefusesRandomChanges) {
  const auto number = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  int read = 0, refused = 0;
  std::chrono::nanoseconds longest{0};
  Mutator mutator(static_cast<unsigned>(number("KVCTS_SEED", 1)));
  const int rounds = number("KVCTS_MUTATIONS", 200);
  for (int round = 0; round < rounds; ++round) {
    lay_out([&](Shell& shell) { mutator.change(shell); });
    const auto since = std::chrono::steady_clock::now();
    std::string why;
    ASSERT_NO_THROW(why = refusal()) << "round " << round;
    longest = std::max(longest, std::chrono::steady_clock::now() - since);
    ++(why.empty() ? read : refused);
  }
  EXPECT_LT(longest, std::chrono::seconds(5));
  EXPECT_GT(read, rounds / 20);
  EXPECT_GT(refused, rounds / 4);
  RecordProperty("read", read);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace kvcts::store
