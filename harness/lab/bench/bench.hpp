// kvcts_bench: compares kernel speed with memory speed. Each row is one kernel and its yardstick (memset, memcpy,
// memcmp, XXH3) over the same buffers in one process, measured in turns; the result is the ratio of their speeds.
//
// A source file adds rows with one definition and one line of CMakeLists.txt:
//
//   void add_rows(Bench& bench) {
//     Row row{.name = "poison", .against = "memset", .target = 0.8};
//     row.bytes = static_cast<double>(bench.bytes());
//     row.run = [&bench] { fill_poison(key, 0, bench.buffer(1), bench.threads()); };
//     row.reference = [&bench] { bench.copy(); };
//     bench.add(row);
//   }
//   const BenchmarkFamily poison_family{"poison", add_rows};
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcts::bench {

/// One kernel and its yardstick. Speeds are in bytes per second; the ratio is speed of `run` over speed of `reference`.
struct BenchmarkRow {
  std::string name{};
  std::string against{};            ///< the yardstick, as one word
  double target{0};                 ///< minimum ratio; 0: none, the ratio is for information
  double bytes{0};                  ///< processed by one call of `run`, as the ratio counts them
  double reference_bytes{0};        ///< processed by one call of `reference`; 0: as many
  std::function<void()> prepare{};  ///< runs before this row's first call, not measured; may be empty
  std::function<void()> run{}, reference{};
  std::string why{};  ///< shown if the ratio is below its target: what the profile says
};

/// What rows are made for: one size of buffer and one number of threads. Each family runs once per setting.
class Bench {
 public:
  Bench(std::span<std::uint8_t> a, std::span<std::uint8_t> b, int threads, bool quick)
      : buffers_{a, b}, threads_(threads), quick_(quick) {}

  /// Of each buffer. A row may use less and then sets BenchmarkRow::bytes.
  std::size_t bytes() const { return buffers_[0].size(); }
  int threads() const { return threads_; }
  /// Small buffers, few repetitions; times do not matter.
  bool quick() const { return quick_; }
  /// Buffer 0 or 1: page-aligned, touched, the same for all rows. A row finds what the previous row left.
  std::span<std::uint8_t> buffer(int which) const { return buffers_[which]; }

  // Yardsticks on all threads(), over the first `bytes` of the buffers (0: all).
  void set(std::size_t bytes = 0) const;   ///< memset of buffer 0
  void copy(std::size_t bytes = 0) const;  ///< memcpy of buffer 0 into buffer 1
  void compare(
      std::size_t bytes = 0) const;  ///< memcmp of buffer 0 and buffer 1, which must be equal; throws if they are not

  /// Measured in this order, after all rows of the family have been added.
  void add(BenchmarkRow row) { rows_.push_back(std::move(row)); }
  const std::vector<BenchmarkRow>& rows() const { return rows_; }

 private:
  std::span<std::uint8_t> buffers_[2];
  int threads_;
  bool quick_;
  std::vector<BenchmarkRow> rows_;
};

/// A named group of rows; defining one registers it.
struct BenchmarkFamily {
  BenchmarkFamily(std::string_view name, void (*add)(Bench&));
  std::string name{};
  void (*add)(Bench&);
};
/// All families, by name.
std::vector<const BenchmarkFamily*> families();

/// Speeds in bytes per second, medians over the repetitions. The ratio is the median of the ratios of adjacent runs.
struct Measured {
  double speed{0}, reference_speed{0}, ratio{0};
  int repetitions{0};
};
/// Calls reference and run in turns: once unmeasured, then at least `least` times and until `seconds` have passed.
Measured measure(const BenchmarkRow& row, int least, double seconds);

}  // namespace kvcts::bench
