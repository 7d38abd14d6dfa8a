// The declare function of every verb; verbs.cpp lists them.
#pragma once

#include "cli/verb.hpp"

namespace kvcts::cli {

Action declare_list(Command& command, const Globals& globals);
Action declare_run(Command& command, const Globals& globals);
Action declare_repro(Command& command, const Globals& globals);
Action declare_report(Command& command, const Globals& globals);
Action declare_check(Command& command, const Globals& globals);
Action declare_describe(Command& command, const Globals& globals);
Action declare_doctor(Command& command, const Globals& globals);
Action declare_schema(Command& command, const Globals& globals);
Action declare_layouts(Command& command, const Globals& globals);
Action declare_golden(Command& command, const Globals& globals);
Action declare_minimize(Command& command, const Globals& globals);
Action declare_triage(Command& command, const Globals& globals);
Action declare_dump(Command& command, const Globals& globals);
Action declare_museum(Command& command, const Globals& globals);
Action declare_rules(Command& command, const Globals& globals);
Action declare_conformance(Command& command, const Globals& globals);
Action declare_explain(Command& command, const Globals& globals);
Action declare_sabotage(Command& command, const Globals& globals);

}  // namespace kvcts::cli
