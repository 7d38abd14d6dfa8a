#include "run/checker/checker.hpp"

#include <stdexcept>

#include "diagnose/run.hpp"
#include "process/request.hpp"
#include "run/checker/open_case.hpp"

namespace kvcts::checker {

using nlohmann::json;
using process::CheckerRequest;

namespace {
std::optional<Side> side_of(const json& request) {
  const auto side = request.find("side");
  if (side == request.end()) return std::nullopt;
  return *side == "producer" ? Side::producer : Side::consumer;
}
}  // namespace

Checker::Checker() = default;
Checker::~Checker() = default;

json Checker::handle(const json& request, std::vector<int>& fds) {
  try {
    const auto op = process::request_in<CheckerRequest>(request);
    if (!op) throw std::runtime_error(process::unknown_request<CheckerRequest>(request));
    json reply = json::object();
    switch (*op) {
      case CheckerRequest::hello:
        break;
      case CheckerRequest::open: {
        const auto key = request.at("key").get<std::uint64_t>();
        if (cases_.contains(key)) throw std::runtime_error("case key " + std::to_string(key) + " is already open");
        auto opened = std::make_unique<OpenCase>(case_from_json(request.at("case")), side_of(request));
        reply = opened->describe();
        fds = opened->descriptors();
        cases_.emplace(key, std::move(opened));
        break;
      }
      case CheckerRequest::fill:
        reply = open_case(request).fill(request.value("pass", 0));
        break;
      case CheckerRequest::see:
        open_case(request).see();
        if (request.value("reuse", json()).is_object())
          open_case(request).reuse(request["reuse"].value("request", ""), request["reuse"].value("word", ""));
        break;
      case CheckerRequest::compare:
        reply["report"] = to_json(compare(request));
        break;
      case CheckerRequest::recheck:
        reply["late"] = to_json(open_case(request).recheck());
        break;
      case CheckerRequest::look:
        reply = open_case(request).look(request.value("region", ""), request.value("offset", std::int64_t{0}),
                                        request.value("bytes", std::int64_t{0}));
        break;
      case CheckerRequest::close:
        open_case(request);
        cases_.erase(request.at("key").get<std::uint64_t>());
        break;
    }
    reply["ok"] = true;
    return reply;
  } catch (const std::exception& e) {
    return {{"error", {{"text", std::string("checker: ") + e.what()}}}};
  }
}

Report Checker::compare(const json& request) {
  const auto whole = request.find("case");
  if (whole == request.end()) return open_case(request).compare(request);
  // What our machine runs and the diagnosis sees has no title, no expected outcome and no facts.
  const ResolvedCase resolved = case_from_json(*whole);
  Report out = scenario::run_scenario(resolved.scenario, resolved.seed);
  if (!request.value("trace", false)) out.trace.clear();
  return out;
}

OpenCase& Checker::open_case(const json& request) {
  const auto key = request.at("key").get<std::uint64_t>();
  const auto found = cases_.find(key);
  if (found == cases_.end()) throw std::runtime_error("no open case has key " + std::to_string(key));
  return *found->second;
}

}  // namespace kvcts::checker
