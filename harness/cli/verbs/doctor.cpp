// kvcts doctor: what this machine has, what it cannot run, and why.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "case/catalogue/catalogue.hpp"
#include "case/texts.hpp"
#include "cli/availability.hpp"
#include "cli/doctor/doctor.hpp"
#include "cli/report/text.hpp"
#include "cli/verbs/verbs.hpp"
#include "engines/transport/packages.hpp"

namespace kvcts::cli::doctor_verb {
namespace {

using namespace doctor;

/// Which engines of the catalogue cannot run here: their cases are SKIPPED.
DoctorSection skipped_cases(const Globals& globals) {
  DoctorSection s{"cases", {}};
  try {
    const catalogue::Catalogue cat(catalogue::find_cases(globals.cases));
    Availability availability(cat);
    for (const auto& [id, engine] : cat.engines()) {
      const auto& lack = availability.lack(id);
      if (const auto& broken = availability.broken(id)) {
        s.findings.push_back({id, FindingState::broken, broken->text + (broken->signal.empty() ? "" : ": " + broken->signal),
                              "cases with engine " + id + " fail", false});
      } else if (!lack) {
        s.findings.push_back({id, FindingState::good, "cases with this engine run", "", true});
      } else {
        s.findings.push_back(
            {id, FindingState::missing, lack->reason, "cases with engine " + id + " are SKIPPED: " + lack->reason, false});
      }
    }
  } catch (const std::exception& e) {
    s.findings.push_back({"catalogue", FindingState::broken, e.what(), "no case can run", nullptr});
  }
  return s;
}

/// Every package that an engine of the catalogue comes from, with the first of its engines.
std::vector<PackagedEngine> packaged_engines(const Globals& globals) {
  std::vector<PackagedEngine> found;
  try {
    const catalogue::Catalogue cat(catalogue::find_cases(globals.cases));
    for (const auto& [id, engine] : cat.engines()) {
      const std::string package = engine.environment.value(transport::package_variable, "");
      const auto known = [&](const PackagedEngine& one) { return one.plugin == engine.plugin && one.package == package; };
      if (package.empty() || std::any_of(found.begin(), found.end(), known)) continue;
      found.push_back({engine.plugin, package, texts_of(engine.options), texts_of(engine.environment)});
    }
  } catch (const std::exception&) {
    // The section "cases" says what is wrong with the catalogue.
  }
  return found;
}

/// Sections in the order in which they are shown: one line each.
std::vector<DoctorSection> examine(const Globals& globals) {
  return {processor(),
          doctor::memory(),
          watching(),
          gpus(),
          cuda(),
          rdma(),
          engines(packaged_engines(globals)),
          python(),
          golden_tensors(),
          skipped_cases(globals)};
}

nlohmann::json as_json(const std::vector<DoctorSection>& sections) {
  nlohmann::json out = nlohmann::json::object();
  for (const DoctorSection& s : sections) {
    for (const DoctorFinding& f : s.findings) {
      nlohmann::json entry{{"state", name(f.state)}, {"text", f.text}, {"value", f.value}};
      if (!f.consequence.empty()) entry["consequence"] = f.consequence;
      out[s.title][f.key] = std::move(entry);
    }
  }
  return out;
}

std::string_view mark(FindingState state) {
  switch (state) {
    case FindingState::good:
      return "ok";
    case FindingState::missing:
      return "--";
    case FindingState::broken:
      return "!!";
    case FindingState::fact:
      break;
  }
  return "  ";
}

int examine_and_print(const Globals& globals) {
  const std::vector<DoctorSection> sections = examine(globals);
  if (globals.json) {
    fmt::print("{}\n", as_json(sections).dump(2));
    return exit_as_expected;
  }
  std::vector<std::string> consequences;
  for (const DoctorSection& s : sections) {
    fmt::print("{}\n", s.title);
    for (const DoctorFinding& f : s.findings) {
      fmt::print("  {} {:<22} {}\n", mark(f.state), f.key, report::visible(f.text));
      if (!f.consequence.empty()) consequences.push_back(fmt::format("{} ({}): {}", f.key, s.title, f.consequence));
    }
  }
  fmt::print("what this machine cannot run, and why\n");
  for (const std::string& c : consequences) fmt::print("  {}\n", report::visible(c));
  if (consequences.empty()) fmt::print("  nothing\n");
  return exit_as_expected;
}

}  // namespace

Action declare(Command&, const Globals& globals) {
  return [&globals] { return examine_and_print(globals); };
}

}  // namespace kvcts::cli::doctor_verb
