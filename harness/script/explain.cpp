#include "script/explain.hpp"

#include <algorithm>

#include "script/workshop.hpp"

namespace kvcts::script {

namespace {

// What code compares, and so says when it stops: the quantity names the class. The words of `about`, see cases/README.md.
std::string class_of_quantity(const std::string& about) {
  static const std::map<std::string, std::string> classes{
      {"dims", "rank-mismatch"},          {"groups", "rank-mismatch"},       {"heads", "head-shard-mapping"},
      {"layers", "layer-missing"},        {"block_size", "wrong-block-size"}, {"bytes", "truncated"},
      {"tokens", "truncated"},            {"stride", "wrong-stride"},        {"axes", "axis-permuted"},
      {"kv", "kv-split-vs-interleaved"},  {"alignment", "misaligned"},       {"registration", "registration-missing-region"},
      {"dtype", "dtype-reinterpreted"},   {"capability", "capability-mismatch"}, {"blocks", "wrong-block-id"},
      {"key", "identity-collision"},      {"scales", "scale-lost"},          {"size", "int32-overflow"},
      {"width", "packed-dim-misread"}};
  const auto found = classes.find(about);
  return found == classes.end() ? "" : found->second;
}

// Answers that need no search.
Explanation from_ending(const Evidence& e) {
  Explanation out;
  const Ending& end = e.observation.ending;
  if (end.kind == "completed" || end.kind == e.truth.ending.kind) return out;
  for (const nlohmann::json& event : e.observation.events) {
    if (event.contains("violation")) return out;  // an address: hypotheses say whose
  }
  out.words = end.text;
  out.exact = true;
  out.share = 1;
  if (end.kind == "hung") {
    out.fault_class = end.in == "kernel" ? "hang-kernel" : "hang-transfer";
    return out;
  }
  out.fault_class = class_of_quantity(end.about);
  for (const nlohmann::json& event : e.observation.events) {
    if (event.value("step", "") == end.step && event.contains("needs") && !event["needs"].empty()) out.fault_class = "capability-mismatch";
  }
  if (out.fault_class.empty()) out.fault_class = "crash";
  return out;
}

}  // namespace

Script without_faults(const Script& script) {
  Script out = script;
  for (Step& step : out.steps) {
    step.as_intended = true;
    step.actual.clear();
  }
  return out;
}

Explanation explain(Evidence evidence) {
  Explanation out = from_ending(evidence);
  if (!out.fault_class.empty()) return out;

  Workshop workshop(evidence);
  const auto finish = [&] {
    const Hypothesis& first = workshop.found() ? workshop.exact().front() : *workshop.second();
    out.fault_class = first.fault_class;
    out.words = first.words;
    out.exact = true;
    out.share = 1;
    for (const Hypothesis& other : workshop.exact()) {
      const std::string said = other.fault_class + ": " + other.words;
      if (other.words == first.words || out.others.size() == 8) continue;
      if (std::find(out.others.begin(), out.others.end(), said) == out.others.end()) out.others.push_back(said);
    }
    out.tried = workshop.tried();
    return out;
  };
  for (const Family& family : families()) {
    family.propose(workshop);
    if (workshop.found()) return finish();
    if (workshop.spent()) break;
  }
  if (workshop.second()) return finish();
  // Two causes at once: the best single one, and one more.
  if (workshop.best() && workshop.best_share() > 0.05) {
    const Hypothesis first = *workshop.best();
    workshop.allow(4000);
    workshop.build_on(first);
    for (const Family& family : families()) {
      family.propose(workshop);
      if (workshop.found()) return finish();
      if (workshop.spent()) break;
    }
  }
  out.tried = workshop.tried();
  if (workshop.best()) {
    out.words = workshop.best()->words;
    out.share = workshop.best_share();
    out.others.push_back(workshop.best()->fault_class + ": " + workshop.best()->words);
  }
  return out;
}

}  // namespace kvcts::script
