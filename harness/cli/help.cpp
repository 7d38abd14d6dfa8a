#include "cli/help.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <utility>

#include "case/catalogue/nearest.hpp"
#include "cli/environment.hpp"
#include "cli/verb.hpp"

namespace kvcts::cli {
namespace {

constexpr std::size_t name_width = 24;

struct OptionHelp {
  std::vector<std::string> names;  ///< "-j", "--jobs"; "ID" of an argument
  std::string value;               ///< "DIR"; "" = a flag, or an argument
  std::string fallback;            ///< "16"; "" = none, or said in the meaning
  std::string meaning;
};

/// "INT:INT in [0 - 64]" is a type and a check in CLI11's words: the type is enough.
std::string value_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0) return "";
  const std::string first = type.substr(0, type.find(':'));
  return first.empty() || first == "TEXT" ? "VALUE" : first == "INT" || first == "UINT" ? "N" : first;
}

std::vector<OptionHelp> options_of(const CLI::App& app) {
  std::vector<OptionHelp> out;
  for (const CLI::Option* option : app.get_options()) {
    OptionHelp one;
    if (option->nonpositional()) {
      for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
      one.value = value_of(*option);
    } else {
      one.names.push_back(option->get_name(true));
    }
    one.fallback = option->get_default_str();
    one.meaning = option->get_description();
    out.push_back(std::move(one));
  }
  return out;
}

/// A verb's options, without parsing anything.
std::vector<OptionHelp> options_of(const Verb& verb) {
  CLI::App app;
  Globals globals;
  Command command(app);
  verb.declare(command, globals);
  std::vector<OptionHelp> out = options_of(app);
  for (const CLI::App* sub : app.get_subcommands(nullptr)) {  // golden verify, key new
    out.push_back({{sub->get_name()}, "", "", sub->get_description()});
  }
  return out;
}

std::string usage_of(const CLI::App& app, const Verb& verb) {
  std::string usage = "kvcts " + verb.title();
  for (const CLI::App* sub : app.get_subcommands(nullptr))
    usage += (sub == app.get_subcommands(nullptr).front() ? " " : "|") + sub->get_name();
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) continue;
    const bool many = option->get_items_expected_max() > 1;
    const std::string name = option->get_name(true) + (many ? "..." : "");
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  return usage + " [OPTION...]";
}

/// "  --out DIR      Folder of the run", the meaning wrapped in a column of its own.
std::string row(const std::string& left, const std::string& meaning) {
  constexpr std::size_t column = 26, width = 110;
  std::string out = "  " + left, line;
  const auto end_line = [&] {
    out +=
        std::string(column > out.size() - (out.rfind('\n') + 1) ? column - (out.size() - (out.rfind('\n') + 1)) : 2, ' ') +
        line + "\n";
    line.clear();
  };
  if (left.size() + 4 > column) out += "\n";
  for (std::size_t at = 0; at < meaning.size();) {
    const std::size_t end = std::min(meaning.find(' ', at), meaning.size());
    if (!line.empty() && column + line.size() + 1 + (end - at) > width) end_line();
    line += (line.empty() ? "" : " ") + meaning.substr(at, end - at);
    at = end + 1;
  }
  end_line();
  return out;
}

/// CLI11 parses; the text is ours, the same under every version of it.
class HelpFormatter : public CLI::FormatterBase {
 public:
  explicit HelpFormatter(const Verb& verb) : verb_(&verb) {}

  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    const CLI::App* whole = app;
    while (whole->get_parent() != nullptr) whole = whole->get_parent();
    if (app != whole) return fmt::format("{}\n\n{}", app->get_description(), options_text(*app));  // golden verify --help
    std::string out = fmt::format("{}\n\nUsage: {}\n\n{}", verb_->summary, usage_of(*app, *verb_), options_text(*app));
    std::string others;
    for (const Verb& other : verbs())
      if (other.name == verb_->name && other.mode != verb_->mode) others += row(other.title(), std::string(other.summary));
    if (!others.empty()) out += "\nSee also\n" + others;
    return out + fmt::format("\nExample: kvcts {}\nExit status: {}.\n", verb_->example, verb_->statuses);
  }

 private:
  static std::string options_text(const CLI::App& app) {
    std::string out;
    for (const CLI::App* sub : app.get_subcommands(nullptr)) out += row(sub->get_name(), sub->get_description());
    for (const OptionHelp& option : options_of(app)) {
      const std::string fallback = option.fallback.empty() ? "" : " (default " + option.fallback + ")";
      out += row(fmt::format("{}{}{}", fmt::join(option.names, ", "), option.value.empty() ? "" : " ", option.value),
                 option.meaning + fallback);
    }
    return out;
  }

  const Verb* verb_;
};

