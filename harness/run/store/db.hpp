// SQLite as values that clean up after themselves. Every SQLite error leaves this file as a store::Error.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "run/store/error.hpp"

namespace kvcts::store {

enum class OpenMode { create, write, read };

class Db {
 public:
  /// Opens a file. `create` requires that it does not exist, the other modes that it does. Reading never changes a
  /// result; a store in a read-only directory is read in place (SQLite "immutable") if its write-ahead log is empty.
  /// Errors say what it is `called`.
  Db(const std::filesystem::path& path, OpenMode mode, std::string_view called = "run store");

  /// Runs statements without results.
  void run(const char* sql);
  std::int64_t number(const char* sql);
  std::string text(const char* sql);
  std::int64_t last_row() const { return sqlite3_last_insert_rowid(handle_.get()); }

  /// Throws the error that SQLite reports for `code`, in words. `doing` completes "while ...".
  [[noreturn]] void fail(int code, std::string_view doing) const;
  /// Throws Damaged: `where` does not hold what a run stores there.
  [[noreturn]] void damaged(std::string_view where, std::string_view why = "its content has changed") const;

  /// Calls `read`; any exception but an Error becomes one that names this store and `where`, a text or what makes it.
  template <typename Where, typename F>
  auto reading(const Where& where, F&& read) const {
    try {
      return read();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      if constexpr (std::is_invocable_v<Where>)
        damaged(where(), error.what());
      else
        damaged(where, error.what());
    }
  }

  sqlite3* handle() const { return handle_.get(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  std::filesystem::path path_;
  std::string what_;
  std::unique_ptr<sqlite3, Close> handle_;
};

/// A prepared statement. bind() numbers from 1, columns from 0.
class SqlStatement {
 public:
  SqlStatement(Db& db, std::string_view sql);

  SqlStatement& bind(int index, std::int64_t value);
  SqlStatement& bind(int index, std::string_view value);
  SqlStatement& bind_null(int index);

  /// True: a row is there. False: done; the statement is reset and can be bound again.
  bool step();
  /// step() until done; for statements without rows.
  void run();
  void reset();

  std::int64_t number(int column) const { return sqlite3_column_int64(handle_.get(), column); }
  std::string_view text(int column) const;
  bool is_null(int column) const { return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL; }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };
  Db* db_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

/// BEGIN now, ROLLBACK at the end of the scope unless commit() was called.
class Transaction {
 public:
  explicit Transaction(Db& db) : db_(db) { db_.run("BEGIN IMMEDIATE"); }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Db& db_;
  bool open_{true};
};

}  // namespace kvcts::store
