// kvcts-throughput [cases] [lanes] [engine] [processes]: how many isolated small cases a second the processes manage, every
// check on.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "process/status_view.hpp"
#include "supervisor/supervisor.hpp"
#include "supervisor/testing/small_case.hpp"

int main(int argc, char** argv) {
  using namespace kvcts;
  const std::size_t count = argc > 1 ? static_cast<std::size_t>(std::atoll(argv[1])) : 3000;
  supervisor::Options options;
  options.jobs = argc > 2 ? std::atoi(argv[2]) : 1;
  const ResolvedCase one =
      supervisor::testing::small_case("x", argc > 3 ? argv[3] : "memcpy", argc > 4 ? std::atoi(argv[4]) : 1);
  const supervisor::Jobs jobs{count, [](std::size_t i) { return std::to_string(i); }, [&](std::size_t) { return one; }};
  std::size_t passed = 0;
  std::string last;
  supervisor::Handlers handlers;
  handlers.on_result = [&](CaseResult&& result) {
    passed += result.outcome == Outcome::pass;
    last = to_json(result).dump();
  };
  const std::int64_t begin = process::now_ns();
  supervisor::run_cases(jobs, options, handlers);
  const double seconds = static_cast<double>(process::now_ns() - begin) / 1e9;
  rusage own{}, children{};
  getrusage(RUSAGE_SELF, &own);
  getrusage(RUSAGE_CHILDREN, &children);
  const auto time = [](const rusage& usage) {
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  };
  std::printf(
      "%zu of %zu passed in %.2f s: %.0f cases/s; processor: supervisor %.2f s, others %.2f s: %.0f cases/s/core\n%s\n",
      passed, count, seconds, static_cast<double>(count) / seconds, time(own), time(children),
      static_cast<double>(count) / (time(own) + time(children)), last.c_str());
  return passed == count ? 0 : 1;
}
