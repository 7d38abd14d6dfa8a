// Registered versus used memory, over several registrations: a limit that they all hit, one side left out, bases exchanged.
#include <algorithm>
#include <map>
#include <set>

#include "diagnose/hypothesis_search.hpp"

namespace kvcts::scenario {

namespace {

std::vector<std::size_t> registrations(const HypothesisSearch& search) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < search.scenario().steps.size(); ++i) {
    if (search.action(i).op == Operation::register_range) out.push_back(i);
  }
  return out;
}

// The bytes that a registration covers; 0: several allocations.
std::int64_t length_of(const HypothesisSearch& search, const Action& a) {
  if (a.bytes > 0) return a.bytes;
  std::int64_t bytes = 0;
  int pieces = 0;
  for (const Buffer& b : search.evidence().space.buffers()) {
    if (b.memory == a.memory) bytes = b.bytes - a.to_offset, ++pieces;
  }
  return pieces == 1 ? bytes : 0;
}

// As in the registrations that took place, for each intended one.
void generate_as_seen(HypothesisSearch& search, const std::vector<std::size_t>& steps) {
  CandidateSteps bodies = search.bodies();
  std::string missing, shorter;
  for (const std::size_t i : steps) {
    const Action& a = search.action(i);
    std::vector<Action> seen;
    for (const nlohmann::json& event : search.evidence().observation.events) {
      if (event.value("op", "") != "register" || event.value("step", "") != search.scenario().steps[i].name) continue;
      for (const Buffer& b : search.evidence().space.buffers()) {
        if (b.ordinal != event["backing"]) continue;
        Action body = a;
        body.memory = b.name;
        body.to_offset = event["begin"].get<std::int64_t>(), body.bytes = event["bytes"].get<std::int64_t>();
        seen.push_back(body);
      }
    }
    bodies[i] = seen;
    if (seen.empty())
      missing += (missing.empty() ? "" : ", ") + a.memory;
    else if (seen.size() != 1 || length_of(search, a) != seen[0].bytes)
      shorter += (shorter.empty() ? "" : ", ") + a.memory;
  }
  const std::string words =
      missing.empty() ? "other ranges of " + shorter + " were registered"
                      : missing + " was not registered" + (shorter.empty() ? "" : ", other ranges of " + shorter + " were");
  search.attempt(FaultClass::registration_missing_region, words, std::move(bodies));
}

// A limit of the device that cuts every registration.
void generate_limits(HypothesisSearch& search, const std::vector<std::size_t>& steps) {
  std::set<std::int64_t> limits;
  for (const nlohmann::json& event : search.evidence().observation.events) {
    if (event.value("op", "") == "register") limits.insert(event["bytes"].get<std::int64_t>());
    if (event.contains("violation")) limits.insert(event["offset"].get<std::int64_t>());
  }
  for (const std::int64_t limit : limits) {
    if (limit <= 0) continue;
    CandidateSteps bodies = search.bodies();
    std::size_t cut = 0;
    for (const std::size_t i : steps) {
      if (length_of(search, search.action(i)) <= limit) continue;
      for (Action& a : bodies[i]) a.bytes = limit;
      ++cut;
    }
    if (cut > 1)
      search.attempt(FaultClass::registration_missing_region,
                     "no registration is longer than " + std::to_string(limit) + " bytes", std::move(bodies));
  }
}

// Registrations taken for one another: each begins where another one does.
void generate_exchanged(HypothesisSearch& search, const std::vector<std::size_t>& steps) {
  std::map<std::string, std::vector<std::size_t>> by_memory;
  for (const std::size_t i : steps) by_memory[search.action(i).memory].push_back(i);
  for (const auto& [memory, of] : by_memory) {
    if (of.size() < 2 || of.size() > 64) continue;
    const auto attempt = [&](const std::string& words, const std::vector<std::size_t>& order) {
      CandidateSteps bodies = search.bodies();
      for (std::size_t k = 0; k < of.size(); ++k) {
        for (Action& a : bodies[of[k]]) a.maps = search.action(of[order[k]]).to_offset;
      }
      search.attempt(FaultClass::registration_missing_region, words + " of " + memory, std::move(bodies));
    };
    std::vector<std::size_t> order(of.size());
    const auto plain = [&] {
      for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
    };
    plain(), std::ranges::reverse(order);
    attempt("registrations in the reverse order", order);
    for (std::size_t by = 1; by < of.size() && by < 8; ++by) {
      plain(), std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(by), order.end());
      attempt("registrations shifted by " + std::to_string(by), order);
    }
    for (std::size_t a = 0; a < of.size() && of.size() <= 16; ++a) {
      for (std::size_t b = a + 1; b < of.size(); ++b) {
        plain(), std::swap(order[a], order[b]);
        attempt("registrations " + std::to_string(a) + " and " + std::to_string(b) + " exchanged", order);
      }
    }
    std::fill(order.begin(), order.end(), 0);
    attempt("the base of the first registration for all", order);
  }
}

}  // namespace

void generate_registered(HypothesisSearch& search) {
  const std::vector<std::size_t> steps = registrations(search);
  if (steps.empty()) return;
  generate_as_seen(search, steps);
  generate_limits(search, steps);
  generate_exchanged(search, steps);
}

}  // namespace kvcts::scenario
