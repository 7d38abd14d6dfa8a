#include "cli/report/view.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

constexpr const char* pieces_advice =
    "Check how the engine treats the length, the alignment and the order of what it is given to move; layers and heads have "
    "no part in it.";

bool plain_pass(const std::vector<Expected>& expected) {
  return expected.empty() || (expected.size() == 1 && expected[0] == Expected{});
}

std::string title_of(const store::Row& row) { return row.decided ? ending_text(row.result) : "NOT_RUN"; }

std::string note_of(const store::Row& row, Section section) {
  if (!row.result.waiver.empty())
    return fmt::format("{}waiver {}", row.result.verdict == Verdict::expired_waiver ? "expired " : "", row.result.waiver);
  if (section == Section::failed && !plain_pass(row.planned.expected))
    return "expected " + expected_text(row.planned.expected);
  return "";
}

/// Rules of pieces, which code that knows no layer breaks, whatever class the bytes look like.
const std::vector<std::string>& pieces_of(const store::Row& row) {
  static const std::vector<std::string> none;
  return row.result.what_happened.empty() ? none : row.result.what_happened.front().pieces;
}
bool is_of_pieces(const store::Row& row) { return !pieces_of(row).empty() && row.result.what_happened.front().kind.empty(); }

/// Groups that a row may be in: that of its class and of what happened, or of its reason; then those of rules of pieces.
std::vector<std::string> keys_of(const store::Row& row, Section section) {
  const bool reason = section == Section::skipped || section == Section::not_run || section == Section::unsupported;
  const auto key = [&](const std::string& title, const std::string& kind) {
    return fmt::format("{}\x1f{}\x1f{}\x1f{}", static_cast<int>(section), note_of(row, section), title, kind);
  };
  std::vector<std::string> out;
  if (!is_of_pieces(row)) out.push_back(key(title_of(row), reason ? row.result.message : kind_of(row.result)));
  for (const std::string& rule : pieces_of(row)) out.push_back(key(ending_text(row.result, false), rule));
  return out;
}

/// The one that most rows may be in.
std::string key_of(const store::Row& row, Section section, const std::unordered_map<std::string, RunView::Group>& groups) {
  std::string best;
  std::int64_t most = -1;
  for (std::string& key : keys_of(row, section)) {
    const auto found = groups.find(key);
    if (const std::int64_t rows = found == groups.end() ? 0 : found->second.rows; rows > most)
      most = rows, best = std::move(key);
  }
  return best;
}

std::string check_of(const CaseResult& result) {
  if (!result.diagnosis.what_to_do.empty()) return result.diagnosis.what_to_do;
  return std::string(advice(result.diagnosis.fault_class));
}

/// How much of what can run did: "8 % run".
std::string share_run(const store::Counts& c) {
  const auto all = c.planned - c.of(Outcome::unsupported), ran = store::ran(c);
  if (ran <= 0 || all <= 0) return "nothing run";
  const auto percent = 100 * ran / all;
  return percent == 0 ? "under 1 % run" : fmt::format("{} % run", percent);
}

/// ": 8 nixl-1.5.1 (optional), 4 gpu".
std::string lack_text(const store::Counts& c) {
  constexpr std::size_t shown = 4;
  std::string out;
  for (std::size_t i = 0; i < c.lacks.size() && i < shown; ++i) {
    const auto& lack = c.lacks[i];
    out += fmt::format("{}{} {}{}", out.empty() ? ": " : ", ", thousands(lack.count), lack.name,
                       lack.optional ? " (optional)" : "");
  }
  if (c.lacks.size() > shown)
    out += fmt::format(", and for {} more", plural(static_cast<std::int64_t>(c.lacks.size() - shown), "reason"));
  return out;
}

/// "1.22.0, claims tcp"; "" where the result says nothing of its engine.
std::string engine_text(const nlohmann::json& facts) {
  const auto version = facts.find("engine_version");
  if (version == facts.end()) return "";
  std::string out = version->is_string() ? version->get<std::string>() : version->dump();
  if (const auto claims = facts.find("engine_claims"); claims != facts.end() && claims->is_object()) {
    if (const std::string path = claims->value("transport", ""); !path.empty()) out += ", claims " + path;
  }
  return out;
}

