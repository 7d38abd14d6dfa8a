// The files of a run.
#pragma once

#include <filesystem>

#include "cli/report/nights.hpp"
#include "cli/report/view.hpp"
#include "matrix/space.hpp"

namespace kvcts::report {

struct Files {
  std::filesystem::path json, junit, html;
};

/// Writes results.json, junit.xml and index.html of a run (finished, killed or still at work) into `directory`, all in one
/// pass over the store. Each file appears whole or not at all. `space` (may be null): the catalogue's values, for the page's
/// filter. Throws store::Error when the store is damaged, std::runtime_error when a file cannot be written.
Files write_reports(const store::RunReader& reader, const RunView& view, const std::filesystem::path& directory,
                    matrix::Space* space = nullptr, const Around& around = {});

/// compatibility.md of a run (compatibility.hpp), in the same way.
std::filesystem::path write_compatibility(const store::RunReader& reader, const std::filesystem::path& directory);

/// One document on its own, e.g. `kvcts report --json` to standard output.
void write_json(const store::RunReader& reader, const RunView& view, std::ostream& out);

}  // namespace kvcts::report
