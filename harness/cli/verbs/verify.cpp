// kvcts verify: one line per check, one verdict.
#include "cli/certify/verify.hpp"

#include <fmt/format.h>

#include <memory>

#include "certificate/error.hpp"
#include "cli/output.hpp"
#include "cli/report/whole_file.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::verify_verb {

namespace {

int show(const CertificateOptions& options, const Globals& globals) {
  const Verification seen = verify(options, globals);
  if (!options.html.empty()) {
    report::WholeFile page(options.html, "page", "give another --html");
    page.out() << page_of(seen);
    page.keep();
  }
  if (globals.json) {
    fmt::print("{}\n", to_json(seen).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return seen.status();
  }
  constexpr const char* marks[] = {"ok", "WRONG", "told", "-", "-"};
  for (const Line& line : seen.lines)  // words of a package stay in their line: the last one is the verdict
    fmt::print("{:<10} {:<5} {}\n", line.what, marks[static_cast<int>(line.state)], one_line(line.words));
  fmt::print("{}\n", one_line(seen.verdict()));
  return seen.status();
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<CertificateOptions>();
  command.add_option("PACKAGE", o->package, "Package that kvcts certify wrote").required();
  command
      .add_option("--key", o->key,
                  "The vendor's public key (kvcts key show), which you got from the vendor, not from the package")
      .type_name("FILE");
  command.add_option("--challenge", o->challenge, "Challenge that the package must answer").type_name("FILE");
  command.add_option("--replay", o->replay, "Run this percentage of the cases again here; needs the product")
      .type_name("PERCENT")
      .range(0.0, 100.0);
  command
      .add_option("--replay-seed", o->replay_seed,
                  "Run the cases again that this seed chooses, as an earlier verify printed it; default: drawn at random")
      .type_name("SEED");
  command.add_option("--html", o->html, "Write a page for the customer: what was checked, and what it means")
      .type_name("FILE");
  command.add_option("-j,--jobs", o->jobs, "Number of negatives and replayed cases to run in parallel")
      .show_default()
      .range(1, 1024);
  return [o, &globals] {
    try {
      return show(*o, globals);
    } catch (const certificate::Error& error) {
      throw UsageError(error.what());
    }
  };
}

}  // namespace kvcts::cli::verify_verb
