// kvcts history add | show: many runs in one file, and what they say together.
#include "run/store/history.hpp"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <memory>

#include "cli/history/answers.hpp"
#include "cli/report/text.hpp"
#include "cli/stored.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::history_verb {
namespace {

constexpr const char* usual = "runs/history.db";
constexpr std::array<std::string_view, 3> questions{"new", "flaky", "slow"};

struct Options {
  std::string file{usual}, since, suite, what;
  std::vector<std::string> runs;
};

/// "2026-11-01" as Unix milliseconds; "" = 0.
std::int64_t time_of(const std::string& day) {
  std::tm tm{};
  const char* end = day.empty() ? nullptr : ::strptime(day.c_str(), "%Y-%m-%d", &tm);
  if (!day.empty() && (end == nullptr || *end != '\0'))
    throw UsageError(fmt::format("--since expects a date as 2026-11-01, found '{}'", day));
  return day.empty() ? 0 : static_cast<std::int64_t>(::timegm(&tm)) * 1000;
}

int add(const Options& options) {
  store::History history = store::History::open_or_create(options.file);
  constexpr std::array words{"added", "replaced: it has more results now", "known already"};
  const auto done = history.add({options.runs.begin(), options.runs.end()});
  for (std::size_t i = 0; i < done.size(); ++i)
    fmt::print("{}  {}\n", options.runs[i], words[static_cast<std::size_t>(done[i])]);
  fmt::print("{}: {}\n", options.file, report::plural(std::ssize(history.runs()), "run"));
  return exit_as_expected;
}

int show(const Options& options, const Globals& globals) {
  const std::int64_t since = time_of(options.since);
  const store::History history = store::History::open(options.file);
  if (options.what.empty() || std::find(questions.begin(), questions.end(), options.what) != questions.end()) {
    const history::Answers found = history::answers(history, since, options.suite);
    if (found.runs.empty())
      throw UsageError(
          fmt::format("no run{} is in {}", options.suite.empty() ? "" : " of suite " + options.suite, options.file));
    fmt::print("{}", globals.json ? history::to_json(found).dump(2) + "\n" : history::text(found, options.what));
    return exit_as_expected;
  }
  store::CaseHistory one = history.find(options.what);
  const auto runs = history.runs();
  std::erase_if(one.points, [&](const store::Point& p) { return runs[p.run].info.started_ms < since; });
  if (one.points.empty())
    throw UsageError(
        fmt::format("expected new, flaky, slow or the id of a case in {}, found '{}'", options.file, options.what));
  fmt::print("{}", globals.json ? history::to_json(one, runs).dump(2) + "\n" : history::story(one, runs));
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<Options>();
  auto action = std::make_shared<std::function<int()>>();
  const auto file = [&](Command& of) {
    of.add_option("--history", options->file, "The file; it moves between machines as it is")
        .type_name("FILE")
        .show_default();
  };
  Command adding = command.add_command("add", "Add runs, from any machine; those that it has already change nothing",
                                       [=] { *action = [=] { return add(*options); }; });
  adding.add_option("RUN", options->runs, "Folders of runs").required();
  file(adding);
  Command showing = command.add_command("show", "Show what is new, flaky or slow, or one case night by night",
                                        [=, &globals] { *action = [=, &globals] { return show(*options, globals); }; });
  showing.add_option("WHAT", options->what, "new, flaky, slow, or the id of a case; without it the first three");
  showing.add_option("--since", options->since, "What began, or failed last, on this day (UTC) or later")
      .type_name("YYYY-MM-DD");
  showing.add_option("--suite", options->suite, "Runs of this suite").type_name("NAME");
  file(showing);
  return [action] { return opening([&] { return (*action)(); }); };
}

}  // namespace kvcts::cli::history_verb
