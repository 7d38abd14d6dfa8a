// The committed order of precedence, in readable form: `kvcts explain --precedence` prints it.
#pragma once

#include <string>
#include <vector>

namespace kvcts::script {

/// Names of the families of hypotheses, in order (precedence.cpp).
std::vector<std::string> family_names();

/// While it lives, searches in its thread skip one family. For tests: which cases does only that family explain?
class WithoutFamily {
 public:
  explicit WithoutFamily(const std::string& name);
  ~WithoutFamily();
  WithoutFamily(const WithoutFamily&) = delete;
  WithoutFamily& operator=(const WithoutFamily&) = delete;
};

}  // namespace kvcts::script
