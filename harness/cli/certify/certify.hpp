// kvcts certify: runs a profile with a product, and packs the results for a second party.
#pragma once

#include <string>

#include "cli/verb.hpp"

namespace kvcts::cli {

struct CertifyOptions {
  std::string profile, product, challenge, key, out;
  std::string bundle;  ///< file for a Sigstore bundle; "" = none
  std::string run;     ///< folder of the run; "" = <out>.run. An existing one is resumed
  int jobs{1};
};

/// Writes the package, or says in one sentence why there can be none, and returns an Exit. Throws UsageError.
int certify(const CertifyOptions& options, const Globals& globals);

}  // namespace kvcts::cli
