#include "cli/report/compatibility.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "cli/report/text.hpp"
#include "cli/report/view.hpp"
#include "matrix/ids.hpp"

namespace kvcts::report {
namespace {

constexpr std::string_view legend =
    "A cell counts the cases of that pair by outcome; they differ in geometry, block sizes, ranks, arch and the like. PASS: "
    "every byte arrived as "
    "declared. REFUSED: a clean, typed error before any byte moved. UNSUPPORTED: excluded by a declared limit. \"!\": some "
    "of these did not end as "
    "expected. e, c, m: evidence of the cases that ran (executed, compiled, modelled on the CPU). An empty cell: no case in "
    "this run.";

/// The engine's part of the page: which dtypes are columns, which pairs are rows.
struct Part {
  std::string engine;
  std::vector<std::string> dtypes;
  std::vector<std::pair<std::string, std::string>> pairs;
};

std::vector<Part> parts(const Compatibility& table) {
  std::map<std::string, std::pair<std::set<std::string>, std::set<std::pair<std::string, std::string>>>> found;
  for (const auto& [key, cell] : table.cells) {
    const auto& [engine, producer, consumer, dtype] = key;
    found[engine].first.insert(dtype);
    found[engine].second.emplace(producer, consumer);
  }
  std::vector<Part> out;
  for (const auto& [engine, content] : found)
    out.push_back({engine, {content.first.begin(), content.first.end()}, {content.second.begin(), content.second.end()}});
  return out;
}

const Compatibility::Cell* cell_at(const Compatibility& table, const Part& part,
                                   const std::pair<std::string, std::string>& pair, const std::string& dtype) {
  const auto it = table.cells.find({part.engine, pair.first, pair.second, dtype});
  return it == table.cells.end() ? nullptr : &it->second;
}

std::string left_out(const Compatibility& table) {
  return table.written_by_hand == 0
             ? ""
             : fmt::format(" {} written by hand are not counted: they may lie about layouts on purpose.",
                           plural(table.written_by_hand, "case"));
}

/// An axis value as the id of a matrix case has it; axes at their default are not written.
std::string axis_in_id(std::string_view id, std::string_view axis) {
  const std::string key = "/" + std::string(axis) + "=";
  if (const auto at = id.find(key); at != std::string_view::npos) {
    const auto begin = at + key.size();
    return std::string(id.substr(begin, id.find('/', begin) - begin));
  }
  return axis == "consumer" ? axis_in_id(id, "producer") : std::string(matrix::find_axis(axis)->fallback);
}

/// A word in a cell of a Markdown table.
std::string cell_text(std::string_view text) {
  std::string out;
  for (const char c : visible(text)) {
    if (c == '|' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Compatibility compatibility(const store::RunReader& reader) {
  Compatibility table;
  const auto info = reader.info();
  table.suite = info.suite;
  table.selection = info.selection;
  table.version = info.version;
  table.started = store::utc(info.started_ms);
  table.headline = headline(reader.counts());
  reader.for_each([&](const store::Row& row) {
    if (!matrix::is_matrix_id(row.planned.id)) {
      ++table.written_by_hand;
      return;
    }
    const auto& r = row.result;
    const std::string_view id = row.planned.id;
    auto& cell = table.cells[{axis_in_id(id, "engine"), axis_in_id(id, "producer"), axis_in_id(id, "consumer"),
                              axis_in_id(id, "dtype")}];
    ++table.cases;
    ++cell.outcome[static_cast<std::size_t>(r.outcome)];
    if (row.decided && !r.phases.empty()) ++cell.evidence[static_cast<std::size_t>(r.evidence)];
    if (section_of(row) == Section::failed || section_of(row) == Section::suite_error) ++cell.unexpected;
  });
  return table;
}

std::string cell_text(const Compatibility::Cell& cell) {
  static constexpr std::array order{Outcome::pass,    Outcome::refused, Outcome::unsupported, Outcome::skipped,
                                    Outcome::not_run, Outcome::fail,    Outcome::hang,        Outcome::crash,
                                    Outcome::flaky,   Outcome::error};
  std::string out;
  for (const auto outcome : order) {
    const auto n = cell.outcome[static_cast<std::size_t>(outcome)];
    if (n > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name(outcome), thousands(n));
  }
  if (cell.unexpected > 0) out += "!";
  std::string kinds;
  for (int i = evidence_count - 1; i >= 0; --i)
    if (cell.evidence[static_cast<std::size_t>(i)] > 0)
      kinds += name(static_cast<Evidence>(i)) == "executed" ? "e" : std::string(1, name(static_cast<Evidence>(i))[0]);
  return kinds.empty() ? out : out + " " + kinds;
}

void write_markdown(const Compatibility& table, std::ostream& out) {
  out << "# Compatibility, suite " << cell_text(table.suite) << "\n\n"
      << cell_text(table.headline) << ". kvcts " << cell_text(table.version) << ", " << table.started << ", selection `"
      << visible(table.selection) << "`.\n\n"
      << legend << left_out(table) << "\n";
  for (const auto& part : parts(table)) {
    out << "\n## Engine " << cell_text(part.engine) << "\n\n| producer | consumer |";
    for (const auto& dtype : part.dtypes) out << ' ' << cell_text(dtype) << " |";
    out << "\n| --- | --- |";
    for (std::size_t i = 0; i < part.dtypes.size(); ++i) out << " --- |";
    out << '\n';
    for (const auto& pair : part.pairs) {
      out << "| " << cell_text(pair.first) << " | " << cell_text(pair.second) << " |";
      for (const auto& dtype : part.dtypes) {
        const auto* cell = cell_at(table, part, pair, dtype);
        out << ' ' << (cell ? cell_text(*cell) : "") << " |";
      }
      out << '\n';
    }
  }
}

}  // namespace kvcts::report
