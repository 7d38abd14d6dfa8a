#include "run/store/schema.hpp"

#include <fmt/format.h>
#define XXH_STATIC_LINKING_ONLY  // to hold the state by value
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace kvcts::store {
namespace {

// Words are stored as words, so that a person can read a run in the sqlite3 shell (view `report`).
constexpr const char* tables = R"sql(
CREATE TABLE run(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  info TEXT NOT NULL,                       -- JSON: suite, selection, seed, version, machine, started_ms, repro
  planned INTEGER,                          -- number of planned cases; NULL until the plan is stored
  seal INTEGER NOT NULL) STRICT;
CREATE TABLE sessions(
  n INTEGER PRIMARY KEY,
  argv TEXT NOT NULL,                       -- JSON list
  pid INTEGER NOT NULL,
  started_ms INTEGER NOT NULL,
  touched_ms INTEGER NOT NULL,              -- last commit
  ending TEXT NOT NULL,                     -- complete, interrupted, budget; '': running, or killed
  reason TEXT NOT NULL,
  seal INTEGER NOT NULL) STRICT;
CREATE TABLE planned(
  ordinal INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  digest TEXT NOT NULL,
  execution TEXT NOT NULL,
  expected TEXT NOT NULL,                   -- JSON list
  seal INTEGER NOT NULL) STRICT;
CREATE TABLE executions(
  n INTEGER PRIMARY KEY,
  digest TEXT,                              -- execution digest; NULL: not shared
  hash TEXT NOT NULL,                       -- of everything in this row, its phases and its evidence
  ran INTEGER NOT NULL,                     -- 0: decided without running (UNSUPPORTED, SKIPPED, NOT_RUN)
  first INTEGER NOT NULL,                   -- ordinal of the case it was stored with
  outcome TEXT NOT NULL,
  phase TEXT NOT NULL,
  fault_class TEXT NOT NULL,
  wall_ns INTEGER NOT NULL,
  body TEXT NOT NULL,                       -- JSON: the rest of the result
  seal INTEGER NOT NULL,                    -- of hash and first
  UNIQUE (digest, hash)) STRICT;
CREATE TABLE phases(
  execution INTEGER NOT NULL, seq INTEGER NOT NULL, phase TEXT NOT NULL, ns INTEGER NOT NULL,
  PRIMARY KEY (execution, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE evidence(
  execution INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (execution, seq)) STRICT;
CREATE TABLE results(
  ordinal INTEGER PRIMARY KEY,              -- of the planned case: a second result for an id replaces NOT_RUN only
  execution INTEGER NOT NULL,
  verdict TEXT NOT NULL,
  evidence TEXT NOT NULL,                   -- modelled, compiled, executed
  waiver TEXT NOT NULL,
  facts TEXT NOT NULL,                      -- JSON
  seal INTEGER NOT NULL) STRICT;
CREATE VIEW report AS
  SELECT p.ordinal, p.id, e.outcome, r.verdict, r.evidence, e.phase, e.fault_class, e.wall_ns / 1e6 AS ms,
         json_extract(e.body, '$.message') AS message
  FROM planned p LEFT JOIN results r USING (ordinal) LEFT JOIN executions e ON e.n = r.execution;
)sql";

// Above this size the index check takes seconds; broken pages are still found.
constexpr std::int64_t thorough_limit = 128 << 20;

// Without comments and line breaks: they differ between versions.
std::string plain(std::string_view sql) {
  std::string out;
  for (std::size_t i = 0; i < sql.size(); ++i) {
    if (sql.substr(i, 2) == "--") i = std::min(sql.find('\n', i), sql.size() - 1);
    if (std::isspace(static_cast<unsigned char>(sql[i])) == 0)
      out += sql[i];
    else if (!out.empty() && out.back() != ' ' && out.back() != ';')
      out += ' ';
  }
  return out;
}

// A foreign table, view, trigger or column could make the queries of a reader run for ever, or other code.
void check_schema(Db& db) {
  const std::string all = plain(tables);
  std::string_view left = all;
  SqlStatement get(db, "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid");
  while (get.step()) {
    const std::string found = plain(get.text(1)) + ";";
    if (!left.starts_with(found)) db.damaged(get.text(0), fmt::format("expected '{:.60}', found '{:.60}'", left, found));
    left.remove_prefix(found.size());
  }
  if (!left.empty()) db.damaged("the tables", fmt::format("expected '{:.60}', found no more", left));
}

struct Hash {
  XXH3_state_t state;
  explicit Hash(std::initializer_list<std::string_view> parts) {
    XXH3_128bits_reset(&state);
    for (const auto part : parts) {
      const std::uint64_t size = part.size();
      XXH3_128bits_update(&state, &size, sizeof size);
      XXH3_128bits_update(&state, part.data(), part.size());
    }
  }
};

}  // namespace

void create_schema(Db& db) {
  db.run("PRAGMA page_size=4096");
  db.run("PRAGMA auto_vacuum=NONE");
  db.run("BEGIN IMMEDIATE");
  db.run(fmt::format("PRAGMA application_id={}", application_id).c_str());
  db.run(fmt::format("PRAGMA user_version={}", schema_version).c_str());
  db.run(tables);
  db.run("COMMIT");
}

void check_store(Db& db) {
  const auto refuse = [&](const std::string& what) {
    throw Error(fmt::format("run store {}: {}", db.path().string(), what));
  };
  if (db.number("PRAGMA application_id") != application_id) {
    refuse("this is not a KV-CTS run store; expected the store.db of a run directory");
  }
  const auto version = db.number("PRAGMA user_version");
  if (version > schema_version) {
    refuse(fmt::format("written by a newer KV-CTS (store version {}, this program reads up to {}); use that version",
                       version, schema_version));
  }
  if (version < 1) refuse(fmt::format("impossible store version {}: the file is damaged", version));
  check_schema(db);
  const auto bytes = db.number("PRAGMA page_count") * db.number("PRAGMA page_size");
  const std::string found = db.text(bytes <= thorough_limit ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)");
  if (found != "ok") {
    std::string line = found.substr(0, found.find_last_not_of('\n') + 1);
    for (char& c : line) c = c == '\n' ? ' ' : c;
    refuse(fmt::format("damaged ({}); restore the file or start a new run", line));
  }
}

std::int64_t seal(std::initializer_list<std::string_view> parts) {
  Hash hash(parts);
  const std::uint64_t value = XXH3_128bits_digest(&hash.state).low64;
  std::int64_t out = 0;
  std::memcpy(&out, &value, sizeof out);
  return out;
}

std::string digest(std::initializer_list<std::string_view> parts) {
  Hash hash(parts);
  const auto value = XXH3_128bits_digest(&hash.state);
  return fmt::format("{:016x}{:016x}", value.high64, value.low64);
}

}  // namespace kvcts::store
