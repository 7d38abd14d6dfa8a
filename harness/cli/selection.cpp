#include "cli/selection.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/exit.hpp"
#include "cli/product.hpp"
#include "cli/report/repro.hpp"
#include "cli/report/text.hpp"
#include "cli/run/rotation.hpp"
#include "cli/stored.hpp"

namespace kvcts::cli {

using nlohmann::json;

namespace {

constexpr const char* shard_file = ".shard";  // the name of a shard's file ends so

/// Puts into the query what did not end as expected in the run of --failed. Where nothing else says where cases come from,
/// they come from where that run had them.
void add_failed(matrix::Query& query, const SelectOptions& options) {
  const auto reader = store::RunReader::open(options.failed);
  query.failed.run = options.failed;
  reader.for_each_brief([&](const store::RunReader::Brief& one) {
    if (one.decided && store::ended_wrong(one.outcome, one.verdict)) query.failed.ids.emplace_back(one.id);
  });
  if (query.failed.ids.empty()) throw NothingSelected(fmt::format("nothing failed in {}", options.failed));
  query.failed.anywhere = options.suites.empty() && options.files.empty() && options.draw == 0;
  if (!query.failed.anywhere) return;
  const store::RunInfo info = reader.info();
  // The whole matrix of what was drawn from may be too large to list.
  if (const auto began = selection_from_text(info.selection); began.draw == 0) query.suites = began.suites;
  for (const auto& file : report::repro_from_json(info.repro).files) query.files.emplace_back(file);
}

void take_part(matrix::Query& query, const std::string& file) {
  try {
    const json text = json::parse(std::ifstream(file));
    query.shard = text.at("shard"), query.shards = text.at("shards");
    query.part.whole = text.at("whole"), query.part.cut = text.at("cut");
    for (const json& one : text.at("cases")) query.part.cases.push_back({one.at(0), one.at(1), one.at(2)});
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{}: expected a shard of kvcts run --on slurm, found {}", file, error.what()));
  }
}

}  // namespace

void write_shards(const std::vector<matrix::Part>& parts, const std::filesystem::path& folder) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    json cases = json::array();
    for (const auto& one : parts[i].cases) cases.push_back({one.place, one.suite, one.id});
    std::ofstream(folder / (std::to_string(i + 1) + shard_file)) << json{{"shard", i + 1},
                                                                         {"shards", parts.size()},
                                                                         {"whole", parts[i].whole},
                                                                         {"cut", parts[i].cut},
                                                                         {"cases", std::move(cases)}};
  }
}

void declare_selection(Command& command, SelectOptions& options) {
  command.add_option("--suite", options.suites, "Suite to take cases from (`kvcts list` shows them); repeatable")
      .type_name("NAME")
      .repeatable();
  command.add_option("--id", options.ids, "Case id or glob; repeatable").type_name("GLOB").repeatable();
  command
      .add_option("--where", options.where,
                  "Keep cases for which this axis expression holds, e.g. 'dtype == bf16 && engine != shm'")
      .type_name("EXPR");
  command
      .add_option("--failed", options.failed,
                  "Keep cases that did not end as expected in the run in this folder; give its --engine and --seed again")
      .type_name("RUN");
  const auto draw =
      command.add_option("--draw", options.draw, "Take N random points of the suites' matrix instead of the suites")
          .type_name("N")
          .range(std::int64_t{1}, matrix::max_draw);
  command.add_option("--draw-seed", options.draw_seed, "Seed of --draw (default: 1)").type_name("S").needs(draw);
  command
      .add_option("--cover", options.cover, "Keep a covering array of this strength: every T-way combination of values once")
      .type_name("T")
      .range(1, 6);
  const auto shard =
      command.add_option("--shard", options.shard, "Take one part of n by a hash of the id, e.g. 2/8").type_name("I/N");
  command
      .add_option("--shard-times", options.shard_times,
                  "Cut shards so that they take equally long, by the times in a FILE of --rotate; give every shard the same "
                  "copy")
      .type_name("FILE")
      .needs(shard);
  command
      .add_option("--budget", options.budget,
                  "Plan the first cases whose estimated times fit into S seconds, and stop when they are over")
      .type_name("S")
      .range(0.001, 1e9);
  command.add_option("--file", options.files, "Take the cases of this file; repeatable").type_name("YAML").repeatable();
}

void declare_subjects(Command& command, SelectOptions& options) {
  declare_engine(command, options.engine);
  declare_subject(command, connector_subject, options.connector);
  declare_subject(command, store_subject, options.store);
}

