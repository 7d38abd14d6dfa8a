#include "cli/app.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/nearest.hpp"
#include "cli/child_query.hpp"
#include "cli/help.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
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

/// What the command line asks for: a verb of the table, and the words behind it without its mode's flag.
struct Asked {
  const Verb* verb{nullptr};
  std::vector<std::string> words;
};

const Verb* find_verb(const std::string& name, std::string_view mode) {
  for (const Verb& verb : verbs())
    if (verb.name == name && verb.mode == mode) return &verb;
  return nullptr;
}

/// Former names stay: `kvcts sabotage` is `kvcts inject`.
const Verb* find_former(const std::string& name) {
  for (const Verb& verb : verbs())
    if (!verb.former.empty() && verb.former == name) return &verb;
  return nullptr;
}

/// `words` behind the verb's name. "--shape 2,9" and "--shape=2,9" both leave "2,9".
Asked with_mode(const std::string& name, std::vector<std::string> words) {
  for (const Verb& verb : verbs()) {
    if (verb.name != name || verb.mode.empty()) continue;
    for (auto word = words.begin(); word != words.end() && *word != "--"; ++word) {
      if (*word == verb.mode) {
        words.erase(word);
        return {&verb, std::move(words)};
      }
      if (word->starts_with(std::string(verb.mode) + "=")) {
        word->erase(0, verb.mode.size() + 1);
        return {&verb, std::move(words)};
      }
    }
  }
  return {find_verb(name, ""), std::move(words)};
}

/// What no verb does any more, and what to use.
struct Gone {
  std::string_view name, mode;  ///< mode "": with any
  std::string_view use;
};
constexpr std::string_view by_link = "use `kvcts run --suite museum --out DIR`, then `kvcts report DIR --by link`";
constexpr Gone gone[]{
    {"triage", "", "`kvcts report RUN` groups failures by cause, and `run --where` tests a rule"},
    {"museum", "", by_link},
    {"report", "--museum", by_link},
};

/// Throws UsageError for what is gone.
void refuse_gone(const std::string& name, const std::vector<std::string>& words) {
  for (const Gone& one : gone)
    if (one.name == name && (one.mode.empty() || std::find(words.begin(), words.end(), one.mode) != words.end()))
      throw UsageError(fmt::format("`kvcts {}{}{}` is gone: {}", name, one.mode.empty() ? "" : " ", one.mode, one.use));
}

/// The verb may follow --json and --cases DIR.
std::size_t place_of_verb(const std::vector<std::string>& words) {
  std::size_t at = 0;
  while (at < words.size() && words[at].starts_with("-")) at += words[at] == "--cases" ? 2 : 1;
  return std::min(at, words.size());
}

/// Throws UsageError.
Asked asked(std::vector<std::string> words) {
  const std::size_t at = place_of_verb(words);
  if (at == words.size()) return {};
  const std::string name = words[at];
  words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  refuse_gone(name, words);
  if (const Verb* former = find_former(name)) return {former, std::move(words)};
  if (Asked found = with_mode(name, std::move(words)); found.verb != nullptr) return found;
  std::vector<std::string> names{"help", "version"};
  for (const Verb& verb : verbs())
    if (verb.mode.empty()) names.emplace_back(verb.name);
  const std::string near = catalogue::nearest(name, names);
  throw UsageError(fmt::format("unknown verb '{}'{}; `kvcts help` lists the verbs", name,
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

/// A parse error in the user's words: a misspelt option names its neighbour.
std::string to_string(const CLI::ParseError& error, const CLI::App& app) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  for (const std::string& word : app.remaining())
    if (word.starts_with("-")) return fmt::format("unknown option '{}'{}", word, nearest_option(app, word));
  return fmt::format("unexpected argument '{}'", fmt::join(app.remaining(), " "));
}

int parse_verb(const Asked& asked, const std::string& who) {
  Globals globals;
  CLI::App app{std::string(asked.verb->summary), "kvcts"};
  Command command(app);
  const Action action = asked.verb->declare(command, globals);
  app.add_flag("--json", globals.json, "Print one JSON document on standard output");
  app.add_option("--cases", globals.cases, "Folder of the catalogue (default: cases/ beside the program)")->type_name("DIR");
  set_help(app, *asked.verb);
  app.fallthrough();
  for (CLI::App* sub : app.get_subcommands(nullptr)) sub->fallthrough();
  try {
    app.parse(std::vector<std::string>(asked.words.rbegin(), asked.words.rend()));
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return exit_as_expected;
  } catch (const CLI::ParseError& e) {
    throw UsageError(to_string(e, app) + "; `" + who + " --help` lists the options");
  }
  return action();
}

/// `kvcts help TOPIC`. Throws UsageError.
int help(const std::vector<std::string>& topic) {
  const auto print = [](const std::string& text) {
    std::fputs(text.c_str(), stdout);
    return int{exit_as_expected};
  };
  if (topic.empty()) return print(overview());
  if (topic[0] == "environment" && topic.size() == 1) return print(environment_text());
  if (topic[0] == "man" && topic.size() == 1) return print(man_page());
  if (topic[0] == "completion") {
    const auto& known = shells();
    if (topic.size() != 2 || std::find(known.begin(), known.end(), topic[1]) == known.end()) {
      throw UsageError(fmt::format("expected a shell: {}; found '{}'", fmt::join(known, ", "),
                                   fmt::join(topic.begin() + 1, topic.end(), " ")));
    }
    return print(completion(topic[1]));
  }
  const Asked of = asked(topic);
  if (of.verb == nullptr) throw UsageError(fmt::format("expected a verb, found '{}'", fmt::join(topic, " ")));
  return parse_verb({of.verb, {"--help"}}, "kvcts help");
}

/// What needs no verb; nullopt when it needs one.
std::optional<int> answered_at_once(std::vector<std::string> words) {
  const auto verb = words.begin() + static_cast<std::ptrdiff_t>(place_of_verb(words));
  if (verb != words.end() && (*verb == "help" || *verb == "version"))
    words.erase(words.begin(), verb);  // behind --cases DIR
  if (words[0] == "help") return help({words.begin() + 1, words.end()});
  if (words.size() == 1 && (words[0] == "-h" || words[0] == "--help")) return help({});
  if (words.size() == 1 && (words[0] == "version" || words[0] == "--version")) {
    std::printf("kvcts %s\n", KVCTS_VERSION);
    return exit_as_expected;
  }
  return std::nullopt;
}

/// Parses and runs. `who`: the program and its verb, for errors.
int parse_and_run(int argc, const char* const* argv, std::string& who) {
  try {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (words.empty()) {  // status 2: `kvcts $VERB` of a script that lost its variable did nothing
      std::fputs(overview().c_str(), stdout);
      throw UsageError("expected a verb, found none");
    }
    if (const std::optional<int> status = answered_at_once(words)) return *status;
    const Asked wanted = asked(words);
    if (wanted.verb == nullptr) {
      throw UsageError(fmt::format("expected a verb, found '{}'; `kvcts help` lists the verbs", fmt::join(words, " ")));
    }
    who += " " + wanted.verb->title();
    set_interrupted_name(who.c_str());
    return parse_verb(wanted, who);
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
  if (handle_child_query(argc, argv)) return exit_own_error;  // there is no such question
  std::string who = "kvcts";
  Output output;
  const int status = parse_and_run(argc, argv, who);
  const std::string lost = output.finish();
  if (lost.empty() || status == exit_interrupted) return status;  // a terminal that was closed takes no output
  return fail(who, "standard output cannot be written (" + lost + "); what was printed is incomplete", exit_own_error);
}

}  // namespace kvcts::cli