// ---- man page -------------------------------------------------------------------------------------------------------

/// Text in roff: backslashes, hyphens that are to be copied, and a dot or quote that begins a line.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return out;
}

std::string tagged(const std::string& tag, std::string_view text) { return ".TP\n" + tag + "\n" + roff(text) + "\n"; }

std::string man_entry(const Verb& verb) {
  std::string out = fmt::format(".SS {}\n{}.\n", roff("kvcts " + verb.title()), roff(verb.summary));
  for (const OptionHelp& option : options_of(verb)) {
    if (option.names.back() == "--help") continue;
    std::string tag;
    for (const std::string& name : option.names) tag += (tag.empty() ? ".B " : ", ") + roff(name);
    if (!option.value.empty()) tag += " " + roff(option.value);
    out += tagged(tag, option.meaning + (option.fallback.empty() ? "" : " (default " + option.fallback + ")"));
  }
  return out + fmt::format(".PP\nExample:\n.B {}\n.PP\nExit status: {}.\n", roff("kvcts " + std::string(verb.example)),
                           roff(verb.statuses));
}

// ---- completions ----------------------------------------------------------------------------------------------------

std::vector<std::string> flags_of(const Verb& verb) {
  std::vector<std::string> out;
  for (const OptionHelp& option : options_of(verb))
    for (const std::string& name : option.names)
      if (name[0] == '-' || option.value.empty()) out.push_back(name);
  std::erase_if(out, [](const std::string& name) { return std::isupper(static_cast<unsigned char>(name[0])) != 0; });
  return out;
}

/// verb -> its flags, those of its modes, and the flags that begin the modes
std::map<std::string, std::vector<std::string>> words_by_verb() {
  std::map<std::string, std::vector<std::string>> out;
  for (const Verb& verb : verbs()) {
    std::vector<std::string>& words = out[std::string(verb.name)];
    if (!verb.mode.empty()) words.emplace_back(verb.mode);
    for (std::string& flag : flags_of(verb)) words.push_back(std::move(flag));
    for (const char* global : {"--json", "--cases"}) words.emplace_back(global);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
  }
  std::vector<std::string> topics{"environment", "man", "completion"};
  for (const auto& [verb, words] : out) topics.push_back(verb);
  out["help"] = topics;
  out["version"] = {};
  return out;
}

std::string bash_completion() {
  std::string verbs, branches;
  for (const auto& [verb, words] : words_by_verb()) {
    verbs += (verbs.empty() ? "" : " ") + verb;
    branches += fmt::format("    {}) words='{}' ;;\n", verb, fmt::join(words, " "));
  }
  return "# Completion of kvcts for bash; written by `kvcts help completion bash`.\n_kvcts() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} words=\n"
         "  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W '" +
         verbs +
         "' -- \"$word\"))\n    return\n  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         branches +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
         "complete -o default -F _kvcts kvcts\n";
}

