// The committed order of precedence, for people: `kvcts explain --precedence` prints it, reports/precedence.md has it in words.
#pragma once

#include <string>
#include <vector>

namespace kvcts::script {

/// Names of the families of hypotheses in their order (precedence.cpp).
std::vector<std::string> family_names();

}  // namespace kvcts::script
