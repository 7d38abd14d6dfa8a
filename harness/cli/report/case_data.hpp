// The cases of a run as the page's script reads them: one row per case in columns, and every detail of those that a reader
// will open. Size is bounded: passing cases are dropped first.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/report/view.hpp"
#include "matrix/space.hpp"

namespace kvcts::report {

class CaseData {
 public:
  /// `space` may be null: then ids of cases without a result tell no axis values.
  explicit CaseData(matrix::Space* space) : space_(space) {}

  /// Rows in the order of the plan. `cause` is the anchor of its group on the page, "" = none.
  void add(const store::Row& row, Section section, const std::string& cause);

  /// {"n", "ids", "outcome", "verdict", "evidence", "ending", "class", "cause", "section", "ran", "us", "axes": {name:
  /// column}, "details": {row: case}}
  nlohmann::json json() const;
  std::int64_t left_out() const { return left_out_; }

 private:
  struct Case {
    std::string id, cause, ending, fault_class;
    Outcome outcome;
    std::string_view verdict, evidence;
    Section section;
    bool ran;
    std::int64_t us;
    std::vector<std::pair<std::string, std::string>> axes;
    std::string detail;  ///< JSON text, "" = none kept
  };
  nlohmann::json axes_of(const store::Row& row) const;

  matrix::Space* space_;
  std::vector<Case> cases_;
  std::string last_id_;
  std::unordered_map<std::string, int> details_of_cause_;
  // Bytes left: rows of cases that are not simply as expected, other rows, details of the first cases of each cause, other
  // details.
  std::size_t notable_room_{1'200'000}, plain_room_{1'500'000}, detail_room_{900'000}, more_room_{500'000};
  std::int64_t left_out_{0};
};

/// JSON for a <script> element: nothing in it ends the element.
std::string script_safe(const nlohmann::json& value);

}  // namespace kvcts::report
