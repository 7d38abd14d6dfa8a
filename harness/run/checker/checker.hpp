// The checker: everything trusted that touches bytes. One object per executor; checker_main.cpp has its process loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "case/result.hpp"

namespace kvcts::checker {

class OpenCase;

/// Answers the checker requests of process/protocol.hpp.
class Checker {
 public:
  Checker();
  ~Checker();
  /// Replies to one request. `fds` receives the descriptors that go with the reply to `open` (the checker keeps
  /// them). Never throws: a fault of the suite becomes {"error": {...}}.
  nlohmann::json handle(const nlohmann::json& request, std::vector<int>& fds);

 private:
  /// Throws std::runtime_error where none has the request's key.
  OpenCase& open_case(const nlohmann::json& request);
  /// Of an open case, or of a whole one that our machine performs.
  Report compare(const nlohmann::json& request);
  std::map<std::uint64_t, std::unique_ptr<OpenCase>> cases_;
};

}  // namespace kvcts::checker
