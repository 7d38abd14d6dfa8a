#include "diagnose/precedence.hpp"
#include "diagnose/workshop.hpp"

namespace kvcts::script {

std::vector<FamilyCost> family_costs() {
  std::vector<FamilyCost> out;
  for (const Family& family : families()) out.push_back({family.name, family.cost, family.classes});
  return out;
}

}  // namespace kvcts::script
