#include "cli/certify/subject.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "case/resolve/resolve.hpp"

namespace kvcts::cli {

namespace {
matrix::Query query_for(const catalogue::ProfileEntry& profile) {
  matrix::Query query;
  query.suites = {catalogue::suite_of(profile)};
  return query;
}
}  // namespace

Subject::Subject(const std::filesystem::path& cases, const std::string& profile, const std::string& product,
                 const std::string& shown)
    : profile_(catalogue::load_profile(cases, profile)),
      product_(catalogue::read_product(product, shown)),
      catalogue_(cases, catalogue::additions_of(profile_, product_)),
      selection_(matrix::select(catalogue_, query_for(profile_))) {}

ResolvedCase Subject::resolve(std::size_t i, std::uint64_t seed, const std::string& engine) const {
  CaseSpec spec = selection_.spec(i);
  spec.seed = seed;
  if (!engine.empty()) spec.engine = engine;
  ResolvedCase resolved = kvcts::resolve(spec, catalogue_);
  resolved.facts.update(selection_.facts(i));
  return resolved;
}

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::mutex lock;
  std::exception_ptr first;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const std::lock_guard guard(lock);
      if (!first) first = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (auto& thread : threads) thread = std::thread(work);
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace kvcts::cli
