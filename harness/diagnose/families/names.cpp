#include "diagnose/precedence.hpp"
#include "diagnose/workshop.hpp"

namespace kvcts::script {

std::vector<std::string> family_names() {
  std::vector<std::string> out;
  for (const Family& family : families()) out.push_back(family.name);
  return out;
}

}  // namespace kvcts::script
