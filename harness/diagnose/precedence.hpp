// The committed order of precedence, in readable form: `kvcts explain --precedence` prints it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "case/outcome.hpp"

namespace kvcts::scenario {

/// The generators of hypotheses, ascending by what they cost (precedence.cpp).
struct GeneratorCost {
  std::string name;
  double cost{0};
  std::vector<FaultClass> classes;  ///< of what they generate; {} = those of all others
};
std::vector<GeneratorCost> generator_costs();

/// While it lives, it collects the classes that each generator proposes in its thread. For tests of the table.
class Proposals {
 public:
  Proposals();
  ~Proposals();
  Proposals(const Proposals&) = delete;
  Proposals& operator=(const Proposals&) = delete;
  static Proposals* current();
  void add(const std::string& generator, FaultClass fault_class) { all_[generator].insert(fault_class); }
  const std::map<std::string, std::set<FaultClass>>& all() const { return all_; }

 private:
  std::map<std::string, std::set<FaultClass>> all_;
};

/// While it lives, searches in its thread skip one generator. For tests: which cases does only that generator explain?
class WithoutGenerator {
 public:
  explicit WithoutGenerator(const std::string& name);
  ~WithoutGenerator();
  WithoutGenerator(const WithoutGenerator&) = delete;
  WithoutGenerator& operator=(const WithoutGenerator&) = delete;
};

}  // namespace kvcts::scenario
