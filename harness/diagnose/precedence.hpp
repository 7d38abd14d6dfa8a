// The committed order of precedence, in readable form: `kvcts explain --precedence` prints it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "case/outcome.hpp"

namespace kvcts::script {

/// The families of hypotheses, ascending by what they cost (precedence.cpp).
struct FamilyCost {
  std::string name;
  double cost{0};
  std::vector<FaultClass> classes;  ///< of what they propose; {} = those of all others
};
std::vector<FamilyCost> family_costs();

/// While it lives, it collects the classes that each family proposes in its thread. For tests of the table.
class Proposals {
 public:
  Proposals();
  ~Proposals();
  Proposals(const Proposals&) = delete;
  Proposals& operator=(const Proposals&) = delete;
  static Proposals* current();
  void add(const std::string& family, FaultClass fault_class) { all_[family].insert(fault_class); }
  const std::map<std::string, std::set<FaultClass>>& all() const { return all_; }

 private:
  std::map<std::string, std::set<FaultClass>> all_;
};

/// While it lives, searches in its thread skip one family. For tests: which cases does only that family explain?
class WithoutFamily {
 public:
  explicit WithoutFamily(const std::string& name);
  ~WithoutFamily();
  WithoutFamily(const WithoutFamily&) = delete;
  WithoutFamily& operator=(const WithoutFamily&) = delete;
};

}  // namespace kvcts::script
