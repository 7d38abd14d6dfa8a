#include "cli/report/write.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "cli/report/compatibility.hpp"
#include "cli/report/sink.hpp"
#include "cli/report/whole_file.hpp"

namespace kvcts::report {
namespace fs = std::filesystem;
namespace {

constexpr const char *role = "report", *advice = "the run itself is safe: free space and use 'kvcts report'";

void make_directory(const fs::path& directory) {
  std::error_code ec;
  fs::create_directories(directory, ec);
  if (ec)
    throw std::runtime_error(fmt::format("report directory {}: cannot be made ({})", directory.string(), ec.message()));
}

}  // namespace

Files write_reports(const store::RunReader& reader, const RunView& view, const fs::path& directory, matrix::Space* space,
                    const Around& around) {
  make_directory(directory);
  WholeFile json(directory / "results.json", role, advice), junit(directory / "junit.xml", role, advice),
      html(directory / "index.html", role, advice);
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(json_report(json.out(), view));
  sinks.push_back(junit_report(junit.out(), view));
  sinks.push_back(html_report(html.out(), view, space, around));
  reader.for_each([&](const store::Row& row) {
    for (const auto& sink : sinks) sink->row(row);
  });
  for (const auto& sink : sinks) sink->end();
  return {json.keep(), junit.keep(), html.keep()};
}

fs::path write_compatibility(const store::RunReader& reader, const fs::path& directory) {
  make_directory(directory);
  const Compatibility table = compatibility(reader);
  WholeFile markdown(directory / "compatibility.md", role, advice);
  write_markdown(table, markdown.out());
  return markdown.keep();
}

void write_json(const store::RunReader& reader, const RunView& view, std::ostream& out) {
  const auto sink = json_report(out, view);
  reader.for_each([&](const store::Row& row) { sink->row(row); });
  sink->end();
}

}  // namespace kvcts::report
