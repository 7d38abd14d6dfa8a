// Many runs in one SQLite file: how each case stood, night after night.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/store/reader.hpp"

namespace kvcts::store {

/// How a case stood in a run, for a strip of many. Stored as its letter.
enum class Mark : char {
  good = '.',
  bad = 'F',  ///< not as expected, or the suite's own error
  flaky = '~',
  waived = 'x',
  not_run = '-',  ///< skipped, not run, unsupported
};

/// A case in one run.
struct Point {
  std::size_t run{0};  ///< index into History::runs()
  Mark mark{};
  std::string ending;               ///< "FAIL axis-permuted at compare"; "" of good ones
  std::int64_t ns{0};               ///< of its own execution; 0: none, or it did not pass
  std::int64_t made{1}, failed{0};  ///< tries
};

struct CaseHistory {
  std::string id;
  std::string axes;           ///< JSON: {"engine": "shm", ...}; "" of a case that never ran
  std::vector<Point> points;  ///< of the runs that planned it, the earliest first
};

class History {
 public:
  /// Opens the file, for reading. Throws Error (one sentence) when it is missing, foreign, damaged or of another version.
  static History open(const std::filesystem::path& file);
  /// The same for writing; makes it, and its folder, if there is none.
  static History open_or_create(const std::filesystem::path& file);

  enum class Added : std::uint8_t { added, replaced, known };
  /// Takes the runs in these folders, all or nothing. One that it has already changes nothing; one that was resumed since
  /// replaces what was there.
  std::vector<Added> add(const std::vector<std::filesystem::path>& folders);

  struct Run {
    RunInfo info;
  };
  /// Runs of one suite, or of all with "", up to that start (Unix time); the earliest first.
  std::vector<Run> runs(const std::string& suite = "", std::int64_t until_ms = INT64_MAX) const;
  /// Every case of these runs.
  void for_each(const std::string& suite, std::int64_t until_ms, const std::function<void(const CaseHistory&)>& visit) const;
  /// One case in all runs; without points when none has planned it.
  CaseHistory find(const std::string& id) const;

 private:
  explicit History(std::shared_ptr<Db> db) : db_(std::move(db)) {}
  struct Texts;
  Added add(const RunReader& run, Texts& texts);
  void read(const std::string& suite, std::int64_t until_ms, std::string_view id,
            const std::function<void(const CaseHistory&)>& visit) const;
  std::shared_ptr<Db> db_;
};

}  // namespace kvcts::store
