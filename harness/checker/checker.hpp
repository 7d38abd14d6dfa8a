// The checker: everything trusted that touches bytes. One object a lane; its process loop is checker_main.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

namespace kvcts::checker {

/// Answers the checker requests of process/protocol.hpp. Replies carry descriptors in `fds` (open only).
class Checker {
 public:
  Checker();
  ~Checker();
  nlohmann::json handle(const nlohmann::json& request, std::vector<int>& fds);

 private:
  struct Case;
  std::map<std::uint64_t, std::unique_ptr<Case>> cases_;
};

}  // namespace kvcts::checker
