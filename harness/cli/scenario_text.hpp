// A scripted case in lines: its memories, requests and steps, and beside each step what the code did instead.
#pragma once

#include <string>
#include <vector>

#include "case/scenario.hpp"

namespace kvcts::cli {

std::vector<std::string> scenario_lines(const scenario::Scenario& scenario);

}  // namespace kvcts::cli
