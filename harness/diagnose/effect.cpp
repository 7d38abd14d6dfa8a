#include "diagnose/effect.hpp"

#include <algorithm>

namespace kvcts::scenario {
namespace {

bool same_bytes(const Bytes& a, const Bytes& b, const AddressSpace& space) {
  return std::ranges::all_of(space.buffers(), [&](const Buffer& buffer) {
    const int n = buffer.ordinal;
    if (!buffer.sparse) return a.dense(n) == b.dense(n);
    std::vector<std::int64_t> pages = a.pages(n), others = b.pages(n);
    pages.insert(pages.end(), others.begin(), others.end());
    return std::ranges::all_of(pages, [&](std::int64_t page) {
      for (std::int64_t i = page; i < page + Bytes::page; ++i)
        if (a.mapped(n, i, 1) && a.at(n, i) != b.at(n, i)) return false;
      return true;
    });
  });
}

bool same(const Observation& a, const Observation& b, const AddressSpace& space) {
  if (a.ending.kind != b.ending.kind || a.checks != b.checks || reports(a.events) != reports(b.events)) return false;
  for (std::size_t pass = 0; pass < std::min(a.bytes.size(), b.bytes.size()); ++pass)
    for (std::size_t check = 0; check < a.checks.size(); ++check)
      if (!same_bytes(a.bytes[pass][check], b.bytes[pass][check], space)) return false;
  return true;
}

}  // namespace

std::vector<std::string> steps_without_effect(const Scenario& scenario, const AddressSpace& space, const Observation& seen,
                                              bool right, std::uint64_t seed, const CopyExecutor& executor) {
  constexpr std::size_t most = 64 << 20;
  const int passes = std::min(static_cast<int>(seen.bytes.size()), 8);
  std::vector<std::string> out;
  std::size_t bytes = 0;
  for (const Bytes& at : seen.bytes.front())
    for (const Buffer& b : space.buffers())
      bytes += b.sparse ? at.pages(b.ordinal).size() * Bytes::page : at.dense(b.ordinal).size();
  const auto differs = [](const Step& step) { return !step.as_intended; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(scenario.steps, differs));
  if (!right && (count < 2 || bytes * count * static_cast<std::size_t>(passes) > most)) return out;
  Scenario rest = scenario;
  for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
    if (!differs(scenario.steps[i])) continue;
    rest.steps[i].as_intended = true;
    if (!right) {
      const CopyProgram program = record(rest, space, actual_sequence(rest));
      if (!same(seen, observe(program, seed, passes, executor), space)) {
        rest.steps[i].as_intended = false;
        continue;
      }
    }
    out.push_back(scenario.steps[i].name);
  }
  return out;
}

std::string text_without_effect(const std::vector<std::string>& steps) {
  std::string names;
  for (std::size_t i = 0; i < steps.size(); ++i)
    names += (i == 0 ? "" : i + 1 == steps.size() ? " and " : ", ") + ("'" + steps[i] + "'");
  return steps.empty() ? "" : "what " + names + " did instead made no difference to any byte or report";
}

}  // namespace kvcts::scenario
