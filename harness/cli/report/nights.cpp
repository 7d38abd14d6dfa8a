#include "cli/report/nights.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcts::report {
namespace {

// From the best to the worst; the page's script has the same classes.
constexpr std::string_view letters_in_order = " -.x~F", classes_in_order = "engwfb";

}  // namespace

std::string strip_markup(std::string_view letters) {
  if (letters.empty()) return "";
  std::string cells;
  for (const char letter : letters) {
    const auto at = letters_in_order.find(letter);
    cells += fmt::format("<i class=\"{}\"></i>", classes_in_order[at == std::string_view::npos ? 0 : at]);
  }
  const auto bad = std::count(letters.begin(), letters.end(), 'F'), flaky = std::count(letters.begin(), letters.end(), '~');
  return fmt::format("<span class=\"strip\" role=\"img\" aria-label=\"{} of the last {} nights failed, {} flaky\">{}</span>",
                     bad, letters.size(), flaky, cells);
}

std::string worst_strip(const std::vector<std::string>& ids, const Nights& nights) {
  std::string out;
  for (const std::string& id : ids) {
    const auto found = nights.strips.find(id);
    if (found == nights.strips.end()) continue;
    out.resize(std::max(out.size(), found->second.size()), ' ');
    for (std::size_t i = 0; i < found->second.size(); ++i)
      if (letters_in_order.find(found->second[i]) > letters_in_order.find(out[i])) out[i] = found->second[i];
  }
  return out;
}

}  // namespace kvcts::report
