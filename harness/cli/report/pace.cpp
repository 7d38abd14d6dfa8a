#include "cli/report/pace.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace kvcts::report {
namespace {

constexpr std::size_t least_cases = 10, most_found = 20;
constexpr double least_ratio = 1.2, least_ratio_of_all = 2, least_errors = 6;
// A busy machine slows many cases of any group, and of the others as well: of what became slower, nearly all did.
constexpr double least_share = 0.85, most_of_others = 0.25;
/// Where groups explain about as much, these axes are named first.
constexpr std::array<const char*, 5> telling{"engine", "connector", "op", "dtype", "producer"};

/// Spread of the values about their median, as a standard deviation where they are normal.
double spread(const std::vector<double>& values, double about) {
  std::vector<double> off;
  off.reserve(values.size());
  for (const double value : values) off.push_back(std::abs(value - about));
  return 1.4826 * median(std::move(off));
}

double distance(const std::vector<double>& values, double from) {
  double out = 0;
  for (const double value : values) out += std::abs(value - from);
  return out;
}

/// A group against all other cases.
struct Finding {
  double middle{0}, others{0};
  double gain{0};  ///< by how much the cases are nearer to the medians of the two than to one of all
  std::int64_t slow{0};
};

/// What is left to explain, by case.
class Left {
 public:
  explicit Left(std::vector<double> values) : values_(std::move(values)) { sort(); }

  double median_of_all() const { return median(values_); }

  std::optional<Finding> look(const std::vector<std::int32_t>& cases) const {
    std::vector<double> in, out;
    in.reserve(cases.size());
    for (const std::int32_t i : cases) in.push_back(values_[static_cast<std::size_t>(i)]);
    Finding f;
    f.middle = median(in);
    const double spread_in = spread(in, f.middle);
    // The others' median is this at least: most groups need no more.
    if (!beyond(f.middle - sorted_[(sorted_.size() - in.size()) / 2], spread_in, in.size())) return std::nullopt;
    out.reserve(values_.size() - in.size());
    for (std::size_t i = 0, next = 0; i < values_.size(); ++i) {
      if (next < cases.size() && static_cast<std::size_t>(cases[next]) == i)
        ++next;
      else
        out.push_back(values_[i]);
    }
    f.others = median(out);
    if (!beyond(f.middle - f.others, std::max(spread_in, spread(out, f.others)), in.size())) return std::nullopt;
    const auto share = [&, half = (f.others + f.middle) / 2](const std::vector<double>& of) {
      return static_cast<double>(std::count_if(of.begin(), of.end(), [&](double v) { return v > half; })) /
             static_cast<double>(of.size());
    };
    if (share(in) < least_share || share(out) > most_of_others) return std::nullopt;
    f.slow = std::lround(share(in) * static_cast<double>(in.size()));
    f.gain = of_all_ - distance(in, f.middle) - distance(out, f.others);
    return f;
  }

  void take(const std::vector<std::int32_t>& cases, double explained) {
    for (const std::int32_t i : cases) values_[static_cast<std::size_t>(i)] -= explained;
    sort();
  }

 private:
  static bool beyond(double difference, double spread, std::size_t cases) {
    return difference >= std::log(least_ratio) &&
           difference >= least_errors * 1.2533 * spread / std::sqrt(static_cast<double>(cases));
  }
  void sort() {
    sorted_ = values_;
    std::sort(sorted_.begin(), sorted_.end());
    of_all_ = distance(values_, median(values_));
  }
  std::vector<double> values_, sorted_;
  double of_all_{0};
};

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<int> Pace::values(const nlohmann::json& axes) {
  std::vector<int> out;
  const auto take = [&](const std::string& axis, const nlohmann::json& value) {
    const auto [at, fresh] = number_.try_emplace(axis + " " + value.dump(), static_cast<int>(axis_and_value_.size()));
    if (fresh) axis_and_value_.emplace_back(axis, value);
    out.push_back(at->second);
  };
  for (const char* axis : telling)
    if (const auto found = axes.find(axis); found != axes.end()) take(axis, *found);
  for (const auto& [axis, value] : axes.items())
    if (std::none_of(telling.begin(), telling.end(), [&](const char* one) { return axis == one; })) take(axis, value);
  return out;
}

void Pace::add(const Times& before, const Times& after, std::vector<int> values) {
  own_before_ += before.own_ns, own_after_ += after.own_ns;
  ratios_.push_back(std::log(static_cast<double>(after.ns) / static_cast<double>(before.ns)));
  values_.push_back(std::move(values));
}

double Pace::of_suite() const {
  return own_before_ > 0 ? static_cast<double>(own_after_) / static_cast<double>(own_before_) : 1;
}

double Pace::of_all() const { return ratios_.empty() ? 1 : std::exp(median(ratios_)); }

std::vector<Pace::Group> Pace::groups() const {
  std::map<std::pair<int, int>, std::vector<std::int32_t>> sets;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const auto number = static_cast<std::int32_t>(i);
    for (std::size_t a = 0; a < values_[i].size(); ++a) {
      sets[{values_[i][a], -1}].push_back(number);
      for (std::size_t b = a + 1; b < values_[i].size(); ++b) sets[{values_[i][a], values_[i][b]}].push_back(number);
    }
  }
  std::vector<Group> out;
  for (const bool pairs : {false, true}) {
    for (const auto& [values, cases] : sets) {
      const std::size_t whole = values_.size();
      if ((values.second >= 0) != pairs || cases.size() < least_cases || cases.size() + least_cases > whole) continue;
      out.push_back({pairs ? std::vector{values.first, values.second} : std::vector{values.first}, cases});
    }
  }
  return out;
}

std::vector<Slower> Pace::slower() const {
  std::vector<Slower> out;
  if (ratios_.size() < least_cases) return out;
  Left left(ratios_);
  const std::vector<Group> all = groups();
  while (out.size() < most_found) {
    const Group* best = nullptr;
    Finding found;
    for (const Group& group : all) {
      const auto f = left.look(group.cases);
      // The first of equals: one value before two, each in the order of what tells most.
      if (f && f->gain > (best ? 1.02 * found.gain : 1e-9)) best = &group, found = *f;
    }
    if (!best) break;
    left.take(best->cases, found.middle - found.others);
    Slower slower{"", {}, std::ssize(best->cases), found.slow, std::exp(found.middle), std::exp(found.others)};
    for (const int number : best->values) {
      const auto& [axis, value] = slower.values.emplace_back(axis_and_value_[static_cast<std::size_t>(number)]);
      slower.group +=
          (slower.group.empty() ? "" : ", ") + axis + " " + (value.is_string() ? value.get<std::string>() : value.dump());
    }
    out.push_back(std::move(slower));
  }
  if (const double rest = std::exp(left.median_of_all()); rest >= least_ratio_of_all * std::max(1.0, of_suite()))
    out.push_back({"all cases", {}, std::ssize(ratios_), std::ssize(ratios_), rest, rest});
  return out;
}

}  // namespace kvcts::report
