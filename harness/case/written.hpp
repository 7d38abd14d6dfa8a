// A resolved case as it travels to the checker, with its digests: all of them of one document, written once a case.
#pragma once

#include "case/case.hpp"

namespace kvcts {

struct Written {
  nlohmann::json document;  ///< to_json()
  std::string digest;       ///< digest()
  std::string execution;    ///< digest() without arch
};
Written written(const ResolvedCase& resolved);

}  // namespace kvcts
