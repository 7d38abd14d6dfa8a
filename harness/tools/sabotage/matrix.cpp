#include "tools/sabotage/page.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcts::sabotage {

namespace {

std::string checks(const Catch& c) { return fmt::format("{}", fmt::join(c.checks, " + ")); }

/// "yes", or what it was called instead.
std::string naming(const Row& row) {
  if (!row.caught || row.saboteur.harmless) return "";
  if (row.caught->named) return "yes";
  const auto& d = row.caught->result.diagnosis;
  return d.exact && !d.fault_class.empty() ? d.fault_class : "no";
}

std::string fault_class(const Row& row) { return row.saboteur.harmless ? "(right code)" : row.saboteur.fault_class; }

std::string noticed(const Row& row) {
  if (row.caught) return checks(*row.caught);
  if (row.skipped()) return "SKIPPED";
  return row.saboteur.harmless ? "not caught" : "NOT CAUGHT";
}

/// Rows of all harnesses by saboteur, where every one of them has some.
std::vector<std::vector<const Row*>> side_by_side(const std::vector<Campaigned>& harnesses) {
  std::vector<std::vector<const Row*>> out;
  for (const Row& first : harnesses.at(0).rows) {
    std::vector<const Row*> line;
    for (const auto& harness : harnesses) {
      const auto found = std::find_if(harness.rows.begin(), harness.rows.end(), [&](const Row& row) { return row.saboteur.id == first.saboteur.id && row.tried > 0; });
      if (found != harness.rows.end()) line.push_back(&*found);
    }
    if (line.size() == harnesses.size()) out.push_back(std::move(line));
  }
  return out;
}

/// Ours stops at its first catch; of the others all cases are run.
std::string verdict(const Row& row, bool ours) {
  if (row.saboteur.harmless) return row.caught ? "FALSE ALARM" : "passes";
  if (!row.caught) return "MISS";
  return ours ? "caught" : fmt::format("{} of {}", row.noticed, row.tried);
}

std::vector<std::size_t> caught_of(const std::vector<std::vector<const Row*>>& lines, std::size_t harnesses) {
  std::vector<std::size_t> out(harnesses);
  for (const auto& line : lines) {
    for (std::size_t h = 0; h < harnesses; ++h) out[h] += !line[h]->saboteur.harmless && line[h]->caught;
  }
  return out;
}

const Row* of_saboteur(const Campaigned& campaign, const std::string& id) {
  const auto found = std::find_if(campaign.rows.begin(), campaign.rows.end(), [&](const Row& row) { return row.saboteur.id == id; });
  return found == campaign.rows.end() ? nullptr : &*found;
}

bool told_the_same(const Row& row, const Row* other) {
  if (row.saboteur.harmless || !row.caught || other == nullptr || !other->caught) return false;
  const CaseResult &one = row.caught->result, &two = other->caught->result;
  return row.caught->id == other->caught->id && row.caught->checks == other->caught->checks && one.message == two.message &&
         one.wrong_bytes == two.wrong_bytes && one.diagnosis.fault_class == two.diagnosis.fault_class && one.diagnosis.text == two.diagnosis.text;
}

/// "bytes, named", or what became of it instead.
std::string caught_and_named(const Row* row) {
  if (row == nullptr || row->tried == 0) return "no case";
  if (!row->caught) return row->skipped() ? "SKIPPED: " + row->why_silent : noticed(*row);
  if (row->saboteur.harmless) return "FALSE ALARM";
  return checks(*row->caught) + (row->caught->named ? ", named" : ", called " + naming(*row));
}

std::size_t wrong_ones(const std::vector<std::vector<const Row*>>& lines) {
  return static_cast<std::size_t>(std::count_if(lines.begin(), lines.end(), [](auto& line) { return !line[0]->saboteur.harmless; }));
}

}  // namespace

std::string totals_text(const Campaigned& campaign) {
  const Totals t = totals_of(campaign.rows);
  std::string out = fmt::format("{}: {} of {} saboteurs caught, {} named", campaign.name, t.caught, t.saboteurs, t.named);
  if (t.saboteurs > 0) out += fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(t.named) / static_cast<double>(t.saboteurs));
  const std::size_t controls = campaign.rows.size() - t.saboteurs;
  if (t.skipped > 0) out += fmt::format(", {} skipped", t.skipped);
  return out + fmt::format("; {} false alarm{} of {} control{}\n", t.false_alarms, t.false_alarms == 1 ? "" : "s", controls, controls == 1 ? "" : "s");
}

