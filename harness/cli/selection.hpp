// The options that select cases, shared by list, run and inject.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "cli/options.hpp"
#include "matrix/select.hpp"

namespace kvcts::cli {

struct SelectOptions {
  std::vector<std::string> suites, ids, files;
  std::string where, shard, shard_times;
  std::string failed;  ///< folder of a run; "" = none
  int cover{0};
  std::string engine, connector, store;  ///< under test; not in to_text(): variables go with that (cli/product.hpp)
  std::int64_t draw{0};
  std::uint64_t draw_seed{1};
  double budget{0};
};

/// Declares --suite, --id, --where, --failed, --draw, --draw-seed, --cover, --shard, --shard-times, --budget and --file.
void declare_selection(Command& command, SelectOptions& options);

/// Declares --engine, --connector and --store; take_subjects() takes up what they name, whose suites are selected where
/// nothing else is. Throws UsageError.
void declare_subjects(Command& command, SelectOptions& options);
void take_subjects(SelectOptions& options);
/// Reads the run of --failed. Throws UsageError on a bad shard or run, NothingSelected where nothing failed in it.
matrix::Query query_of(const SelectOptions& options);

/// Writes I.shard for each part into the folder: --shard takes such a file, and enumerates nothing again.
void write_shards(const std::vector<matrix::Part>& parts, const std::filesystem::path& folder);

/// The options as a command line: what people read in reports, and what --resume reads back.
std::string to_text(const SelectOptions& options);
SelectOptions selection_from_text(const std::string& text);

/// "smoke", "smoke+seeds", "case.yaml", "full": a short name for the selection.
std::string short_name(const SelectOptions& options);

}  // namespace kvcts::cli