void take_subjects(SelectOptions& options) {
  std::vector<std::string> theirs;
  if (!options.engine.empty()) take_plugin(options.engine), theirs.emplace_back(plugin_suite);
  for (const auto& [subject, named] : {std::pair(connector_subject, options.connector), {store_subject, options.store}})
    if (!named.empty()) take_subject(subject, named), theirs.emplace_back(subject.suite);
  if (options.suites.empty() && options.ids.empty() && options.where.empty() && options.files.empty() &&
      options.failed.empty())
    options.suites = std::move(theirs);
}

matrix::Query query_of(const SelectOptions& options) {
  matrix::Query query;
  query.suites = options.suites;
  query.ids = options.ids;
  query.where = options.where;
  query.draw = options.draw;
  query.draw_seed = options.draw_seed;
  query.cover = options.cover;
  query.budget_s = options.budget;
  for (const auto& file : options.files) query.files.emplace_back(file);
  if (!options.failed.empty()) opening([&] { add_failed(query, options); });
  if (options.shard.empty()) return query;
  if (options.shard.ends_with(shard_file)) return take_part(query, options.shard), query;
  if (!options.shard_times.empty()) query.times_ns = Rotation(options.shard_times).times_ns();
  const char *at = options.shard.data(), *end = at + options.shard.size();
  const auto first = std::from_chars(at, end, query.shard);
  const bool slash = first.ec == std::errc{} && first.ptr != end && *first.ptr == '/';
  const auto second = slash ? std::from_chars(first.ptr + 1, end, query.shards) : first;
  if (!slash || second.ec != std::errc{} || second.ptr != end || query.shard < 1 || query.shard > query.shards)
    throw UsageError(fmt::format("--shard expects i/n with 1 <= i <= n, found '{}'", options.shard));
  return query;
}

std::string to_text(const SelectOptions& options) {
  std::string text;
  const auto add = [&](const char* flag, const std::string& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", flag, report::shell_word(value));
  };
  for (const auto& s : options.suites) add("--suite", s);
  for (const auto& i : options.ids) add("--id", i);
  if (!options.where.empty()) add("--where", options.where);
  if (!options.failed.empty()) add("--failed", std::filesystem::absolute(options.failed).lexically_normal().string());
  if (options.draw > 0) add("--draw", std::to_string(options.draw));
  if (options.draw > 0 && options.draw_seed != SelectOptions().draw_seed)
    add("--draw-seed", std::to_string(options.draw_seed));
  if (options.cover > 0) add("--cover", std::to_string(options.cover));
  const bool in_file = options.shard.ends_with(shard_file);
  if (!options.shard.empty()) add("--shard", in_file ? std::filesystem::absolute(options.shard).string() : options.shard);
  if (!options.shard_times.empty()) add("--shard-times", std::filesystem::absolute(options.shard_times).string());
  if (options.budget > 0) add("--budget", fmt::format("{}", options.budget));
  for (const auto& f : options.files) add("--file", std::filesystem::absolute(f).string());
  return text;
}

SelectOptions selection_from_text(const std::string& text) {
  // Split as report::shell_word quotes: '...' with '\'' for a quote.
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, started = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'') {
      quoted = !quoted;
      started = true;
    } else if (c == '\\' && !quoted && i + 1 < text.size()) {
      word += text[++i];
      started = true;
    } else if (c == ' ' && !quoted) {
      if (started) words.push_back(word);
      word.clear();
      started = false;
    } else {
      word += c;
      started = true;
    }
  }
  if (started) words.push_back(word);
  SelectOptions options;
  try {
    parse_words(words, [&](Command& command) { declare_selection(command, options); });
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("the run's selection '{}' cannot be read: {}", text, e.what()));
  }
  return options;
}

std::string short_name(const SelectOptions& options) {
  std::vector<std::string> parts = options.suites;
  for (const auto& f : options.files) parts.push_back(std::filesystem::path(f).filename().string());
  if (parts.empty() && !options.failed.empty()) {
    const auto run = std::filesystem::path(options.failed + "/").lexically_normal().parent_path();
    return "failed in " + run.filename().string();
  }
  if (parts.empty())
    return options.ids.size() == 1 && options.ids[0].find_first_of("*?[") == std::string::npos ? options.ids[0] : "full";
  return fmt::format("{}", fmt::join(parts, "+"));
}

}  // namespace kvcts::cli
