#include "cli/one_case.hpp"

#include <fmt/format.h>

#include "cli/exit.hpp"
#include "cli/report/text.hpp"

namespace kvcts::cli {

CaseSpec OneCase::spec() const {
  CaseSpec spec = plan->selection().spec(chosen().selected);
  if (seed) spec.seed = *seed;
  return spec;
}

OneCase choose(const catalogue::Catalogue& catalogue, const std::string& verb, const std::string& subject,
               const std::string& file, std::optional<std::uint64_t> seed) {
  OneCase out{subject, file, seed, nullptr, 0};
  if ((subject.ends_with(".yaml") || subject.ends_with(".yml")) && !subject.starts_with("kv/")) {
    if (!file.empty()) throw UsageError("expected one case file, found two; name the case and give its file with --file");
    out.file = subject, out.id.clear();
  }
  matrix::Query query;
  if (!out.file.empty()) query.files.emplace_back(out.file);
  if (!out.id.empty()) query.ids = {out.id};
  out.plan = std::make_unique<Plan>(catalogue, query, PlanOptions{seed, {}});
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < out.plan->items().size(); ++i) {
    const std::string& id = out.plan->items()[i].planned.id;
    if (out.id.empty() ? id.find('#') == std::string::npos : id == out.id) found.push_back(i);
  }
  if (found.empty())
    throw UsageError(fmt::format("expected the id of a case, found '{}': {}", out.id, out.plan->selection().why_empty()));
  if (found.size() > 1) {
    throw UsageError(fmt::format("expected one case, found {} in {}; name one: kvcts {} {} --file {}", found.size(),
                                 out.file, verb, out.plan->items()[found[0]].planned.id, report::shell_word(out.file)));
  }
  out.item = found[0];
  out.id = out.chosen().planned.id;
  return out;
}

}  // namespace kvcts::cli
