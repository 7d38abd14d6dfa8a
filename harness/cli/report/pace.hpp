// Which cases take longer than they did: the same cases in two runs, by the axis values that they share.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace kvcts::report {

/// Of at least one value.
double median(std::vector<double> values);

/// Cases that share one or two axis values, and take longer than they did while the others do not.
struct Slower {
  std::string group;                                           ///< "engine acme, op read"; "all cases"
  std::vector<std::pair<std::string, nlohmann::json>> values;  ///< {"engine", "acme"}, {"op", "read"}
  std::int64_t cases{0};                                       ///< that passed in both runs
  std::int64_t slow{0};  ///< of them, those that are slower by more than half of the whole
  double ratio{1};       ///< median of their ratios
  double others{1};      ///< of all other cases
};

/// Of a case that passed.
struct Times {
  std::int64_t ns{0};      ///< 0: it has none of its own
  std::int64_t own_ns{0};  ///< of them, the suite's own work: to fill and to compare memory
};

/// Times of cases in two runs. Nothing is said of one case: its clock shows nothing.
class Pace {
 public:
  /// Numbers of a case's axis values, {"engine": "acme", ...}.
  std::vector<int> values(const nlohmann::json& axes);
  /// A case that passed in both, with its values.
  void add(const Times& before, const Times& after, std::vector<int> values);
  /// Median ratio of all cases.
  double of_all() const;
  /// Ratio of what the suite's own work took: of the machine, not of what is tested.
  double of_suite() const;
  /// The fewest groups that explain the slow-downs: first the one whose cases, and the others, are nearest to medians of
  /// their own, then the next, of what is left. A group has at least 10 cases; its median is a fifth beyond that of the
  /// others, and by six standard errors (of a median, from the median absolute deviation); beyond half of that are 85 % of
  /// the group and no more than 25 % of the others. "all cases": what is left is twice as slow as the suite's own work.
  std::vector<Slower> slower() const;

 private:
  struct Group {
    std::vector<int> values;  ///< one or two
    std::vector<std::int32_t> cases;
  };
  std::vector<Group> groups() const;

  std::vector<double> ratios_;  ///< logarithms
  std::int64_t own_before_{0}, own_after_{0};
  std::vector<std::vector<int>> values_;
  std::vector<std::pair<std::string, nlohmann::json>> axis_and_value_;  ///< by number
  std::map<std::string, int> number_;
};

}  // namespace kvcts::report
