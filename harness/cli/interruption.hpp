// What Ctrl-C, SIGTERM and a closed terminal do to the program. One mechanism for all verbs: while the supervisor runs cases
// it handles these signals itself, ends what it started and reports it (supervisor::Summary); at any other time the program
// ends at once.
#pragma once

namespace kvcts::cli {

/// From here on SIGINT, SIGTERM and SIGHUP end the program with one line ("kvcts list: interrupted") and exit_interrupted.
/// SIGHUP stays ignored where it was (nohup). Processes that a verb forked end with it (PR_SET_PDEATHSIG).
void end_when_interrupted();
/// "kvcts list", for that line. Kept; at most 60 bytes.
void set_interrupted_name(const char* who);

}  // namespace kvcts::cli
