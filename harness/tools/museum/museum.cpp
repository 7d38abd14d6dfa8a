#include "tools/museum/museum.hpp"

#include <algorithm>
#include <regex>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/nearest.hpp"
#include "case/catalogue/yaml.hpp"

namespace kvcts::museum {

using catalogue::Error;

namespace {

constexpr std::string_view folder = "museum", mark = "# not expressed";

/// "https://github.com/owner/name/pull/12" -> "owner/name#12"; other links -> "".
std::string report_of(const std::string& link) {
  static const std::regex form(R"(https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)/?)");
  std::smatch found;
  return std::regex_match(link, found, form) ? found[1].str() + "#" + found[2].str() : "";
}

void check_case(const CaseSpec& spec, const catalogue::ExhibitEntry& entry) {
  const auto fail = [&](const std::string& expected, const std::string& found, const std::string& what_to_do) {
    throw Error(spec.declared_by + ":1: case '" + spec.id + "': expected " + expected + ", found " + found + "; " +
                what_to_do);
  };
  if (spec.script.empty()) fail("memory and steps", "neither", "describe the fault step by step");
  if (std::none_of(spec.links.begin(), spec.links.end(),
                   [&](const auto& link) { return report_of(link) == entry.report; })) {
    fail("a link to " + entry.report, std::to_string(spec.links.size()) + " others", "add it to 'links'");
  }
  for (const Expected& one : spec.expected) {
    if (one.fault_class != entry.fault_class) {
      fail(fmt::format("the class of {}, {}", entry.id, name(entry.fault_class)),
           one.fault_class == FaultClass::none ? "none" : std::string(name(one.fault_class)),
           "correct the case or the index");
    }
  }
  if (spec.controls.empty()) fail("a control", "none", "add the same case without its fault");
}

}  // namespace

std::string Exhibit::link() const {
  const std::size_t hash = entry.report.find('#');
  for (const CaseSpec& spec : cases) {
    for (const std::string& link : spec.links) {
      if (report_of(link) == entry.report) return link;
    }
  }
  return "https://github.com/" + entry.report.substr(0, hash) + "/issues/" + entry.report.substr(hash + 1);
}

std::vector<GivenUp> given_up(std::string_view text, const std::string& shown) {
  static const std::regex form(R"(# not expressed: (M\d+) (\S+#\d+): (\S.*))");
  std::vector<GivenUp> out;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line(text.substr(at, end - at));
    at = end + 1, ++number;
    if (!line.starts_with(mark)) continue;
    const std::string where = shown + ":" + std::to_string(number);
    std::smatch found;
    if (!std::regex_match(line, found, form)) {
      throw Error(where + ": expected '# not expressed: ID REPOSITORY#NUMBER: REASON', found '" + line.substr(0, 200) +
                  "'; write the line in that form");
    }
    out.push_back({found[1], found[2], found[3], where});
  }
  return out;
}

std::string entry_of(const std::string& case_id) {
  static const std::regex form(R"(museum/m(\d+)-[^/]*)");
  std::smatch found;
  if (!std::regex_match(case_id, found, form))
    throw Error("expected a case id museum/m<number>-..., found '" + case_id + "'; rename the case");
  return "M" + found[1].str();
}

std::vector<Exhibit> read(const catalogue::Catalogue& catalogue) {
  std::vector<Exhibit> out;
  std::map<std::string, std::size_t> index;
  std::vector<std::string> ids;
  for (const auto& [name, collection] : catalogue.collections()) {
    for (const auto& entry : collection.entries) {
      if (!index.emplace(entry.id, out.size()).second)
        throw Error(collection.file + ":1: expected a new entry, found '" + entry.id + "' again; remove one");
      out.push_back({entry, {}, {}, {}});
      ids.push_back(entry.id);
    }
  }
  const auto exhibit = [&](const std::string& id, const std::string& where) -> Exhibit& {
    const auto found = index.find(id);
    if (found == index.end())
      throw Error(where + ": expected an entry of cases/museum/index, found '" + id + "'" + catalogue::suggestion(id, ids));
    return out[found->second];
  };
  for (const auto& path : catalogue::yaml_files(catalogue.directory() / folder)) {
    const std::string shown = "cases/" + std::string(folder) + "/" + path.filename().string();
    for (CaseSpec& spec : catalogue::read_case_file(path, shown, &catalogue)) {
      Exhibit& of = exhibit(entry_of(spec.id), shown + ":1");
      const bool control = spec.id.find('#') != std::string::npos;
      if (!control) check_case(spec, of.entry);
      (control ? of.controls : of.cases).push_back(std::move(spec));
    }
    for (const GivenUp& line : given_up(catalogue::read_text_file(path, shown), shown)) {
      Exhibit& of = exhibit(line.id, line.where);
      if (of.entry.report != line.report) {
        throw Error(line.where + ": expected the report of " + line.id + ", " + of.entry.report + ", found " + line.report +
                    "; correct one of them");
      }
      if (!of.not_expressed.empty())
        throw Error(line.where + ": expected one line for each entry, found " + line.id + " again; remove one");
      of.not_expressed = line.reason;
    }
  }
  for (const Exhibit& e : out) {
    if (e.expressed() && e.not_expressed.empty()) continue;
    if (!e.expressed() && !e.not_expressed.empty()) continue;
    throw Error("cases/museum: expected a case or a line '# not expressed: " + e.entry.id + " " + e.entry.report +
                ": ...', found " + (e.expressed() ? "both" : "neither") + "; " +
                (e.expressed() ? "remove the line" : "add one of them"));
  }
  return out;
}

}  // namespace kvcts::museum
