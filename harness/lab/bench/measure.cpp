#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "kernels/parallel.hpp"
#include "lab/bench/bench.hpp"

namespace kvcts::bench {
namespace {

constexpr std::size_t page = 4096;

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<const BenchmarkFamily*>& registered() {
  static std::vector<const BenchmarkFamily*> all;
  return all;
}

}  // namespace

BenchmarkFamily::BenchmarkFamily(std::string_view family, void (*rows)(Bench&)) : name(family), add(rows) {
  registered().push_back(this);
}

std::vector<const BenchmarkFamily*> families() {
  auto all = registered();
  std::sort(all.begin(), all.end(), [](const BenchmarkFamily* a, const BenchmarkFamily* b) { return a->name < b->name; });
  return all;
}

void Bench::set(std::size_t bytes) const {
  const auto out = buffer(0).first(bytes == 0 ? this->bytes() : bytes);
  kernels::parallel_ranges(threads_, out.size(), page,
                           [&](std::size_t begin, std::size_t end) { std::memset(out.data() + begin, 0x5a, end - begin); });
}

void Bench::copy(std::size_t bytes) const {
  const auto from = buffer(0).first(bytes == 0 ? this->bytes() : bytes);
  kernels::parallel_ranges(threads_, from.size(), page, [&](std::size_t begin, std::size_t end) {
    std::memcpy(buffer(1).data() + begin, from.data() + begin, end - begin);
  });
}

void Bench::compare(std::size_t bytes) const {
  const auto a = buffer(0).first(bytes == 0 ? this->bytes() : bytes);
  kernels::parallel_ranges(threads_, a.size(), page, [&](std::size_t begin, std::size_t end) {
    if (std::memcmp(a.data() + begin, buffer(1).data() + begin, end - begin) != 0) {
      throw std::logic_error("a yardstick needs two equal buffers; the row's prepare() must make them so");
    }
  });
}

Measured measure(const BenchmarkRow& row, int least, double seconds) {
  if (row.prepare) row.prepare();
  row.reference();
  row.run();
  const double reference_bytes = row.reference_bytes > 0 ? row.reference_bytes : row.bytes;
  std::vector<double> speeds, reference_speeds, ratios;
  double spent = 0;
  while (static_cast<int>(ratios.size()) < least || spent < seconds) {
    const double of_reference = seconds_of(row.reference), of_run = seconds_of(row.run);
    spent += of_reference + of_run;
    reference_speeds.push_back(reference_bytes / of_reference);
    speeds.push_back(row.bytes / of_run);
    ratios.push_back(speeds.back() / reference_speeds.back());
  }
  return {median(speeds), median(reference_speeds), median(ratios), static_cast<int>(ratios.size())};
}

}  // namespace kvcts::bench
