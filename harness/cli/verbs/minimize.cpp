// kvcts minimize: finds the smallest case that fails as a given one does, by running smaller and smaller ones.
#include "tools/minimize/minimize.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "case/catalogue/case_text.hpp"
#include "cli/one_case.hpp"
#include "cli/product.hpp"
#include "cli/report/repro.hpp"
#include "cli/report/text.hpp"
#include "cli/stored.hpp"
#include "cli/trials.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::minimize_verb {
namespace {

struct MinimizeOptions {
  std::string subject, file, out, run;
  std::optional<std::uint64_t> seed;
  int tries{400}, jobs{1};
  double deadline_s{5};
};

/// The case that is meant; it must be one that runs here.
CaseSpec chosen(MinimizeOptions& o, const catalogue::Catalogue& cat) {
  const OneCase one = choose(cat, "minimize", o.subject, o.file, o.seed);
  o.subject = one.id, o.file = one.file;
  if (const auto& decided = one.chosen().decided)
    throw UsageError(
        fmt::format("expected a case that fails, found '{}': {}: {}", o.subject, name(decided->outcome), decided->message));
  return one.spec();
}

nlohmann::json as_json(const minimize::Minimum& m, const std::string& file) {
  nlohmann::json steps = nlohmann::json::array(), before = nlohmann::json::object(), after = nlohmann::json::object();
  for (const auto& step : m.steps) steps.push_back({{"what", step.words}, {"tries", step.tries}});
  for (const auto& [what, n] : m.before) before[what] = n;
  for (const auto& [what, n] : m.after) after[what] = n;
  nlohmann::json out{{"outcome", name(m.last.outcome)},
                     {"class", m.last.diagnosis.fault_class},
                     {"message", m.last.message},
                     {"tries", m.tries},
                     {"accepted", steps},
                     {"before", before},
                     {"after", after},
                     {"finished", m.finished},
                     {"case", m.document}};
  if (!file.empty()) out["file"] = file;
  return out;
}

int run(MinimizeOptions o, const Globals& globals) {
  const catalogue::Catalogue cat(catalogue::find_cases(globals.cases), additions_here(globals.cases));
  CaseSpec spec = chosen(o, cat);
  if (const auto row = stored_case(o.run, o.subject); row && row->decided && !o.seed) spec.seed = row->result.seed;
  if (!o.out.empty() && std::filesystem::is_directory(o.out))
    throw UsageError(fmt::format("-o expects a file to write, found the folder {}", o.out));
  minimize::MinimizeOptions options;
  options.tries = o.tries;
  options.deadline_ms = static_cast<std::int64_t>(o.deadline_s * 1000);
  if (!globals.json) {
    options.on_step = [](const minimize::Accepted& step) {
      fmt::print("{:>4}  {}\n", step.tries, step.words);
      std::fflush(stdout);
    };
  }
  const minimize::Runner runner = [&](const std::vector<ResolvedCase>& cases,
                                      const std::function<bool(const CaseResult&)>& enough) {
    return run_until(cases, o.jobs, enough);
  };
  minimize::Minimum m;
  try {
    m = minimize::minimize(spec, cat, runner, options);
  } catch (const minimize::Error& e) {
    std::string text = e.what();
    if (const auto row = stored_case(o.run, o.subject); row && text.starts_with("expected a case that fails")) {
      text += fmt::format("; in the run in {} it ended as {}: it is flaky, or the program has changed since", o.run,
                          report::ending_text(row->result));
    }
    throw UsageError(text);
  }
  const std::string text = catalogue::readable_yaml(m.document);
  if (!o.out.empty()) {
    std::ofstream file(o.out, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw UsageError(fmt::format("{} cannot be written; name a file in a folder that exists", o.out));
  }
  if (globals.json) {
    fmt::print("{}\n", as_json(m, o.out).dump(2));
    return exit_as_expected;
  }
  fmt::print("{}\n{}\n", report::ending_text(m.last), report::visible(m.last.message));
  if (o.out.empty())
    fmt::print("\n{}\n", text);
  else
    fmt::print("written to {}; {}--file {}\n", o.out, report::repro_here(globals.cases).before("run"),
               report::shell_word(o.out));
  fmt::print("{} tries, {} accepted{}; {}\n", m.tries, m.steps.size(), m.finished ? "" : " (stopped by --tries)",
             minimize::to_string(m.before, m.after));
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<MinimizeOptions>();
  command.add_option("ID", o->subject, "Id of a failing case, or a case file with one case").required();
  command.add_option("--file", o->file, "Case file that contains it, if it is not in cases/").type_name("YAML");
  command.add_option("-o,--out", o->out, "Write the smallest case into this file (default: print it)").type_name("YAML");
  command.add_option("--run", o->run, "Run in which it failed: use its seed, and compare the outcome").type_name("DIR");
  command.add_option("--seed", o->seed, "Use this seed instead of its own").type_name("N");
  command.add_option("--tries", o->tries, "Maximum number of cases to run").show_default().range(1, 1'000'000);
  command.add_option("--deadline", o->deadline_s, "Seconds allowed for each phase of a try")
      .show_default()
      .range(0.05, 3600.0);
  command.add_option("-j,--jobs", o->jobs, "Number of cases to run in parallel").show_default().range(1, 1024);
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace kvcts::cli::minimize_verb
