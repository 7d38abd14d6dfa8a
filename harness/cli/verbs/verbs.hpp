// The declare function of every verb; verbs.cpp lists them.
#pragma once

#include "cli/verb.hpp"

namespace kvcts::cli {

Action declare_doctor(CLI::App& app, const Globals& globals);
Action declare_schema(CLI::App& app, const Globals& globals);
Action declare_layouts(CLI::App& app, const Globals& globals);
Action declare_golden(CLI::App& app, const Globals& globals);
Action declare_explain(CLI::App& app, const Globals& globals);

}  // namespace kvcts::cli
