// A report in the making: it sees the view, then every row once, then the end. All reports are written in one pass over the
// store.
#pragma once

#include <memory>
#include <ostream>

#include "cli/report/nights.hpp"
#include "cli/report/view.hpp"
#include "matrix/space.hpp"

namespace kvcts::report {

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void row(const store::Row& row) = 0;
  virtual void end() = 0;
};

/// results.json: everything, as data. Its schema is reports/schema/results.schema.json.
std::unique_ptr<Sink> json_report(std::ostream& out, const RunView& view);
/// junit.xml for CI systems: failures, errors and skips (with reasons) as JUnit knows them.
std::unique_ptr<Sink> junit_report(std::ostream& out, const RunView& view);
/// index.html: one self-contained page for people. With the catalogue's values its filter knows the facts behind them
/// (dtype.family); without (null) only the axes.
std::unique_ptr<Sink> html_report(std::ostream& out, const RunView& view, matrix::Space* space, const Around& around);

}  // namespace kvcts::report