std::string fish_completion() {
  std::string out = "# Completion of kvcts for fish; written by `kvcts help completion fish`.\n";
  const auto quoted = [](std::string_view text) {
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? "\\'" : std::string(1, c);
    return word + "'";
  };
  for (const Verb& verb : verbs()) {
    if (verb.mode.empty())
      out += fmt::format("complete -c kvcts -n __fish_use_subcommand -a {} -d {}\n", verb.name, quoted(verb.summary));
    else
      out += fmt::format("complete -c kvcts -n '__fish_seen_subcommand_from {}' -l {} -d {}\n", verb.name,
                         verb.mode.substr(2), quoted(verb.summary));
    for (const OptionHelp& option : options_of(verb)) {
      for (const std::string& name : option.names) {
        if (!name.starts_with("--")) continue;
        out += fmt::format("complete -c kvcts -n '__fish_seen_subcommand_from {}' -l {}{} -d {}\n", verb.name,
                           name.substr(2), option.value.empty() ? "" : " -r", quoted(option.meaning));
      }
    }
  }
  return out;
}

}  // namespace

std::string overview() {
  std::string out =
      "kvcts: does a KV cache survive being registered and moved, byte for byte?\n\n"
      "Usage: kvcts [--json] [--cases DIR] VERB [OPTION...]\n";
  std::string_view group;
  for (const Verb& verb : verbs()) {
    if (verb.group != group) out += fmt::format("\n{}\n", group = verb.group);
    out += fmt::format("  {:<{}}{}\n", verb.title(), name_width, verb.summary);
  }
  out += "\nHelp\n";
  for (const auto& [name, meaning] :
       {std::pair{"help VERB", "Show the options of a verb, an example and its exit statuses"},
        std::pair{"help environment", "List the environment variables"}, std::pair{"help man", "Print the man page (roff)"},
        std::pair{"help completion SHELL", "Print the completion script for bash, zsh or fish"},
        std::pair{"version", "Print the version"}}) {
    out += fmt::format("  {:<{}}{}\n", name, name_width, meaning);
  }
  return out +
         "\nOptions of every verb\n"
         "  --json                  Print one JSON document on standard output\n"
         "  --cases DIR             Folder of the catalogue (default: cases/ beside the program)\n";
}

std::string environment_text() {
  std::string out;
  for (const EnvironmentVariable& variable : environment_variables())
    out += fmt::format("{}\n  {}\n", variable.name, variable.meaning);
  return out;
}

void set_help(CLI::App& app, const Verb& verb) {
  app.formatter(std::make_shared<HelpFormatter>(verb));
  for (CLI::App* sub : app.get_subcommands(nullptr)) sub->formatter(app.get_formatter());
}

std::string man_page() {
  std::string out = fmt::format(
      ".TH KVCTS 1 \"\" \"kvcts {}\" \"User Commands\"\n.SH NAME\n{}\n.SH SYNOPSIS\n.B kvcts\n[{}] [{} DIR] VERB "
      "[OPTION...]\n.SH DESCRIPTION\n{}\n.SH VERBS\n",
      KVCTS_VERSION, roff("kvcts - conformance and regression suite for LLM KV caches"), roff("--json"), roff("--cases"),
      roff("kvcts moves KV caches between two sides through real transfer code, compares every byte with an independent "
           "oracle, and names the cause of what is wrong."));
  for (const Verb& verb : verbs()) out += man_entry(verb);
  out += ".SH ENVIRONMENT\n";
  for (const EnvironmentVariable& variable : environment_variables())
    out += tagged(".B " + roff(variable.name), variable.meaning);
  return out;
}

const std::vector<std::string>& shells() {
  static const std::vector<std::string> all{"bash", "zsh", "fish"};
  return all;
}

std::string completion(const std::string& shell) {
  if (shell == "fish") return fish_completion();
  const std::string script = bash_completion();
  return shell == "bash" ? script : "#compdef kvcts\nautoload -U +X bashcompinit && bashcompinit\n" + script;
}

std::string nearest_option(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known{"--json", "--cases"};
  for (const OptionHelp& option : options_of(app))
    for (const std::string& name : option.names)
      if (name.starts_with("--")) known.push_back(name);
  const std::string near = catalogue::nearest(word.substr(0, word.find('=')), known);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

}  // namespace kvcts::cli
