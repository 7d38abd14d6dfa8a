// A resolved case as sent to the checker, with its digests: all of one document, written once per case.
#pragma once

#include "case/case.hpp"

namespace kvcts {

struct SerializedCase {
  nlohmann::json document;  ///< to_json()
  std::string digest;       ///< digest()
  std::string execution;    ///< digest() without arch
};
SerializedCase serialize(const ResolvedCase& resolved);

}  // namespace kvcts
