// kvcts repro --bytes: bytes of a case's memory in words.
#include "diagnose/dump/dump.hpp"

#include <fmt/format.h>

#include <memory>

#include "case/catalogue/nearest.hpp"
#include "cli/one_case.hpp"
#include "cli/product.hpp"
#include "cli/report/text.hpp"
#include "cli/trials.hpp"
#include "cli/verbs/verbs.hpp"
#include "diagnose/window.hpp"

namespace kvcts::cli::dump_verb {
namespace {

using nlohmann::json;

struct Options {
  std::string subject, file, region, at{"after"};
  std::optional<std::uint64_t> seed;
  std::int64_t offset{0}, bytes{256};
  int lines{64};
};

struct Listed {
  std::string name, side;
  std::int64_t bytes{0};
};

std::vector<Listed> regions_of(const ResolvedCase& c) {
  std::vector<Listed> out;
  if (c.performer == Performer::machine) {
    for (const auto& r : scenario::regions_of(c.scenario)) out.push_back({r.name, r.side, r.bytes});
    return out;
  }
  for (const Side side : {Side::producer, Side::consumer})
    for (const auto& r : regions(c, side)) out.push_back({r.name, std::string(name(side)), r.bytes});
  return out;
}

int list(const ResolvedCase& c, const Globals& globals) {
  const auto all = regions_of(c);
  if (globals.json) {
    json out = json::array();
    for (const auto& r : all) out.push_back({{"region", r.name}, {"side", r.side}, {"bytes", r.bytes}});
    fmt::print("{}\n", json{{"case", c.id}, {"regions", out}}.dump(2));
    return exit_as_expected;
  }
  for (const auto& r : all) fmt::print("{:<28} {:<9} {:>14} bytes\n", r.name, r.side, report::thousands(r.bytes));
  return exit_as_expected;
}

std::vector<std::uint8_t> from_hex(const std::string& text) {
  const auto digit = [](char c) { return static_cast<std::uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(digit(text[i]) << 4 | digit(text[i + 1])));
  return out;
}

/// Runs one pass of the case, and takes the window's bytes after it.
std::vector<std::uint8_t> run(ResolvedCase c, const dump::Window& window, std::string& ending) {
  c.passes = 1;
  const CaseResult result =
      run_until(
          {c}, 1, [](const CaseResult&) { return false; }, supervisor::Look{window.region, window.offset, window.bytes})
          .at(0);
  if (result.outcome == Outcome::error || result.outcome == Outcome::skipped)
    throw UsageError(fmt::format("the case could not be run: {}: {}", name(result.outcome), result.message));
  ending = report::ending_text(result);
  const auto bytes = std::ranges::find(result.evidence_files, "bytes", &EvidenceFile::kind);
  if (bytes == result.evidence_files.end()) throw UsageError(fmt::format("no bytes remain: {}", ending));
  return from_hex(bytes->text);
}

std::vector<ComparedRange> read_window(const ResolvedCase& c, const Options& o, std::string& region, std::string& ending) {
  if (c.performer == Performer::machine) {
    const std::string check = o.at == "after" ? "" : o.at;
    if (o.at == "before")
      throw UsageError(
          "--at before is for cases that run code; a scripted case has its checks (--at NAME), and poison before the first "
          "step");
    return scenario::read_window(c.scenario, c.seed, {o.region, o.offset, o.bytes, check});
  }
  if (o.at != "before" && o.at != "after")
    throw UsageError(fmt::format("--at expects before or after in a case that runs code, found '{}'", o.at));
  if (c.content.kind != "tags")
    throw UsageError(fmt::format("content {} does not distinguish bytes; remove the key content", c.content.kind));
  dump::Window window{dump::region_of(c, o.region).name, o.offset, o.bytes};
  region = window.region;
  if (o.at == "before") return dump::read_window(c, window, {});
  dump::read_window(c, window, {});  // what is wrong with the window is said before anything runs
  return dump::read_window(c, window, run(c, window, ending));
}

void print(const std::vector<ComparedRange>& extents, int lines) {
  std::size_t widest = 1;
  for (const ComparedRange& s : extents)
    widest = std::max(widest, fmt::format("{}..{}", s.offset, s.offset + s.bytes - 1).size());
  int left = lines;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (left-- == 0) {
      fmt::print("and {} more; --lines shows them\n",
                 report::plural(static_cast<std::int64_t>(extents.size() - i), "range"));
      return;
    }
    const ComparedRange& s = extents[i];
    const std::string range =
        s.bytes == 1 ? std::to_string(s.offset) : fmt::format("{}..{}", s.offset, s.offset + s.bytes - 1);
    if (!s.wrong) {
      fmt::print("{:>{}}  {}: {}\n", range, widest, s.place, to_string(s.found));
    } else {
      fmt::print("{:>{}}  {}\n{:>{}}    should be  {}\n{:>{}}    is         {}\n", range, widest, s.place, "", widest,
                 to_string(s.expected), "", widest, to_string(s.found));
    }
  }
}

int show(const Options& o, const Globals& globals) {
  const catalogue::Catalogue cat(catalogue::find_cases(globals.cases), additions_here(globals.cases));
  const OneCase one = choose(cat, "dump", o.subject, o.file, o.seed);
  if (const auto& decided = one.chosen().decided)
    throw UsageError(
        fmt::format("expected a case that runs here, found '{}': {}: {}", one.id, name(decided->outcome), decided->message));
  const ResolvedCase resolved = one.plan->resolve(one.item);
  if (o.region.empty()) return list(resolved, globals);
  std::string region = o.region, ending;
  std::vector<ComparedRange> extents;
  try {
    extents = read_window(resolved, o, region, ending);
  } catch (const std::runtime_error& e) {
    throw UsageError(fmt::format("{}: {}", one.id, e.what()));
  }
  std::int64_t wrong = 0;
  for (const ComparedRange& s : extents) wrong += s.wrong ? s.bytes : 0;
  if (globals.json) {
    json list = json::array();
    for (const ComparedRange& s : extents) {
      list.push_back({{"offset", s.offset},
                      {"bytes", s.bytes},
                      {"place", s.place},
                      {"expected", to_string(s.expected)},
                      {"found", to_string(s.found)},
                      {"wrong", s.wrong}});
    }
    fmt::print(
        "{}\n",
        json{{"case", one.id}, {"region", region}, {"at", o.at}, {"wrong_bytes", wrong}, {"stretches", list}}.dump(2));
    return exit_as_expected;
  }
  fmt::print("{}{}: {} from {} on, {} the run; {} wrong{}\n", one.id, ending.empty() ? "" : " (" + ending + ")", region,
             o.offset,
             o.at == "after"    ? "after"
             : o.at == "before" ? "before"
                                : "at " + o.at + " of",
             report::thousands(wrong), wrong > 0 ? "" : " here");
  print(extents, o.lines);
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<Options>();
  command.add_option("ID", o->subject, "Case id, or a case file with one case").required();
  command.add_option("--file", o->file, "Case file that contains it, if it is not in cases/").type_name("YAML");
  command
      .add_option("--region,--memory", o->region, "Region or memory to show, or the end of its name; without it, list them")
      .type_name("NAME");
  command.add_option("--offset", o->offset, "First byte; guards lie below 0 and after the end")
      .show_default()
      .whole_number();
  command.add_option("--length,--bytes", o->bytes, "Number of bytes, at most 16384")
      .show_default()
      .whole_number()
      .range(1, 16384);
  command.add_option("--at", o->at, "'before' or 'after' the run, or in a scripted case the name of a check")
      .show_default()
      .type_name("WHEN");
  command.add_option("--seed", o->seed, "Use this seed instead of its own").type_name("N");
  command.add_option("--lines", o->lines, "Number of byte ranges to show").show_default().range(1, 20'000);
  return [o, &globals] { return show(*o, globals); };
}

}  // namespace kvcts::cli::dump_verb