std::string matrix_text(const Campaigned& campaign) {
  std::size_t width = 8;
  for (const auto& row : campaign.rows) width = std::max(width, row.saboteur.id.size());
  std::string out = fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:<9} {:>5}  case\n", "saboteur", width, "caught by", "class", "named", "suite", "tried");
  for (const auto& row : campaign.rows) {
    const std::string where = row.caught ? row.caught->id : row.tried == 0 ? "no case has a place for it" : row.skipped() ? row.why_silent : "";
    std::string line = fmt::format("{:<{}}  {:<16} {:<24} {:<24} {:<9} {:>5}  {}", row.saboteur.id, width, noticed(row), fault_class(row), naming(row),
                                   row.caught ? row.caught->suite : "", row.tried, where);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out + "\n" + totals_text(campaign);
}

nlohmann::json matrix_json(const Campaigned& campaign) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& row : campaign.rows) {
    nlohmann::json one{{"saboteur", row.saboteur.id},         {"kind", row.saboteur.kind},           {"title", row.saboteur.title}, {"class", row.saboteur.fault_class},
                       {"harmless", row.saboteur.harmless}, {"caught", row.caught.has_value()}, {"tried", row.tried}};
    if (row.skipped()) one["skipped"] = row.why_silent;
    if (row.caught) {
      const auto& c = *row.caught;
      one["case"] = c.id, one["suite"] = c.suite, one["checks"] = c.checks, one["named"] = c.named;
      one["outcome"] = name(c.result.outcome), one["diagnosis"] = c.result.diagnosis.text, one["message"] = c.result.message;
      one["diagnosed"] = c.result.diagnosis.exact ? c.result.diagnosis.fault_class : "";
    }
    list.push_back(std::move(one));
  }
  const Totals t = totals_of(campaign.rows);
  return {{"suite", campaign.name}, {"saboteurs", std::move(list)},
          {"totals", {{"saboteurs", t.saboteurs}, {"caught", t.caught}, {"named", t.named}, {"skipped", t.skipped}, {"false_alarms", t.false_alarms}, {"good", t.good()}}}};
}

std::string harnesses_text(const std::vector<Campaigned>& harnesses) {
  const auto lines = side_by_side(harnesses);
  std::size_t width = 8;
  for (const auto& line : lines) width = std::max(width, line[0]->saboteur.id.size());
  std::string out = fmt::format("{:<{}}", "saboteur", width);
  for (const auto& harness : harnesses) out += fmt::format("  {:<11}", harness.name);
  out += "\n";
  for (const auto& line : lines) {
    out += fmt::format("{:<{}}", line[0]->saboteur.id, width);
    for (const Row* row : line) out += fmt::format("  {:<11}", verdict(*row, row == line[0]));
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  out += "\n";
  const auto caught = caught_of(lines, harnesses.size());
  for (std::size_t h = 0; h < harnesses.size(); ++h) out += fmt::format("{}: {} of {} caught\n", harnesses[h].name, caught[h], wrong_ones(lines));
  return out;
}

nlohmann::json harnesses_json(const std::vector<Campaigned>& harnesses) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& line : side_by_side(harnesses)) {
    nlohmann::json one{{"saboteur", line[0]->saboteur.id}, {"harmless", line[0]->saboteur.harmless}};
    for (std::size_t h = 0; h < harnesses.size(); ++h) one["noticed"][harnesses[h].name] = line[h]->noticed, one["cases"][harnesses[h].name] = line[h]->tried;
    out.push_back(std::move(one));
  }
  return {{"harnesses", std::move(out)}};
}

std::string page_rows(const Campaigned& campaign) {
  std::string out;
  for (const auto& row : campaign.rows) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", row.saboteur.id, row.saboteur.title, noticed(row), fault_class(row), naming(row),
                       row.caught ? row.caught->suite : "", row.tried, row.caught ? "`" + row.caught->id + "`" : "");
  }
  return out;
}

std::string behind_row(const Campaigned& plain, const Campaigned& behind) {
  const Totals t = totals_of(behind.rows);
  const auto alike = std::count_if(behind.rows.begin(), behind.rows.end(), [&](const Row& row) { return told_the_same(row, of_saboteur(plain, row.saboteur.id)); });
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", behind.name, t.saboteurs, t.caught, t.named, alike, t.skipped, t.false_alarms);
}

