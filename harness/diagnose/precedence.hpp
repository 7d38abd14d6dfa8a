// The committed order of precedence, for people: `kvcts explain --precedence` prints it.
#pragma once

#include <string>
#include <vector>

namespace kvcts::script {

/// Names of the families of hypotheses in their order (precedence.cpp).
std::vector<std::string> family_names();

/// While it lives, searches of its thread go without a family. For tests: what would nobody else name?
class WithoutFamily {
 public:
  explicit WithoutFamily(const std::string& name);
  ~WithoutFamily();
  WithoutFamily(const WithoutFamily&) = delete;
  WithoutFamily& operator=(const WithoutFamily&) = delete;
};

}  // namespace kvcts::script
