#include "cli/report/write.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "cli/report/compatibility.hpp"
#include "cli/report/sink.hpp"

namespace kvcts::report {
namespace fs = std::filesystem;
namespace {

// Written beside its place and renamed when complete: a reader never sees half a file, a failure leaves the old one.
class WholeFile {
 public:
  explicit WholeFile(fs::path path)
      : path_(std::move(path)), part_(path_.string() + fmt::format(".part{}", ::getpid())), out_(part_, std::ios::binary) {
    if (!out_) throw failed();
  }
  ~WholeFile() {
    std::error_code ignored;
    if (!done_) fs::remove(part_, ignored);
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  std::ostream& out() { return out_; }
  fs::path keep() {
    out_.close();
    if (!out_) throw failed();
    std::error_code ec;
    fs::rename(part_, path_, ec);
    if (ec) throw std::runtime_error(fmt::format("report {}: cannot be written ({})", path_.string(), ec.message()));
    done_ = true;
    return path_;
  }

 private:
  std::runtime_error failed() const {
    return std::runtime_error(
        fmt::format("report {}: cannot be written ({}); the run itself is safe: free space and use 'kvcts report'",
                    path_.string(), errno != 0 ? std::strerror(errno) : "unknown reason"));
  }
  fs::path path_, part_;
  std::ofstream out_;
  bool done_{false};
};

void make_directory(const fs::path& directory) {
  std::error_code ec;
  fs::create_directories(directory, ec);
  if (ec) throw std::runtime_error(fmt::format("report directory {}: cannot be made ({})", directory.string(), ec.message()));
}

}  // namespace

Files write_reports(const store::RunReader& reader, const RunView& view, const fs::path& directory, matrix::Space* space, const Comparison* since) {
  make_directory(directory);
  WholeFile json(directory / "results.json"), junit(directory / "junit.xml"), html(directory / "index.html");
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(json_report(json.out(), view));
  sinks.push_back(junit_report(junit.out(), view));
  sinks.push_back(html_report(html.out(), view, space, since));
  reader.for_each([&](const store::Row& row) {
    for (const auto& sink : sinks) sink->row(row);
  });
  for (const auto& sink : sinks) sink->end();
  return {json.keep(), junit.keep(), html.keep()};
}

CompatibilityFiles write_compatibility(const store::RunReader& reader, const fs::path& directory) {
  make_directory(directory);
  const Compatibility table = compatibility(reader);
  WholeFile markdown(directory / "compatibility.md"), html(directory / "compatibility.html");
  write_markdown(table, markdown.out());
  write_html(table, html.out());
  return {markdown.keep(), html.keep()};
}

void write_json(const store::RunReader& reader, const RunView& view, std::ostream& out) {
  const auto sink = json_report(out, view);
  reader.for_each([&](const store::Row& row) { sink->row(row); });
  sink->end();
}

}  // namespace kvcts::report
