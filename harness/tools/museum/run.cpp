// Runs all cases of the museum through the library: the same work as kvcts-checker, without processes.
#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "case/resolve/resolve_script.hpp"
#include "diagnose/run.hpp"
#include "tools/museum/museum.hpp"

namespace kvcts::museum {

namespace {

Ending run_one(const CaseSpec& spec, const catalogue::Catalogue& catalogue) {
  try {
    Report report = script::run_script(resolve_script(spec, catalogue), spec.seed);
    return {report.outcome, report.diagnosis.fault_class, std::move(report.message)};
  } catch (const std::exception& error) {
    return {Outcome::error, FaultClass::none, error.what()};
  }
}

}  // namespace

Endings run(const std::vector<Exhibit>& exhibits, const catalogue::Catalogue& catalogue) {
  std::vector<const CaseSpec*> specs;
  for (const Exhibit& e : exhibits) {
    for (const CaseSpec& spec : e.cases) specs.push_back(&spec);
    for (const CaseSpec& spec : e.controls) specs.push_back(&spec);
  }
  std::vector<Ending> endings(specs.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < specs.size(); i = next++) endings[i] = run_one(*specs[i], catalogue);
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
    work();
  }
  Endings out;
  for (std::size_t i = 0; i < specs.size(); ++i) out.emplace(specs[i]->id, std::move(endings[i]));
  return out;
}

}  // namespace kvcts::museum
