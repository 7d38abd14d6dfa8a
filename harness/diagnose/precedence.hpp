// The committed order of precedence, in readable form: `kvcts explain --precedence` prints it.
#pragma once

#include <string>
#include <vector>

namespace kvcts::script {

/// The families of hypotheses, ascending by what they cost (precedence.cpp).
struct FamilyCost {
  std::string name;
  double cost{0};
};
std::vector<FamilyCost> family_costs();

/// While it lives, searches in its thread skip one family. For tests: which cases does only that family explain?
class WithoutFamily {
 public:
  explicit WithoutFamily(const std::string& name);
  ~WithoutFamily();
  WithoutFamily(const WithoutFamily&) = delete;
  WithoutFamily& operator=(const WithoutFamily&) = delete;
};

}  // namespace kvcts::script
