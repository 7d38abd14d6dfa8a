#include "run/checker/checker.hpp"

#include <stdexcept>

#include "diagnose/run.hpp"
#include "run/checker/open_case.hpp"

namespace kvcts::checker {

using nlohmann::json;

Checker::Checker() = default;
Checker::~Checker() = default;

json Checker::handle(const json& request, std::vector<int>& fds) {
  try {
    const auto op = request.at("op").get<std::string>();
    json reply = json::object();
    if (op == "hello") {
      reply["ok"] = true;
      return reply;
    }
    if (op == "script") {
      // What the machine runs and the diagnosis sees has no title, no expected outcome and no facts.
      const ResolvedCase resolved = case_from_json(request.at("case"));
      reply = script::run_script(resolved.script, resolved.seed);
      reply["ok"] = true;
      return reply;
    }
    const auto key = request.at("key").get<std::uint64_t>();
    if (op == "open") {
      if (cases_.contains(key)) throw std::runtime_error("case key " + std::to_string(key) + " is already open");
      auto opened = std::make_unique<OpenCase>(case_from_json(request.at("case")));
      reply = opened->describe();
      fds = opened->descriptors();
      cases_.emplace(key, std::move(opened));
    } else {
      const auto found = cases_.find(key);
      if (found == cases_.end()) throw std::runtime_error("no open case has key " + std::to_string(key));
      if (op == "fill") {
        reply = found->second->fill(request.value("pass", 0));
      } else if (op == "compare") {
        reply = found->second->compare(request);
      } else if (op == "recheck") {
        reply = found->second->recheck();
      } else if (op == "look") {
        reply = found->second->look(request.value("region", ""), request.value("offset", std::int64_t{0}),
                                    request.value("bytes", std::int64_t{0}));
      } else if (op == "close") {
        cases_.erase(found);
      } else {
        throw std::runtime_error("expected open, fill, compare, recheck, look, close or script, found '" + op + "'");
      }
    }
    reply["ok"] = true;
    return reply;
  } catch (const std::exception& e) {
    return {{"error", {{"text", std::string("checker: ") + e.what()}}}};
  }
}

}  // namespace kvcts::checker