std::string behind_section(const Campaigned& plain, const std::vector<Campaigned>& behind) {
  std::string out =
      "## Behind released engines\n\n"
      "The same saboteurs with a released engine in the place of the case's own, between two processes (`kvcts sabotage --behind ENGINE`). What is "
      "wrong before\n"
      "an engine is asked (`connector`, `planner`) or after (`reader`) stays where it is. What is wrong in an engine (`transport`, `writer`) stands in front "
      "of it: it\n"
      "edits the list before the engine sees it, or the bytes that the engine is given, so that the engine itself moves what is wrong and counts it. *The "
      "same*: caught in\n"
      "the same case by the same checks, and told of in the same words. A hang is told of with times, which differ; a list that would leave its "
      "region is not sent, as\n"
      "engines refuse it: then a later case catches. *Skipped*: cannot be had with this engine, which says why. Random faults through the same engines, "
      "with every\n"
      "word of the diagnosis compared: `kvcts-random-faults --engine ENGINE`.\n\n"
      "| engine | saboteurs | caught | named | the same | skipped | false alarms |\n| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const auto& engine : behind) out += behind_row(plain, engine);
  out += "\n| saboteur | its own engine |";
  for (const auto& engine : behind) out += " `" + engine.name + "` |";
  out += "\n| --- | --- |";
  for (std::size_t e = 0; e < behind.size(); ++e) out += " --- |";
  out += "\n";
  for (const Row& row : plain.rows) {
    out += "| " + row.saboteur.id + " | " + caught_and_named(&row) + " |";
    for (const auto& engine : behind) out += " " + caught_and_named(of_saboteur(engine, row.saboteur.id)) + " |";
    out += "\n";
  }
  return out;
}

std::string page(const std::vector<Campaigned>& suites, const std::vector<Campaigned>& harnesses,
                 const std::vector<Campaigned>& behind) {
  std::string out = fmt::format(
      "# Saboteurs: what would the suite catch?\n\n"
      "Code that is wrong on purpose takes the place of right code in the cases of a suite: of the engine (`transport`, "
      "`writer`), of the connector\n"
      "(`connector`, `planner`) or of the reader. Each is one document in `cases/saboteurs/` ([how to write "
      "one](../cases/README.md#writing-a-saboteur)).\n"
      "The cases are tried in the suite's order, those first that a saboteur names as likely, until one of them does not "
      "end in PASS. *Caught by*\n"
      "says which check noticed: `bytes`, `guard`, `padding`, `source` (which must not change), `count` (planned, moved, "
      "expected), `late write` (memory\n"
      "is watched after completion), `completion` (reported before the bytes had arrived), `reader` (what was gathered), `outcome` (an error, a hang or a crash). *Named*: the "
      "diagnosis of that case, which\n"
      "does not see the saboteur, explains every wrong byte and gives its class. *Tried*: cases up to the catch, or in all. "
      "Controls are right\n"
      "code in the same places; they are not caught. All of it runs on the host, so the evidence is *modelled*.\n\n"
      "The families of hypotheses were written with these saboteurs at hand: the share that is named says that none of them "
      "goes without a name, not\n"
      "how well unknown faults are named ([the museum](museum.md) does).\n\n"
      "This page is what `kvcts sabotage --page` prints; a test holds a sample of its rows to that.\n\n```text\n");
  for (const auto& suite : suites) out += totals_text(suite);
  out +=
      "```\n\n| saboteur | what it does | caught by | class | named | suite | tried | case |\n| --- | --- | --- | --- | --- "
      "| --- | --- | --- |\n" +
      page_rows(suites.at(0));

  out += "\n" + behind_section(suites.at(0), behind);

  const auto lines = side_by_side(harnesses);
  out +=
      "\n## The same saboteurs against what other harnesses write and look at\n\n"
      "The same cases with the fills of benchdnn's reorder driver, of UCX's two test buffers, of nvbandwidth and of "
      "nccl-tests in the place of ours, and with\n"
      "their checks: the bytes that had to arrive, once, and nothing else (no guards, no free memory, no source, no counts, "
      "not again). Structure and\n"
      "versions of the fills are those in `harness/run/checker/emulated.cpp`: *emulated*, none of these programs ran, and "
      "moving KV caches between ranks is\n"
      "not what any of them is for. Each saboteur is tried in up to eight cases, from the one on in which ours caught it; "
      "*3 of 8* are the cases that\n"
      "noticed.\n\n| saboteur |";
  for (const auto& harness : harnesses) out += " " + harness.name + " |";
  out += "\n| --- |";
  for (std::size_t h = 0; h < harnesses.size(); ++h) out += " --- |";
  out += "\n";
  for (const auto& line : lines) {
    out += "| " + line[0]->saboteur.id + " |";
    for (const Row* row : line) out += row->caught || row->saboteur.harmless ? " " + verdict(*row, row == line[0]) + " |" : " **MISS** |";
    out += "\n";
  }
  out += fmt::format("| **caught of {}** |", wrong_ones(lines));
  for (const auto count : caught_of(lines, harnesses.size())) out += fmt::format(" {} |", count);
  return out + "\n";
}

}  // namespace kvcts::sabotage
