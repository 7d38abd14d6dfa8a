#include "cli/run/rotation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "cli/exit.hpp"
#include "cli/report/text.hpp"
#include "cli/report/whole_file.hpp"
#include "cli/run/fold.hpp"
#include "matrix/ids.hpp"
#include "run/store/counts.hpp"
#include "run/store/lock.hpp"

namespace kvcts::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* format_name = "kvcts-rotation";
constexpr double share_planned = 0.8, unknown_scale = 2;

std::map<std::string, Rotation::Seen> read(const fs::path& file) {
  std::map<std::string, Rotation::Seen> out;
  if (!fs::exists(file)) return out;
  std::ifstream in(file);
  const nlohmann::json all = nlohmann::json::parse(in, nullptr, false);
  try {
    if (all.at("format") != format_name || all.at("version") != 1) throw std::runtime_error("");
    for (const auto& [id, one] : all.at("cases").items())
      out[id] = {one.at(0).get<std::string>(), one.at(1).get<std::int64_t>(), one.at(2).get<bool>(),
                 one.at(3).get<std::int64_t>()};
  } catch (const std::exception&) {
    throw UsageError(fmt::format(
        "{}: expected a file that kvcts run --rotate wrote, found something else; delete it to start over", file.string()));
  }
  return out;
}

/// Of all data: the digest's beginning tells two states apart.
std::string shortened(const std::string& digest) { return digest.substr(0, 16); }

/// Cases that share an execution.
struct Group {
  std::vector<std::size_t> items;
  double seconds{0};
  int why{4};  ///< 0 never run, 1 changed, 2 failed, 3 by age: the most pressing of its cases
  std::int64_t when{0};
  std::uint64_t draw{0};  ///< of those that are alike in both a sample is taken: what it costs tells what the others will
};

void press(Group& group, const Item& item, const Rotation::Seen* seen) {
  const int why = seen == nullptr ? 0 : seen->digest != shortened(item.planned.digest) ? 1 : seen->failed ? 2 : 3;
  const std::int64_t when = seen == nullptr ? 0 : seen->when_ms;
  if (std::tie(why, when) < std::tie(group.why, group.when) || group.why == 4) group.why = why, group.when = when;
}

/// How long cases really take, as a share of what is estimated.
double scale_of(const Plan& plan, const Rotation& rotation) {
  constexpr int enough = 20;
  int known = 0;
  double measured = 0, estimated = 0;
  for (const Item& item : plan.items()) {
    if (item.decided || rotation.find(item.planned.id) == nullptr) continue;
    ++known;
    measured += seconds_of(plan, item, &rotation);
    estimated += plan.selection().seconds(item.selected);
  }
  return known < enough || estimated <= 0 ? unknown_scale : measured / estimated;
}

}  // namespace

Rotation::Rotation(fs::path file) : file_(std::move(file)), seen_(read(file_)) {}

const Rotation::Seen* Rotation::find(const std::string& id) const {
  const auto found = seen_.find(id);
  return found == seen_.end() ? nullptr : &found->second;
}

std::map<std::string, std::int64_t> Rotation::times_ns() const {
  std::map<std::string, std::int64_t> out;
  for (const auto& [id, one] : seen_) out[id] = one.wall_ns;
  return out;
}

void Rotation::saw(const CaseResult& result, std::int64_t when_ms) {
  if (!store::was_executed(result.outcome)) return;
  new_[result.id] = {shortened(result.case_digest), when_ms, failed(result) || result.outcome == Outcome::error,
                     result.wall_ns};
}

void Rotation::save() const {
  if (new_.empty()) return;
  if (file_.has_parent_path()) fs::create_directories(file_.parent_path());
  const store::WriterLock lock(fs::path(file_).concat(".lock"));
  auto all = read(file_);
  for (const auto& [id, one] : new_) all[id] = one;
  nlohmann::json cases = nlohmann::json::object();
  for (const auto& [id, one] : all) cases[id] = {one.digest, one.when_ms, one.failed, one.wall_ns};
  report::WholeFile file(file_, "--rotate", "the run itself is safe");
  file.out() << nlohmann::json{{"format", format_name}, {"version", 1}, {"cases", std::move(cases)}}.dump() << '\n';
  file.keep();
}

double seconds_of(const Plan& plan, const Item& item, const Rotation* rotation) {
  if (item.decided) return 0;
  const Rotation::Seen* seen = rotation == nullptr ? nullptr : rotation->find(item.planned.id);
  // Beside its own time a case costs its executor a few milliseconds.
  return seen != nullptr ? static_cast<double>(seen->wall_ns) * 1e-9 + 0.005 : plan.selection().seconds(item.selected);
}

Tonight choose(const Plan& plan, const Rotation& rotation, double seconds, int executors, std::int64_t tries) {
  Tonight out;
  out.kept.assign(plan.items().size(), true);
  std::unordered_map<std::string_view, std::size_t> place;
  std::vector<Group> groups;
  const double scale = scale_of(plan, rotation);
  for (std::size_t i = 0; i < plan.items().size(); ++i) {
    const Item& item = plan.items()[i];
    if (item.decided) continue;
    out.kept[i] = false;
    const auto [at, fresh] = place.try_emplace(item.planned.execution, groups.size());
    if (fresh) groups.emplace_back().draw = matrix::id_hash(item.planned.execution);
    Group& group = groups[at->second];
    if (fresh)
      group.seconds = seconds_of(plan, item, &rotation) * static_cast<double>(tries) *
                      (rotation.find(item.planned.id) == nullptr ? scale : 1);
    group.items.push_back(i);
    press(group, item, rotation.find(item.planned.id));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return std::tie(a.why, a.when, a.draw) < std::tie(b.why, b.when, b.draw);
  });
  const double room = seconds > 0 ? share_planned * seconds * executors : HUGE_VAL;
  double all = 0, spent = 0, unseen = 0;
  bool full = false;
  for (const Group& group : groups) {
    all += group.seconds;
    full = full || (spent > 0 && spent + group.seconds > room);
    const auto cases = std::ssize(group.items);
    if (full) {
      out.left_out += cases;
      unseen += group.why <= 1 ? group.seconds : 0;
      continue;
    }
    spent += group.seconds;
    (group.why == 0 ? out.never : group.why == 1 ? out.changed : group.why == 2 ? out.failed : out.rest) += cases;
    for (const std::size_t item : group.items) out.kept[item] = true;
  }
  if (unseen > 0)
    out.nights = 1 + std::llround(std::ceil(unseen / room));
  else if (full)
    out.nights = std::llround(std::ceil(all / room));
  return out;
}

std::string Tonight::words() const {
  using report::thousands;
  const auto chosen = never + changed + failed + rest;
  std::string why;
  const auto add = [&](std::int64_t n, const char* word) {
    if (n > 0) why += fmt::format("{}{} {}", why.empty() ? ": " : ", ", thousands(n), word);
  };
  add(never, "never run");
  add(changed, "changed");
  add(failed, "that failed");
  add(rest, "by age");
  return fmt::format("tonight {} of {}{}; full coverage takes {}", thousands(chosen),
                     report::plural(chosen + left_out, "case"), why, report::plural(nights, "night"));
}

}  // namespace kvcts::cli
