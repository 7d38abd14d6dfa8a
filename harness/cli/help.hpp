// Help texts, the man page and shell completions, all derived from the table of verbs and their declared options.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kvcts::cli {

struct Verb;

/// `kvcts help`: every verb with its summary, by group.
std::string overview();

/// `kvcts help environment`
std::string environment_text();

/// Makes the verb's own help text complete: how it is called, its other modes, an example, exit statuses.
void set_help(CLI::App& app, const Verb& verb);

/// The man page, section 1, in roff.
std::string man_page();

/// Shells that there is a completion for.
const std::vector<std::string>& shells();

/// The script that completes verbs and options. `shell`: one of shells().
std::string completion(const std::string& shell);

/// The nearest of the verb's options, as text that ends an error: "; did you mean '--suite'?". "" where none is near.
std::string nearest_option(const CLI::App& app, const std::string& word);

}  // namespace kvcts::cli
