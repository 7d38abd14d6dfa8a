#include "tools/rules/claims.hpp"

#include <algorithm>
#include <array>

#include "case/catalogue/nearest.hpp"
#include "tools/rules/actor.hpp"

namespace kvcts::rules {

using catalogue::RuleStep;

namespace {

constexpr const char* always = "always";
constexpr std::uint64_t region_bytes = 1 << 20;  ///< of the prelude

struct Mask {
  const char* claim;
  std::vector<const char*> bits;  ///< by place
};
const std::array<Mask, 3> masks{{{"kinds", {"memory", "file", "object"}},
                                 {"memories", {"host", "cuda", "hip", "other"}},
                                 {"reach", {"process", "host", "network"}}}};

std::string text_of(std::uint64_t value) { return value == UINT64_MAX ? "unlimited" : std::to_string(value); }

/// Why a test does not apply to this engine; "" if it does.
std::string unaskable(const RuleEntry& test, const ClaimTexts& claims, const EngineEntry& engine) {
  for (const auto& [claim, value] : test.when) {
    if (claims.at(claim) != value) return "asked where " + claim + " is " + value + ", here it is " + claims.at(claim);
  }
  for (const RuleStep& step : test.steps) {
    if (engine.processes == 1 && (step.state == "stopped" || step.state == "killed"))
      return "applies only to a peer in another process";
    for (const auto& copy : step.copies) {
      if (copy.limit.empty()) continue;
      const std::string& limit = claims.at(copy.limit);
      if (limit == "unlimited" || (copy.limit == "alignment" && limit == "1")) return "no limit is claimed";
      const std::uint64_t value = std::stoull(limit);
      const std::uint64_t most = copy.limit == "max_descriptors" ? 1'000'000
                                 : copy.limit == "alignment"     ? region_bytes / 4
                                                                 : region_bytes;
      if (value + (copy.over ? 1 : 0) > most)
        return "a limit of " + limit + " exceeds the " + std::to_string(region_bytes) + " bytes of this test";
    }
  }
  return "";
}

}  // namespace

std::string_view name(ClaimSeen::Verdict verdict) {
  constexpr std::array<std::string_view, 3> names{"holds", "BROKEN", "not asked"};
  return names[static_cast<std::size_t>(verdict)];
}

std::vector<std::string> claim_names() {
  std::vector<std::string> names;
  for (const auto& [claim, value] : transport::claim_values({})) names.push_back(claim);
  return names;
}

ClaimTexts claim_texts(const transport::Claims& claims) {
  ClaimTexts texts;
  for (const auto& [claim, value] : transport::claim_values(claims)) {
    texts[claim] = text_of(value);
    for (const Mask& mask : masks) {
      if (claim != mask.claim) continue;
      for (std::size_t bit = 0; bit < mask.bits.size(); ++bit)
        texts[claim + "." + mask.bits[bit]] = (value >> bit & 1) != 0 ? "1" : "0";
    }
  }
  return texts;
}

std::vector<RuleEntry> read_claims(const std::filesystem::path& cases) {
  std::vector<RuleEntry> tests = read_entries(cases / "claims", catalogue::claim_table());
  std::vector<std::string> known{always};
  for (const auto& [claim, value] : claim_texts({})) known.push_back(claim);
  for (const RuleEntry& test : tests) {
    std::vector<std::string> named{test.claim};
    for (const auto& [claim, value] : test.when) named.push_back(claim);
    for (const std::string& claim : named) {
      if (std::find(known.begin(), known.end(), claim) != known.end()) continue;
      throw catalogue::Error(test.file + ": test " + test.id + ": expected a claim of kvcts_claims, found '" + claim + "'" +
                             catalogue::suggestion(claim, known));
    }
  }
  return tests;
}

ClaimSeen judge(const RuleEntry& test, const ClaimTexts& claims, const EngineEntry& engine, const std::string& memory) {
  ClaimSeen out;
  if (test.claim != always) out.claimed = claims.at(test.claim);
  if (out.words = unaskable(test, claims, engine); !out.words.empty()) return out;
  auto allowed = test.holds.find(out.claimed);
  if (allowed == test.holds.end()) allowed = test.holds.find(always);
  if (allowed == test.holds.end()) {
    out.words = "says nothing that this test could refute";
    return out;
  }
  out.allowed = allowed->second;
  const RuleObservation observed = run_rule(test, engine, memory);
  out.seen = observed.text, out.words = observed.words, out.ms = observed.ms;
  const bool good = std::any_of(out.allowed.begin(), out.allowed.end(),
                                [&](const std::string& one) { return one == "*" || one == out.seen; });
  out.verdict = good ? ClaimSeen::Verdict::holds : ClaimSeen::Verdict::broken;
  return out;
}

}  // namespace kvcts::rules
