#include "run/supervisor/run.hpp"

namespace kvcts::supervisor {

std::optional<std::size_t> Run::next() {
  if (stopping || next_job >= jobs.count || (handlers.stop && handlers.stop())) return std::nullopt;
  return next_job++;
}

void Run::emit(std::size_t job, CaseResult&& result) {
  if (finished[job]) return;
  finished[job] = true;
  ++(result.outcome == Outcome::not_run ? summary.not_run : summary.finished);
  try {
    handlers.on_result(job, std::move(result));
  } catch (...) {
    fail(std::current_exception());
  }
}

}  // namespace kvcts::supervisor
