#include "cli/report/template.hpp"

#include <set>
#include <stdexcept>

#include "cli/report/text.hpp"

namespace kvcts::report {

std::string fill(std::string_view page, const std::map<std::string, std::string, std::less<>>& values) {
  std::string out;
  std::set<std::string_view> used;
  while (true) {
    const auto open = page.find("{{");
    out += page.substr(0, open);
    if (open == std::string_view::npos) break;
    const bool markup = page.substr(open, 3) == "{{{";
    const std::string_view end = markup ? "}}}" : "}}";
    const auto begin = open + end.size();
    const auto close = page.find(end, begin);
    if (close == std::string_view::npos) throw std::logic_error("template: '{{' without its end");
    const auto name = page.substr(begin, close - begin);
    const auto value = values.find(name);
    if (value == values.end()) throw std::logic_error("template: nothing fills '" + std::string(name) + "'");
    used.insert(value->first);
    out += markup ? value->second : escaped(value->second);
    page.remove_prefix(close + end.size());
  }
  for (const auto& [name, value] : values)
    if (used.count(name) == 0) throw std::logic_error("template: has no place for '" + name + "'");
  return out;
}

}  // namespace kvcts::report
