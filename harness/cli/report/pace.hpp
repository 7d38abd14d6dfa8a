// Which cases take longer than they did: the same cases in two runs, by the axis values that they share.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcts::report {

/// Cases that share one or two axis values, and take longer than they did while the others do not.
struct Slower {
  std::string group;      ///< "engine acme, op read"; "all cases"
  std::int64_t cases{0};  ///< that passed in both runs
  std::int64_t slow{0};   ///< of them, those that are slower by more than half of the whole
  double ratio{1};        ///< median of their ratios
  double others{1};       ///< of all other cases
};

/// Times of cases in two runs. Nothing is said of one case: its clock shows nothing.
class Pace {
 public:
  /// Numbers of a case's axis values, {"engine": "acme", ...}.
  std::vector<int> values(const nlohmann::json& axes);
  /// A case that passed in both, with its values; nanoseconds.
  void add(std::int64_t before_ns, std::int64_t after_ns, std::vector<int> values);
  /// Median ratio of all cases.
  double of_all() const;
  /// The fewest groups that explain the slow-downs: first the one whose cases, and the others, are nearest to medians of
  /// their own, then the next, of what is left. A group has at least 10 cases; its median is a fifth beyond that of the
  /// others, and by six standard errors (of a median, from the median absolute deviation). "all cases": the rest is half
  /// as slow again.
  std::vector<Slower> slower() const;

 private:
  struct Group {
    std::vector<int> values;  ///< one or two
    std::vector<std::int32_t> cases;
  };
  std::vector<Group> groups() const;

  std::vector<double> ratios_;  ///< logarithms
  std::vector<std::vector<int>> values_;
  std::vector<std::string> words_;  ///< of a value: "engine acme"
  std::map<std::string, int> number_;
};

}  // namespace kvcts::report
