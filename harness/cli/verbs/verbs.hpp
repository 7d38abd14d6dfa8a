// The declare function of every verb; verbs.cpp lists them.
#pragma once

#include "cli/verb.hpp"

namespace kvcts::cli {

Action declare_list(CLI::App& app, const Globals& globals);
Action declare_run(CLI::App& app, const Globals& globals);
Action declare_repro(CLI::App& app, const Globals& globals);
Action declare_report(CLI::App& app, const Globals& globals);
Action declare_check(CLI::App& app, const Globals& globals);
Action declare_describe(CLI::App& app, const Globals& globals);
Action declare_doctor(CLI::App& app, const Globals& globals);
Action declare_schema(CLI::App& app, const Globals& globals);
Action declare_layouts(CLI::App& app, const Globals& globals);
Action declare_golden(CLI::App& app, const Globals& globals);
Action declare_minimize(CLI::App& app, const Globals& globals);
Action declare_triage(CLI::App& app, const Globals& globals);
Action declare_dump(CLI::App& app, const Globals& globals);
Action declare_museum(CLI::App& app, const Globals& globals);
Action declare_rules(CLI::App& app, const Globals& globals);
Action declare_conformance(CLI::App& app, const Globals& globals);
Action declare_explain(CLI::App& app, const Globals& globals);
Action declare_sabotage(CLI::App& app, const Globals& globals);

}  // namespace kvcts::cli
