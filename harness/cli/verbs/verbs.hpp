// The declare function of every verb; verbs.cpp lists them. Each verb has a namespace, so that several can be compiled in
// one translation unit. It ends in _verb, because kvcts::minimize, kvcts::rules and so on are the rooms behind them.
#pragma once

#include "cli/verb.hpp"

namespace kvcts::cli::list_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::run_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::repro_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::compare_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::history_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::merge_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::report_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::check_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::describe_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::doctor_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::schema_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::layouts_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::golden_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::minimize_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::dump_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::rules_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::conformance_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::explain_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::certify_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::challenge_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::verify_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::key_verb {
Action declare(Command& command, const Globals& globals);
}
namespace kvcts::cli::sabotage_verb {
Action declare(Command& command, const Globals& globals);
}
