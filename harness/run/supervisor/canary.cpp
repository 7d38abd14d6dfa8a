// After a worker hung or died: checks that what its engine shares with other processes, e.g. a device, still works.
#include <sys/wait.h>

#include <csignal>

#include <fmt/format.h>

#include "run/supervisor/case_executor.hpp"
#include "run/supervisor/evidence.hpp"
#include "run/worker/canary.hpp"

namespace kvcts::supervisor {

using Kind = PhaseResult::Kind;

/// Excludes the engine for the rest of the run if its canary fails.
Task<void> CaseExecutor::ask_canary(Attempt& a) {
  const EngineSpec& engine = a.resolved.engine;
  if (engine.plugin.empty()) co_return;  // a connector program shares nothing that can be checked
  if (run_.without_canary.contains(engine.plugin) || run_.set_aside.contains(engine.plugin)) co_return;
  const nlohmann::json asked{{"plugin", engine.plugin}, {"options", engine.options}};
  const std::int64_t begin = now_ns();
  // SIGKILL comes from outside, from the kernel for instance: it says nothing of the engine. 137: a sandbox says so.
  constexpr int most_tries = 3, killed_inside = 128 + SIGKILL;
  ToolResult reported;
  bool killed = true;
  for (int tries = 0; killed && tries < most_tries; ++tries) {
    Child::Spec spec;
    spec.argv = {run_.programs + "/kvcts-worker", "canary", asked.dump()};
    spec.name = spec.argv[0];
    spec.environment = engine.environment;
    process::UniqueFd filter;  // read to its end by each
    if (run_.sandboxes) {
      constexpr int filter_place = 3;  // after its two streams
      const process::Sandbox sandbox = sandbox_of(a.resolved, run_.options);
      filter = process::filter_of(sandbox);
      spec.argv = process::sandboxed(sandbox, filter_place, spec.argv);
      spec.more = {filter.get()};
    }
    reported = co_await run_tool(std::move(spec), run_.options.canary_deadline_ms, run_.link);
    killed = reported.ended && ((WIFSIGNALED(*reported.ended) && WTERMSIG(*reported.ended) == SIGKILL) ||
                                (WIFEXITED(*reported.ended) && WEXITSTATUS(*reported.ended) == killed_inside));
  }
  if (reported.ended && WIFEXITED(*reported.ended) && WEXITSTATUS(*reported.ended) == worker::canary_none) {
    run_.without_canary.insert(engine.plugin);
    co_return;
  }
  const bool passes = reported.ended && WIFEXITED(*reported.ended) && WEXITSTATUS(*reported.ended) == worker::canary_passes;
  const std::string took = std::to_string((now_ns() - begin) / 1'000'000) + " ms";
  std::string words = passes ? "passes after " + took : reported.text;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  if (!passes && reported.ended && (!WIFEXITED(*reported.ended) || WEXITSTATUS(*reported.ended) > 128))
    words += (words.empty() ? "" : "; ") +
             (std::string("a signal killed its process") + (killed ? fmt::format(", {} times", most_tries) : ""));
  add_evidence(a.result, "canary", words + "\n");
  if (passes) co_return;
  run_.set_aside.emplace(engine.plugin, "after " + a.result.id + " the canary of " + engine.plugin + " failed: " + words);
  run_.log("set aside for the rest of this run: " + engine.plugin + "; " + run_.set_aside.at(engine.plugin));
}

}  // namespace kvcts::supervisor