void add_slow(std::vector<Slow>& slowest, const store::Row& row) {
  slowest.push_back({row.planned.id, row.result.wall_ns});
  if (slowest.size() <= 64) return;
  std::nth_element(slowest.begin(), slowest.begin() + 5, slowest.end(),
                   [](const Slow& a, const Slow& b) { return a.wall_ns > b.wall_ns; });
  slowest.resize(5);
}

/// The cause that a row is the first one of.
Cause first_of(const store::Row& row, Section section) {
  Cause cause;
  cause.title = title_of(row), cause.message = row.result.message, cause.again = repeat_options_of(row.result);
  cause.check = check_of(row.result), cause.note = note_of(row, section);
  return cause;
}

void add_to(Cause& cause, const store::Row& row, const std::string& key) {
  const bool of_pieces =
      std::ranges::any_of(pieces_of(row), [&](const std::string& rule) { return key.ends_with("\x1f" + rule); });
  if (of_pieces) cause.check = pieces_advice;
  if (cause.title != title_of(row)) cause.title = ending_text(row.result, false);
  // Shown is a case that says what they share.
  const bool says = is_of_pieces(row), first = says && !cause.samples.empty() && !is_of_pieces(cause.samples.front());
  if (first)
    cause.message = (cause.differs ? "e.g. " : "") + row.result.message, cause.again = repeat_options_of(row.result);
  ++cause.count;
  if (!first && cause.message != row.result.message && !cause.differs)
    cause.message.insert(0, "e.g. "), cause.differs = true;
  if (cause.ids.size() < Cause::id_limit) cause.ids.push_back(row.planned.id);
  if (first) cause.samples.insert(cause.samples.begin(), row);
  if (!first && cause.samples.size() < Cause::sample_limit) cause.samples.push_back(row);
  if (cause.samples.size() > Cause::sample_limit) cause.samples.pop_back();
}

}  // namespace

Section section_of(const store::Row& row) {
  if (!row.decided) return row.declared_not_run ? Section::not_run : Section::failed;
  switch (row.result.verdict) {
    case Verdict::unexpected:
    case Verdict::expired_waiver:
      return Section::failed;
    case Verdict::error:
      return Section::suite_error;
    case Verdict::xpass:
      return Section::xpassed;
    case Verdict::xfail:
      return Section::waived;
    case Verdict::skipped:
      return Section::skipped;
    case Verdict::not_run:
      return Section::not_run;
    case Verdict::as_expected:
      break;
  }
  if (row.result.outcome == Outcome::error) return Section::suite_error;
  if (row.result.outcome == Outcome::skipped) return Section::skipped;
  if (row.result.outcome == Outcome::not_run) return Section::not_run;
  return row.result.outcome == Outcome::unsupported ? Section::unsupported : Section::fine;
}

std::string headline(const store::Counts& c) {
  const auto bad = store::failures(c);
  const auto errors = std::max(c.of(Verdict::error), c.of(Outcome::error));
  std::string out;
  const bool open = store::incomplete(c);
  switch (store::exit_status(c)) {
    case 0:
    case 5: {
      const auto ended = c.planned - c.of(Verdict::skipped) - c.of(Verdict::not_run);
      if (open) {
        out = fmt::format("Incomplete ({}): {} of {} ended as expected", share_run(c),
                          thousands(std::max<std::int64_t>(0, store::ran(c))), plural(c.planned, "case"));
      } else {
        out = ended == 1 ? "1 case ended as expected" : fmt::format("All {} ended as expected", plural(ended, "case"));
      }
      break;
    }
    case 1:
      out = fmt::format("{} of {} did not end as expected", thousands(bad), plural(c.planned, "case"));
      if (open) out += fmt::format("; incomplete ({})", share_run(c));
      break;
    case 3:
      out = fmt::format("The suite itself failed in {} of {}", thousands(errors), plural(c.planned, "case"));
      if (bad > 0) out += fmt::format("; {} did not end as expected", thousands(bad));
      if (open) out += fmt::format("; incomplete ({})", share_run(c));
      break;
    case 4:
      return "No case was selected";
    default:
      out = fmt::format("Interrupted after {} of {}", thousands(c.decided), plural(c.planned, "case"));
      if (bad > 0) out += fmt::format("; {} did not end as expected", thousands(bad));
      if (errors > 0) out += fmt::format("; the suite itself failed in {}", thousands(errors));
  }
  const auto add = [&](std::int64_t n, const std::string& word) {
    if (n > 0) out += fmt::format("; {} {}", thousands(n), word);
  };
  add(c.of(Verdict::xpass), "passed against a waiver (XPASS)");
  add(c.of(Verdict::xfail), "waived (XFAIL)");
  add(c.of(Verdict::skipped), "skipped" + lack_text(c));
  add(c.of(Verdict::not_run) - c.missing, "not run" + (c.stopped.empty() ? "" : ": " + c.stopped));
  if (open) add(c.of(Outcome::unsupported), "unsupported");
  add(c.left_out, "left out by --budget");
  if (!c.not_isolated.empty() && store::ran(c) > 0) out += fmt::format("; not isolated ({})", c.not_isolated);
  return out;
}

