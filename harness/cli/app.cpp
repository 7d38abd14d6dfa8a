#include "cli/app.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "case/catalogue/catalogue.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/question.hpp"
#include "cli/verb.hpp"
#include "run/store/error.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {
namespace {

/// Errors are one line, whatever a library put into its text.
int fail(const std::string& who, const std::string& what, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", one_line(who + ": " + what).c_str());
  return status;
}

std::string verb_names() {
  std::string names;
  for (const Verb& verb : verbs()) names += (names.empty() ? "" : ", ") + std::string(verb.name);
  return names;
}

/// Parses and runs. `who`: the program and its verb, for errors.
int parse_and_run(int argc, const char* const* argv, std::string& who) {
  try {
    Globals globals;
    CLI::App app{"KV-CTS: does a KV cache survive being registered and moved, byte for byte?", "kvcts"};
    app.set_version_flag("--version", "kvcts " KVCTS_VERSION);
    app.add_flag("--json", globals.json, "One JSON document on standard output");
    app.add_option("--cases", globals.cases, "Folder of the catalogue (default: beside the program)")->type_name("DIR");
    app.require_subcommand(1);
    app.fallthrough();  // --json and --cases may also follow the verb
    app.failure_message([](const CLI::App*, const CLI::Error& e) { return std::string(e.what()); });

    Action action;
    for (const Verb& verb : verbs()) {
      CLI::App* sub = app.add_subcommand(std::string(verb.name), std::string(verb.summary));
      Command command(*sub);
      sub->callback([&, declared = verb.declare(command, globals)] { action = declared; });
    }
    if (argc > 1 && argv[1][0] != '-' && argv[1][0] != '\0') {
      const std::string wanted = argv[1];
      const auto& all = verbs();
      if (std::none_of(all.begin(), all.end(), [&](const Verb& v) { return v.name == wanted; })) {
        return fail(who, "unknown verb '" + wanted + "'; verbs are " + verb_names(), exit_usage);
      }
      who += " " + wanted;
      set_interrupted_name(who.c_str());
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      std::fputs(app.help().c_str(), stdout);
      return exit_as_expected;
    } catch (const CLI::CallForAllHelp&) {
      std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
      return exit_as_expected;
    } catch (const CLI::CallForVersion& e) {
      std::printf("%s\n", e.what());
      return exit_as_expected;
    } catch (const CLI::ParseError& e) {
      if (argc <= 1) return fail(who, "expected a verb: " + verb_names() + "; `kvcts --help` describes them", exit_usage);
      return fail(who, std::string(e.what()) + "; `" + who + " --help` lists the options", exit_usage);
    }
    return action();
  } catch (const UsageError& e) {
    return fail(who, e.what(), exit_usage);
  } catch (const NothingSelected& e) {
    return fail(who, std::string("nothing selected: ") + e.what(), exit_nothing_selected);
  } catch (const supervisor::Interrupted&) {
    return fail(who, "interrupted", exit_interrupted);
  } catch (const store::Damaged& e) {  // found when the run was opened, or later
    return fail(who, e.what(), exit_usage);
  } catch (const catalogue::Error& e) {  // a file or a name that the user gave
    return fail(who, e.what(), exit_usage);
  } catch (const std::exception& e) {
    return fail(who, e.what(), exit_own_error);
  } catch (...) {
    return fail(who, "an unknown error", exit_own_error);
  }
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  if (answered(argc, argv)) return exit_own_error;  // there is no such question
  std::string who = "kvcts";
  Output output;
  const int status = parse_and_run(argc, argv, who);
  const std::string lost = output.finish();
  if (lost.empty() || status == exit_interrupted) return status;  // a terminal that was closed takes no output
  return fail(who, "standard output cannot be written (" + lost + "); what was printed is incomplete", exit_own_error);
}

}  // namespace kvcts::cli
