#include "run/store/db.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace kvcts::store {
namespace fs = std::filesystem;

namespace {

// "file:" URI of a path: SQLite wants %, ? and # escaped.
std::string uri(const fs::path& path, std::string_view query) {
  std::string out = "file:";
  for (const char c : fs::absolute(path).string()) {
    if (c == '%' || c == '?' || c == '#') {
      out += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + std::string(query);
}

std::string shown(const fs::path& path) { return path.string(); }

// SQLite quotes damaged schema texts at length, and a stranger's texts may hold anything: keep one short, printable line.
std::string one_line(std::string_view text, std::size_t most = 120) {
  std::string out;
  for (const char c : text.substr(0, most)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  return out + (text.size() > most ? "..." : "");
}

// What no run needs. Writers keep the same limits: whatever is written can be read.
constexpr std::pair<int, int> limits[] = {
    {SQLITE_LIMIT_LENGTH, 128 << 20}, {SQLITE_LIMIT_SQL_LENGTH, 64 << 10}, {SQLITE_LIMIT_EXPR_DEPTH, 100},
    {SQLITE_LIMIT_ATTACHED, 0},       {SQLITE_LIMIT_TRIGGER_DEPTH, 0},
};

bool is_utf8(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return true;
  try {
    nlohmann::json(text).dump();  // strict
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// If a write-ahead log may hold commits, the main file alone is incomplete.
bool has_log(const fs::path& path) {
  std::error_code ignored;
  const auto size = fs::file_size(path.string() + "-wal", ignored);
  return !ignored && size > 0;
}

}  // namespace

Db::Db(const fs::path& path, OpenMode mode, std::string_view called) : path_(path), what_(called) {
  std::error_code ec;
  const bool there = fs::exists(path, ec);
  if (mode == OpenMode::create && there) {
    throw Error(fmt::format("{} {}: already exists; choose another run directory, or resume that run", what_, shown(path)));
  }
  if (mode != OpenMode::create && !there) {
    throw Error(fmt::format("{} {}: not found; expected a run directory with a store.db in it", what_, shown(path)));
  }
  if (mode != OpenMode::create && !fs::is_regular_file(path, ec)) {
    throw Error(fmt::format("{} {}: not a regular file", what_, shown(path)));
  }
  const auto attempt = [&](int flags, std::string_view query) {
    sqlite3* raw = nullptr;
    const int code = sqlite3_open_v2(uri(path, query).c_str(), &raw, flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
    handle_.reset(raw);
    if (code != SQLITE_OK) fail(code, "opening it");
  };
  const bool writable = ::access(path.parent_path().empty() ? "." : path.parent_path().c_str(), W_OK) == 0;
  if (mode == OpenMode::create) {
    attempt(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "");
  } else if (mode == OpenMode::read && !writable && !has_log(path)) {
    attempt(SQLITE_OPEN_READONLY, "?immutable=1");
  } else {
    attempt(SQLITE_OPEN_READWRITE, "");  // readers too: after a kill, reading must first recover the write-ahead log
  }
  sqlite3_extended_result_codes(handle_.get(), 1);
  sqlite3_busy_timeout(handle_.get(), 5000);
  // The file may be damaged or hostile: run no code from its schema, allow no direct writes, check cells before use.
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  for (const auto& [what, most] : limits) sqlite3_limit(handle_.get(), what, most);
  run("PRAGMA cell_size_check=ON");
  run("PRAGMA mmap_size=0");  // a truncated file must be an error, not a SIGBUS
  if (mode == OpenMode::read) run("PRAGMA query_only=ON");
}

void Db::fail(int code, std::string_view doing) const {
  const int system_error = handle_ ? sqlite3_system_errno(handle_.get()) : 0;
  const std::string message = one_line(handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code));
  const int extended = handle_ ? sqlite3_extended_errcode(handle_.get()) : code;
  const std::string why = system_error != 0 ? fmt::format("{}: {}", message, std::strerror(system_error)) : message;
  const bool write_failed = extended == SQLITE_IOERR_WRITE || extended == SQLITE_IOERR_FSYNC ||
                            extended == SQLITE_IOERR_DIR_FSYNC || extended == SQLITE_IOERR_TRUNCATE ||
                            extended == SQLITE_IOERR_SHMSIZE;
  switch (write_failed ? SQLITE_FULL : code & 0xff) {
    case SQLITE_FULL:
      throw DiskFull(
          fmt::format("{} {}: no room left, or the disk refuses writes, while {} ({}); everything committed so "
                      "far is safe: free space on this disk and resume the run",
                      what_, shown(path_), one_line(doing), why));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw Damaged(fmt::format("{0} {1}: damaged or not a {0}, found while {2} ({3}); restore the file or start a new one",
                                what_, shown(path_), one_line(doing), message));
    default:
      throw Error(fmt::format("{} {}: {} failed ({})", what_, shown(path_), one_line(doing), why));
  }
}

void Db::damaged(std::string_view where, std::string_view why) const {
  throw Damaged(fmt::format("{} {}: damaged ({}: {}); restore the file or start a new one", what_, shown(path_),
                            one_line(where, 200), one_line(why, 400)));
}

void Db::run(const char* sql) {
  const int code = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, fmt::format("'{}'", std::string_view(sql).substr(0, 40)));
}

std::int64_t Db::number(const char* sql) {
  SqlStatement statement(*this, sql);
  if (!statement.step()) throw Error(fmt::format("{} {}: '{}' returned nothing", what_, shown(path_), sql));
  return statement.number(0);
}

std::string Db::text(const char* sql) {
  SqlStatement statement(*this, sql);
  if (!statement.step()) throw Error(fmt::format("{} {}: '{}' returned nothing", what_, shown(path_), sql));
  return std::string(statement.text(0));
}

SqlStatement::SqlStatement(Db& db, std::string_view sql) : db_(&db) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v2(db.handle(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
  handle_.reset(raw);
  if (code != SQLITE_OK) db.fail(code, fmt::format("preparing '{}'", sql.substr(0, 60)));
}

SqlStatement& SqlStatement::bind(int index, std::int64_t value) {
  if (const int code = sqlite3_bind_int64(handle_.get(), index, value); code != SQLITE_OK)
    db_->fail(code, "binding a number");
  return *this;
}

SqlStatement& SqlStatement::bind(int index, std::string_view value) {
  const int code = sqlite3_bind_text64(handle_.get(), index, value.data() ? value.data() : "", value.size(),
                                       SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) db_->fail(code, "binding a text");
  return *this;
}

SqlStatement& SqlStatement::bind_null(int index) {
  if (const int code = sqlite3_bind_null(handle_.get(), index); code != SQLITE_OK) db_->fail(code, "binding NULL");
  return *this;
}

bool SqlStatement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    reset();
    return false;
  }
  try {
    db_->fail(code, fmt::format("'{}'", std::string_view(sqlite3_sql(handle_.get())).substr(0, 60)));
  } catch (...) {
    sqlite3_reset(handle_.get());
    throw;
  }
}

void SqlStatement::run() {
  while (step()) {
  }
}

void SqlStatement::reset() {
  sqlite3_reset(handle_.get());
  sqlite3_clear_bindings(handle_.get());
}

std::string_view SqlStatement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column));
  if (data == nullptr) return {};
  const std::string_view text(data, static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column)));
  if (!is_utf8(text)) db_->damaged(sqlite3_column_name(handle_.get(), column), "expected UTF-8, found other bytes");
  return text;
}

Transaction::~Transaction() {
  if (!open_) return;
  if (sqlite3_get_autocommit(db_.handle()) != 0) return;  // SQLite already rolled back
  sqlite3_exec(db_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  db_.run("COMMIT");
  open_ = false;
}

}  // namespace kvcts::store
