// A scripted case: no worker, only one request to the checker.
#include <algorithm>

#include "run/supervisor/evidence.hpp"
#include "run/supervisor/lane.hpp"

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;

namespace {

// What was reported, one line per event: "move2 move bytes=1280 moved=true".
std::string events_text(const json& events) {
  std::string out;
  for (const json& event : events) {
    std::string line = event.value("step", "") + " " + event.value("op", "");
    for (const auto& [key, value] : event.items()) {
      if (key == "step" || key == "op" || key == "backing" || value.is_null() || (value.is_structured() && value.empty()))
        continue;
      line += " " + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace

Task<void> Lane::run_script(Attempt& a) {
  checker_.need();
  enter(a, Phase::compare);
  json request = {{"op", CheckerRequest::script}, {"case", std::move(a.written.document)}};
  checker_.request(std::move(request));
  const json reply = co_await checker_reply(&a.resolved);
  const std::int64_t total = now_ns() - a.since_ns;
  const json times = reply.value("ns", json::object());
  const std::int64_t diagnosing = std::clamp<std::int64_t>(times.value("diagnose", std::int64_t{0}), 0, total);
  spend(a, Phase::compare, total - diagnosing);
  if (diagnosing > 0) spend(a, Phase::diagnose, diagnosing);
  decide_script(reply, a.result);
  for (const json& event : reply.value("events", json::array())) {
    a.result.moved_bytes += event.value("bytes_moved", std::int64_t{0});
  }
  if (run_.options.keep_plans || a.result.outcome != Outcome::pass)
    add_evidence(a.result, "events", events_text(reply.value("events", json::array())));
}

}  // namespace kvcts::supervisor
