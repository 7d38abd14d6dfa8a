// kvcts_bench: every ratio and its target. See bench.hpp.
#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "kernels/parallel.hpp"
#include "lab/bench/bench.hpp"
#include "lab/bench/machine.hpp"
#include "lab/bench/tensor.hpp"

namespace kvcts::bench {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::size_t> mib{256, 4096};
  std::vector<int> threads;
  std::string only = "*";
  std::string json_file, tensor;
  double seconds{0.6};
  int least{5};
  bool quick{false}, list{false};
};

/// Two buffers of one size, on huge pages if the system has them: the same for kernels and yardsticks.
class Buffers {
 public:
  explicit Buffers(std::size_t bytes) : bytes_(bytes) {
    for (auto& at : at_) {
      void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (got == MAP_FAILED) throw std::runtime_error(fmt::format("no memory for two buffers of {} MiB", bytes >> 20));
      madvise(got, bytes, MADV_HUGEPAGE);
      at = static_cast<std::uint8_t*>(got);
      std::memset(at, 1, bytes);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (auto* at : at_)
      if (at != nullptr) munmap(at, bytes_);
  }
  std::span<std::uint8_t> operator[](int which) const { return {at_[which], bytes_}; }

 private:
  std::size_t bytes_;
  std::uint8_t* at_[2]{};
};

double available_gib() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) return std::stod(line.substr(13)) / (1 << 20);
  return static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
}

std::string amount(std::size_t bytes) {
  return bytes % (std::size_t{1} << 30) == 0 ? fmt::format("{} GiB", bytes >> 30) : fmt::format("{} MiB", bytes >> 20);
}

std::string verdict(const BenchmarkRow& row, const Measured& m) {
  if (row.target <= 0) return "";
  return m.ratio >= row.target ? "ok" : "short";
}

class Program {
 public:
  explicit Program(const Options& options) : options_(options) {}

  void run() {
    result_ = {{"program", "kvcts_bench"},
               {"quick", options_.quick},
               {"machine", machine()},
               {"rows", json::array()},
               {"skipped", json::array()}};
    const json& m = result_["machine"];
    fmt::print("{}, {} processors, {} GiB, {}, {}\n", m["cpu"].get<std::string>(), m["processors"].get<int>(),
               m["memory_gib"].get<double>(), m["isa"].get<std::string>(), m["date"].get<std::string>());
    for (const std::size_t mib : options_.mib) size(mib << 20);
    if (!options_.json_file.empty()) {
      std::ofstream out(options_.json_file);
      out << result_.dump(1) << '\n';
      if (!out.flush()) throw std::runtime_error("cannot write " + options_.json_file);
    }
    if (rows_ == 0 && result_["skipped"].empty())
      throw std::runtime_error("unknown row '" + options_.only + "'; see --list");
  }

 private:
  void size(std::size_t bytes) {
    const double needed = 2.0 * static_cast<double>(bytes) / (1 << 30), there = available_gib();
    if (needed > 0.8 * there) {
      const auto reason =
          fmt::format("two buffers of {} need {:.1f} GiB, {:.1f} GiB are available", amount(bytes), needed, there);
      fmt::print("\nSKIPPED {}: {}\n", amount(bytes), reason);
      result_["skipped"].push_back({{"buffer_bytes", bytes}, {"reason", reason}});
      return;
    }
    const Buffers buffers(bytes);
    for (const int threads : options_.threads) {
      bool headed = false;
      for (const BenchmarkFamily* family : families()) {
        Bench bench(buffers[0], buffers[1], threads, options_.quick);
        family->add(bench);
        for (const BenchmarkRow& row : bench.rows()) {
          const std::string name = family->name + "/" + row.name;
          if (fnmatch(options_.only.c_str(), name.c_str(), 0) != 0) continue;
          if (!headed) {
            fmt::print("\n{}, {} thread{}\n{:<58} {:>8} {:>8} {:>7} {:>7}\n", amount(bytes), threads,
                       threads == 1 ? "" : "s", "", "GB/s", "yardst.", "ratio", "target");
            headed = true;
          }
          one(name, family->name, row, bytes, threads);
        }
      }
    }
  }

  void one(const std::string& name, const std::string& family, const BenchmarkRow& row, std::size_t bytes, int threads) {
    ++rows_;
    if (options_.list) {
      fmt::print("{:<58} against {}\n", name, row.against);
      return;
    }
    const Measured m = measure(row, options_.quick ? 1 : options_.least, options_.quick ? 0 : options_.seconds);
    if (!std::isfinite(m.ratio) || m.ratio <= 0) throw std::runtime_error("row " + name + " gave no finite ratio");
    const std::string message = verdict(row, m);
    fmt::print("{:<58} {:>8.2f} {:>8.2f} {:>7.2f} {:>7} {:<5} {}{}\n", name, m.speed / 1e9, m.reference_speed / 1e9, m.ratio,
               row.target > 0 ? fmt::format("{:.2f}", row.target) : "", message, row.against,
               message == "short" && !row.why.empty() ? "; " + row.why : "");
    std::fflush(stdout);
    result_["rows"].push_back({{"name", name},
                               {"family", family},
                               {"against", row.against},
                               {"buffer_bytes", bytes},
                               {"threads", threads},
                               {"bytes", row.bytes},
                               {"speed", m.speed},
                               {"reference_speed", m.reference_speed},
                               {"ratio", m.ratio},
                               {"target", row.target},
                               {"repetitions", m.repetitions},
                               {"why", row.why}});
  }

  const Options& options_;
  json result_;
  int rows_{0};
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Measure how close the kernels come to memory speed: ratios to memset, memcmp, memcpy and XXH3, measured in turns in "
      "one run"};
  app.add_option("--size", options.mib, "MiB of each of the two buffers (default: 256 4096)")->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", options.threads, "numbers of threads (default: 1 and all)")->check(CLI::Range(1, 1024));
  app.add_option("--only", options.only, "rows whose family/name matches this glob");
  app.add_option("--seconds", options.seconds, "time for each row")->capture_default_str();
  app.add_option("--repetitions", options.least, "least repetitions of each row")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", options.json_file, "write all numbers to this file");
  app.add_option("--tensor", options.tensor, "write a position-coded fp16 tensor of --size to this file, measure nothing");
  app.add_flag("--quick", options.quick, "every row once on small buffers: that it runs, not how fast");
  app.add_flag("--list", options.list, "name the rows, measure nothing");
  CLI11_PARSE(app, argc, argv);
  if (options.threads.empty()) {
    options.threads = {1};
    if (kernels::processors() > 1) options.threads.push_back(kernels::processors());
  }
  if (app.count("--size") == 0 && (options.quick || options.list)) options.mib = {4};
  if (!options.tensor.empty()) {
    write_tensor(options.tensor, options.mib.front() << 20);
    return 0;
  }
  Program(options).run();
  return 0;
}

}  // namespace
}  // namespace kvcts::bench

int main(int argc, char** argv) {
  try {
    return kvcts::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvcts_bench: %s\n", error.what());
    return 3;
  }
}
