// A case carried out in this process: the connector's plan, memcpy in place of an engine, and the checker's own comparison.
// For the suite's own models of connectors only: code under test belongs into workers.
#pragma once

#include <string>
#include <vector>

#include "case/case.hpp"

namespace kvcts::compat {

struct Carried {
  enum class End { exact, refused, raised, outside, wrong } end{End::exact};
  std::string text;                ///< refused, raised: its words; outside: which copy; wrong: the diagnosis
  FaultClass fault_class{};        ///< wrong
  std::vector<std::string> bytes;  ///< wrong: the first places, in words
  bool relayout{false};
  std::size_t copies{0};
  std::int64_t smallest{0};  ///< bytes of the smallest copy
};

/// Throws std::runtime_error on a case that no connector of the suite plans (kind program).
Carried carry_out(const ResolvedCase& resolved);

}  // namespace kvcts::compat
