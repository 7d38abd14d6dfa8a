// Each generator is needed: some case is named rightly with it, and not without it. Likewise for packing mistakes as changes
// of a layout: a case's misreading is one of the variants of its memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve_scenario.hpp"
#include "diagnose/precedence.hpp"
#include "diagnose/run.hpp"
#include "scene/address_space.hpp"
#include "scene/faults/variants.hpp"
#include "testing/checkout.hpp"

namespace kvcts::scenario {
namespace {

const std::filesystem::path cases = std::filesystem::path(checkout::source()) / "cases";
// Cases for tests only; faults_test runs them, too.
constexpr const char* ids = "../harness/diagnose/testing/cases/ids.yaml";
constexpr const char* steps = "../harness/diagnose/testing/cases/steps.yaml";

Scenario scenario_of(const CaseSpec& spec, const catalogue::Catalogue& catalogue) {
  return resolve_scenario(spec, catalogue);
}

bool named(const Scenario& scenario, std::uint64_t seed, FaultClass fault_class) {
  const Diagnosis why = run_scenario(scenario, seed).diagnosis;
  return why.exact && why.fault_class == fault_class;
}

CaseSpec case_of(const std::string& file, const std::string& id, const catalogue::Catalogue& catalogue) {
  for (const CaseSpec& spec : catalogue::read_case_file(cases / file, "", &catalogue)) {
    if (spec.id == id) return spec;
  }
  throw std::runtime_error("no case " + id + " in " + file);
}

struct Need {
  const char* generator;
  const char* file;
  const char* id;
};

void PrintTo(const Need& need, std::ostream* out) { *out << need.generator << " by " << need.id; }

class Generators : public testing::TestWithParam<Need> {};

TEST_P(Generators, EachExplainsACaseThatNoOtherDoes) {
  const catalogue::Catalogue catalogue(cases);
  const CaseSpec spec = case_of(GetParam().file, GetParam().id, catalogue);
  const Scenario scenario = scenario_of(spec, catalogue);
  const FaultClass expected = spec.expected.at(0).fault_class;
  EXPECT_TRUE(named(scenario, spec.seed, expected));
  const WithoutGenerator off(GetParam().generator);
  EXPECT_FALSE(named(scenario, spec.seed, expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, Generators,
    testing::Values(Need{"several registrations", "field/memory.yaml", "field/registered-in-another-order"},
                    Need{"ids of another unit or time", "field/tables.yaml", "field/wrong-block-zeroed"},
                    Need{"a part of a step", "field/ranks.yaml", "field/replica-ranks-not-served"},
                    Need{"a list of copies", "field/copies.yaml", "field/coalesced-over-padding"},
                    Need{"the same mistake in several steps", "field/ranks.yaml", "field/store-and-load-both-reverse-heads"},
                    Need{"several at another time", "field/times.yaml", "field/layers-sent-before-they-are-computed"},
                    Need{"other ids", "field/tables.yaml", "field/ids-in-one-byte"},
                    Need{"where it went", "field/layouts.yaml", "field/stage-with-the-offset-of-another"},
                    Need{"another time", "museum/sglang-2.yaml", "museum/m121-sglang-33970"},
                    Need{"content where no step puts it", "field/strays.yaml", "field/one-block-more-than-it-has"},
                    Need{"a wrong layout", "field/scales.yaml", "field/scales-sought-behind-the-rope-half"},
                    Need{"part by part", "field/memory.yaml", "field/layer-and-v-region-paired"},
                    Need{"a piece of a step", "field/layouts.yaml", "field/second-layer-with-the-stride-of-one"},
                    Need{"a belief in some steps", "museum/lmcache-1.yaml", "museum/m019-lmcache-2495"},
                    Need{"ids beyond the pool", ids, "ids/ids-beyond-the-pool"},
                    Need{"an id beside the pool", ids, "ids/id-minus-one"},
                    Need{"several keys", steps, "steps/first-of-three-keys"}));

// Slower; the generator has a quick one above.
INSTANTIATE_TEST_SUITE_P(Nightly, Generators,
                         testing::Values(Need{"the same mistake in several steps", "field/ranks.yaml",
                                              "field/batch-with-heads-of-the-other-rank"}));

// One of the same class is not said, but kept.
TEST(Generators, ErasedLateIsACompetingCause) {
  const catalogue::Catalogue catalogue(cases);
  const CaseSpec spec = case_of(steps, "steps/erased-late", catalogue);
  const Diagnosis late = run_scenario(scenario_of(spec, catalogue), spec.seed).diagnosis;
  EXPECT_TRUE(std::ranges::any_of(late.causes, [](const Cause& c) {
    return to_string(c) == "read-before-ready: 'grow' happened only after 'put'";
  })) << late.text;
  EXPECT_FALSE(late.sure);
}

TEST(Generators, AscendByCost) {
  const std::vector<GeneratorCost> costs = generator_costs();
  EXPECT_TRUE(std::ranges::is_sorted(costs, {}, &GeneratorCost::cost));
  EXPECT_GT(costs.front().cost, 0);
}

using Places = std::function<std::optional<layout::Location>(layout::Component, const layout::Coord&)>;

// Every element of the cache lies where `places` has it.
bool lies(const layout::Cache& cache, const Places& addresses) {
  for (const layout::Plane& plane : cache.planes) {
    const layout::Box box = layout::domain(plane);
    for (layout::Coord at = box.lo;;) {
      if (layout::locate(cache, plane.component, at) != addresses(plane.component, at)) return false;
      std::size_t axis = 0;
      while (axis < layout::all_axes.size() && ++at[layout::all_axes[axis]] == box.hi[layout::all_axes[axis]])
        at[layout::all_axes[axis]] = box.lo[layout::all_axes[axis]], ++axis;
      if (axis == layout::all_axes.size()) break;
    }
  }
  return true;
}

// What the one mistaken step of a case uses instead of what it should.
const View& mistaken(const Scenario& scenario) {
  for (const Step& step : scenario.steps) {
    if (step.as_intended) continue;
    const Action &meant = step.intended, &done = step.actual.at(0);
    return done.to == meant.to ? done.from.at(0) : done.to.at(0);
  }
  throw std::runtime_error("no step is mistaken");
}

struct Packing {
  const char* id;
  const char* file;
  std::vector<Variant> (*variants)(const layout::Cache&);
};

TEST(Variants, PackingLiesWhereTheMistakeLooks) {
  const catalogue::Catalogue catalogue(cases);
  for (const Packing& p : {Packing{"field/packed-as-bytes", "field/codes.yaml", repitched},
                           Packing{"field/row-without-its-scale", "field/scales.yaml", repitched},
                           Packing{"field/footer-scales-read-inline", "field/scales.yaml", relaid},
                           Packing{"field/v-scales-linear-into-interleaved", "field/scales.yaml", swizzled}}) {
    const Scenario scenario = scenario_of(case_of(p.file, p.id, catalogue), catalogue);
    const layout::Cache wrong = cache_of(mistaken(scenario));
    const auto variants = p.variants(cache_of(scenario.memories.at("C").view));
    EXPECT_TRUE(std::any_of(variants.begin(), variants.end(), [&](const Variant& variant) {
      return lies(variant.cache, [&](layout::Component component, const layout::Coord& at) {
        return layout::locate(wrong, component, at);
      });
    })) << p.id;
  }
}

TEST(Variants, NibbleOrderExchangesTheTwoCodesOfAByte) {
  const catalogue::Catalogue catalogue(cases);
  const layout::Cache declared = cache_of(
      scenario_of(case_of("field/codes.yaml", "field/nibbles-exchanged", catalogue), catalogue).memories.at("C").view);
  const auto variants = recoded(declared);
  EXPECT_TRUE(std::any_of(variants.begin(), variants.end(), [&](const Variant& variant) {
    return lies(variant.cache, [&](layout::Component component, layout::Coord at) {
      if (component == layout::Component::data) at[layout::Axis::channel] ^= 1;
      return layout::locate(declared, component, at);
    });
  }));
}

}  // namespace
}  // namespace kvcts::scenario
