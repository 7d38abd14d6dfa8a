// How exhibits fared, compared with the museum's targets.
#include <fmt/format.h>

#include <algorithm>

#include "tools/museum/museum.hpp"

namespace kvcts::museum {

namespace {

std::string words(const Ending& ending) {
  std::string out(name(ending.outcome));
  if (ending.outcome == Outcome::error) return out + ": " + ending.message;
  if (ending.fault_class != FaultClass::none)
    out += fmt::format(" {}", name(ending.fault_class));
  else if (ending.outcome == Outcome::fail)
    out += ", not named";
  return out;
}

bool caught(const Ending& ending) {
  return ending.outcome == Outcome::fail || ending.outcome == Outcome::hang || ending.outcome == Outcome::crash ||
         ending.outcome == Outcome::refused;
}

bool good(const CaseSpec& control, const Ending& ending) {
  if (control.expected.empty()) return ending.outcome == Outcome::pass;
  return std::any_of(control.expected.begin(), control.expected.end(), [&](const Expected& e) {
    return e.outcome == ending.outcome && (e.fault_class == FaultClass::none || e.fault_class == ending.fault_class);
  });
}

std::string share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "" : fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

Standing judge(const Exhibit& exhibit, const Endings& endings) {
  Standing out;
  if (!exhibit.expressed()) {
    out.ending = "not expressed";
    return out;
  }
  out.ran = out.caught = out.named = true;
  for (const CaseSpec& spec : exhibit.cases) {
    const auto found = endings.find(spec.id);
    const Ending ending = found == endings.end() ? Ending{} : found->second;
    out.ran = out.ran && ending.outcome != Outcome::not_run;
    out.caught = out.caught && caught(ending);
    out.named = out.named && caught(ending) && ending.fault_class == exhibit.entry.fault_class;
    out.ending += (out.ending.empty() ? "" : "; ") + words(ending);
  }
  for (const CaseSpec& control : exhibit.controls) {
    const auto found = endings.find(control.id);
    ++out.controls;
    out.controls_good += found != endings.end() && good(control, found->second);
  }
  return out;
}

Tally tally(const std::vector<Exhibit>& exhibits, const Endings& endings) {
  Tally out;
  for (const Exhibit& exhibit : exhibits) {
    const Standing standing = judge(exhibit, endings);
    Tally::Part& part = exhibit.entry.data == "confirmed" ? out.confirmed : out.partial;
    ++part.entries;
    part.expressed += exhibit.expressed();
    part.ran += standing.ran;
    part.caught += standing.caught;
    part.named += standing.named;
    out.controls += standing.controls;
    out.controls_good += standing.controls_good;
  }
  return out;
}

std::vector<std::string> missed(const Tally& tally, bool whole) {
  std::vector<std::string> out;
  const Tally::Part &c = tally.confirmed, &p = tally.partial;
  if (whole && c.expressed < least_expressed)
    out.push_back(fmt::format("{} of {} confirmed entries are expressed, expected at least {}", c.expressed, c.entries,
                              least_expressed));
  if (const auto lost = c.expressed + p.expressed - c.caught - p.caught; lost > 0)
    out.push_back(fmt::format("{} of {} are not caught", lost, c.expressed + p.expressed));
  if (static_cast<double>(c.named) < least_named * static_cast<double>(c.expressed)) {
    out.push_back(fmt::format("{} of {} confirmed entries are named{}, expected at least {:.0f} %", c.named, c.expressed,
                              share(c.named, c.expressed), 100 * least_named));
  }
  if (tally.controls_good < tally.controls)
    out.push_back(
        fmt::format("{} of {} controls do not end as they must", tally.controls - tally.controls_good, tally.controls));
  return out;
}

std::string summary(const Tally& tally) {
  const Tally::Part &c = tally.confirmed, &p = tally.partial;
  const auto of_expressed = [&](std::int64_t confirmed, std::int64_t partial) {
    return fmt::format("{} of {} confirmed{}, {} of {} partial", confirmed, c.expressed, share(confirmed, c.expressed),
                       partial, p.expressed);
  };
  return fmt::format(
      "expressed  {} of {} confirmed, {} of {} partial\ncaught     {}\nnamed      {}\ncontrols   {} of {} end as they "
      "must\n",
      c.expressed, c.entries, p.expressed, p.entries, of_expressed(c.caught, p.caught), of_expressed(c.named, p.named),
      tally.controls_good, tally.controls);
}

}  // namespace kvcts::museum