std::size_t RunView::cause_of(const store::Row& row) const {
  const auto section = section_of(row);
  if (section == Section::fine) return 0;
  const auto found = groups.find(key_of(row, section, groups));
  return found == groups.end() ? 0 : found->second.number;
}

std::vector<RunView::Kind> RunView::evidence() const {
  std::vector<Kind> out;
  for (const auto kind : {Evidence::executed, Evidence::compiled, Evidence::modelled}) {
    const auto at = static_cast<std::size_t>(kind);
    const bool modelled = kind == Evidence::modelled;
    if (modelled) out.push_back({"executed", " on this CPU", here, here_executions, "no GPU was asked for"});
    out.push_back({name(kind), "", counts.ids[at] - (modelled ? here : 0),
                   counts.executions[at] - (modelled ? here_executions : 0), evidence_text(kind)});
  }
  return out;
}

RunView load(const store::RunReader& reader) {
  RunView view;
  view.info = reader.info();
  view.repro = repro_from_json(view.info.repro);
  view.repro.run = std::filesystem::absolute(reader.directory()).lexically_normal().string();
  view.sessions = reader.sessions();
  view.counts = reader.counts();
  view.exit_status = store::exit_status(view.counts);
  view.headline = headline(view.counts);
  view.incomplete = store::incomplete(view.counts);
  for (const auto& s : view.sessions) view.busy_ms += std::max<std::int64_t>(0, s.ended_ms - s.started_ms);

  struct Keyed {
    std::string key;
    Cause cause;
  };
  std::array<std::vector<Keyed>, section_count> found;
  std::unordered_map<std::string, std::size_t> place;
  reader.for_each([&](const store::Row& row) {
    if (const auto section = section_of(row); section != Section::fine)
      for (std::string& key : keys_of(row, section)) ++view.groups[std::move(key)].rows;
  });
  reader.for_each([&](const store::Row& row) {
    if (row.executions > 0) add_slow(view.slowest, row);
    if (const nlohmann::json& facts = row.result.facts; facts.is_object()) {
      const auto engine = facts.find("engine");
      if (std::string words = engine_text(facts); !words.empty() && engine != facts.end() && engine->is_string())
        view.engines[engine->get<std::string>()] = std::move(words);
    }
    if (row.decided && ran_here(row.result)) ++view.here, view.here_executions += row.executions;
    const auto section = section_of(row);
    if (section == Section::fine) return;
    auto& list = found[static_cast<std::size_t>(section)];
    const std::string key = key_of(row, section, view.groups);
    const auto [at, is_new] = place.emplace(key, list.size());
    if (is_new) list.push_back({key, first_of(row, section)});
    add_to(list[at->second].cause, row, key);
  });
  std::sort(view.slowest.begin(), view.slowest.end(), [](const Slow& a, const Slow& b) { return a.wall_ns > b.wall_ns; });
  if (view.slowest.size() > 5) view.slowest.resize(5);
  for (std::size_t s = 0; s < found.size(); ++s) {
    std::stable_sort(found[s].begin(), found[s].end(),
                     [](const Keyed& a, const Keyed& b) { return a.cause.count > b.cause.count; });
    for (auto& keyed : found[s]) {
      view.causes[s].push_back(std::move(keyed.cause));
      view.groups[keyed.key].number = view.causes[s].size();
    }
  }
  return view;
}

}  // namespace kvcts::report
