// A scripted case in lines: its memories, requests and steps, and beside each step what the code did instead.
#pragma once

#include <string>
#include <vector>

#include "case/script.hpp"

namespace kvcts::cli {

std::vector<std::string> script_lines(const script::Script& script);

}  // namespace kvcts::cli
