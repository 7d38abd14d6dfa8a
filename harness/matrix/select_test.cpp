#include "matrix/select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "layout/template.hpp"
#include "matrix/testing/committed.hpp"

namespace kvcts::matrix {
namespace {

using testing::committed;
using testing::error_of;
using testing::Folder;

std::set<std::string> ids(const Selection& selection) {
  std::set<std::string> out;
  for (std::size_t i = 0; i < selection.size(); ++i) out.insert(selection.id(i));
  EXPECT_EQ(out.size(), selection.size()) << "an id twice";
  return out;
}
Query suite(const std::string& name) {
  Query query;
  query.suites = {name};
  return query;
}

TEST(Constraints, AreListedWithTheirReasons) {
  Space space(committed());
  Constraints constraints(space);
  const std::tuple<const char*, Outcome, const char*> table[]{
      {"kv/producer=vllm-fa-nhd/dtype=fp8_e4m3/arch=sm_80", Outcome::unsupported,
       "fp8 conversion needs sm_89, this is sm_80"},
      {"kv/producer=vllm-fa-nhd/arch=sm_70", Outcome::unsupported, "bf16 arithmetic needs sm_80, this is sm_70"},
      {"kv/producer=vllm-fa-nhd/dtype=nvfp4/arch=sm_90", Outcome::unsupported,
       "fp4 and e8m0 conversion need sm_100a or sm_120a, this is sm_90"},
      {"kv/producer=vllm-flash-attn-0.22/dtype=fp16/arch=sm_75", Outcome::unsupported,
       "vLLM FLASH_ATTN needs sm_80, this is sm_75"},
      {"kv/producer=vllm-fa-nhd/geometry=gqa-3/ptp=2", Outcome::unsupported, "3 KV heads cannot be shared by 2 ranks"},
      {"kv/producer=vllm-fa-nhd/consumer=vllm-mla", Outcome::unsupported,
       "vllm-mla has head_dim = 576, this geometry has 64"},
      {"kv/producer=vllm-xformers/dtype=fp8_e4m3/geometry=d40", Outcome::unsupported,
       "vllm-xformers requires head_dim % x == 0"},
      {"kv/producer=vllm-fa-nhd/geometry=gqa-8/ctp=2/connector=head-slice-hnd", Outcome::refused,
       "a head slice of an NHC block is not contiguous"},
      {"kv/producer=vllm-fa-nhd/cbs=32/connector=block-copy", Outcome::refused,
       "cannot turn blocks of 16 tokens into blocks of 32"},
      {"kv/producer=vllm-fa-nhd/engine=fixture", Outcome::unsupported, "it belongs to suites crash and gpu-acceptance"},
      {"kv/producer=flashinfer-dsv4-nhd/consumer=flashinfer-dsv4-footer/dtype=fp8_e4m3/geometry=mla-512", Outcome::refused,
       "the producer's do not"},
  };
  for (const auto& [id, outcome, reason] : table) {
    const Point point = point_from_id(space, id);
    const int stopped = constraints.check(point);
    ASSERT_NE(stopped, 0) << id;
    EXPECT_EQ(constraints.declared(point, stopped).outcome, outcome) << id;
    EXPECT_NE(constraints.declared(point, stopped).reason.find(reason), std::string::npos)
        << constraints.declared(point, stopped).reason;
  }
  for (const char* free : {"kv/producer=vllm-fa-nhd", "kv/producer=vllm-fa-nhd/dtype=fp8_e4m3/arch=sm_89",
                           "kv/producer=vllm-fa-nhd/dtype=nvfp4", "kv/producer=vllm-mla/geometry=mla-576/ptp=2",
                           "kv/producer=vllm-fa-hnd/geometry=gqa-8/ctp=2/connector=head-slice-hnd"}) {
    EXPECT_EQ(constraints.check(point_from_id(space, free)), 0) << free;
  }
}

// What is not constrained can be built, over every layout, geometry and dtype: the limits and the layout library agree.
TEST(Constraints, AllowOnlyPointsThatInstantiate) {
  Space space(committed());
  Constraints constraints(space);
  int free = 0;
  for (const auto& [layout_id, layout] : committed().layouts()) {
    for (const auto& [geometry_id, geometry] : committed().geometries()) {
      for (const auto& [dtype_id, dtype] : committed().dtypes()) {
        const std::string id = "kv/producer=" + layout_id + "/dtype=" + dtype_id + "/geometry=" + geometry_id;
        if (constraints.check(point_from_id(space, id)) != 0) continue;
        ++free;
        ASSERT_NO_THROW(
            layout::instantiate(layout.text, catalogue::geometry_of(geometry), catalogue::scheme_of(dtype), layout.tensors))
            << id;
      }
    }
  }
  EXPECT_GT(free, 10'000);
}

TEST(Select, EverySuiteResolves) {
  for (const auto& [name, entry] : committed().suites()) {
    if (name == "full" || name == "nightly" || !entry.files.empty()) continue;  // large; or filled by others
    const Selection selection = select(committed(), suite(name));
    EXPECT_FALSE(selection.empty()) << name;
    ids(selection);
  }
}

TEST(Select, TakesSomeCasesOfAFile) {
  const Folder folder;
  folder.write("suites/s.yaml", "suite: s\ntitle: t\nfiles: [seeds/*.yaml]\nids: [some/b*, some/c]\n");
  std::string cases;
  for (const char* id : {"some/a", "some/b1", "some/b2", "some/c", "some/cc"}) {
    cases += std::string("---\ncase: ") + id +
             "\nproducer: {layout: vllm-fa-nhd}\nconsumer: {layout: vllm-fa-hnd}\ncontrols: [{name: other, set: {dtype: "
             "fp16}}]\n";
  }
  folder.write("seeds/some.yaml", cases);
  const Catalogue catalogue(folder.path());
  EXPECT_EQ(ids(select(catalogue, suite("s"))),
            (std::set<std::string>{"some/b1", "some/b1#other", "some/b2", "some/b2#other", "some/c", "some/c#other"}));
}

TEST(Select, SmokeCoversWhatItPromises) {
  const Selection smoke = select(committed(), suite("smoke"));
  EXPECT_GE(smoke.size(), 300u);
  EXPECT_LE(smoke.size(), 900u);
  std::set<std::string> producers, engines, archs;
  std::size_t unlike = 0, stopped = 0, refused = 0;
  for (std::size_t i = 0; i < smoke.size(); ++i) {
    const auto axes_at = smoke.facts(i).at("axes");
    producers.insert(axes_at.at("producer")), engines.insert(axes_at.at("engine")), archs.insert(axes_at.at("arch"));
    unlike += axes_at.at("producer") != axes_at.at("consumer");
    const auto declared = smoke.declared(i);
    stopped += declared && declared->outcome == Outcome::unsupported;
    refused += declared && declared->outcome == Outcome::refused;
    EXPECT_EQ(smoke.spec(i).expected.at(0).outcome, declared ? declared->outcome : Outcome::pass);
  }
  EXPECT_EQ(engines, (std::set<std::string>{"memcpy", "shm", "ucx-shm", "ucx-tcp"}));
  EXPECT_EQ(archs.size(), committed().archs().size());
  EXPECT_GE(unlike, 150u);
  EXPECT_GE(refused, 5u);
  EXPECT_LT(stopped, smoke.size() / 4);
  // Every layout appears as a producer, unless no geometry of the block fits it.
  std::size_t missing = 0;
  for (const auto& [id, layout] : committed().layouts()) missing += !producers.contains(id);
  EXPECT_LE(missing, 6u);
}

TEST(Select, ListsConstrainedPoints) {
  const Folder folder;
  folder.write(
      "suites/s.yaml",
      "suite: s\ntitle: t\nmatrix:\n  - axes: {producer: vllm-fa-nhd, arch: [sm_70, sm_80], dtype: [bf16, fp16]}\n");
  const Catalogue catalogue(folder.path());
  const Selection selection = select(catalogue, suite("s"));
  ASSERT_EQ(selection.size(), 4u);
  int stopped = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    if (const auto declared = selection.declared(i)) {
      ++stopped;
      EXPECT_EQ(declared->constraint, "bf16-needs-sm80");
      EXPECT_EQ(selection.id(i), "kv/producer=vllm-fa-nhd/arch=sm_70");
    }
  }
  EXPECT_EQ(stopped, 1);
}

TEST(Select, ShardsPartition) {
  const auto whole = ids(select(committed(), suite("smoke")));
  for (const int n : {2, 3, 7}) {
    std::set<std::string> together;
    std::size_t total = 0;
    for (int i = 1; i <= n; ++i) {
      Query query = suite("smoke");
      query.shard = i, query.shards = n;
      const auto part = ids(select(committed(), query));
      EXPECT_GT(part.size(), whole.size() / static_cast<std::size_t>(n) / 2);
      total += part.size();
      together.insert(part.begin(), part.end());
    }
    EXPECT_EQ(total, whole.size());
    EXPECT_EQ(together, whole);
  }
}

// The longest first onto the shard with the least: no two differ by more than the longest case.
TEST(Select, BalancesShardsByMeasuredTime) {
  Query query = suite("smoke");
  const Selection whole = select(committed(), query);
  EXPECT_EQ(whole.cut(), 0u);
  std::int64_t longest = 0, all = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (i % 4 == 3) continue;  // never measured
    const auto ns = static_cast<std::int64_t>(1e6 * std::pow(1.02, i % 300));
    query.times_ns[whole.id(i)] = ns;
    longest = std::max(longest, ns), all += ns;
  }
  std::map<std::string, int> shard_of;  // without arch: these share an execution
  std::set<std::string> together;
  std::int64_t least = INT64_MAX, most = 0;
  const std::uint64_t cut = (query.shards = 3, select(committed(), query).cut());
  EXPECT_NE(cut, 0u);
  for (query.shard = 1; query.shard <= 3; ++query.shard) {
    const Selection part = select(committed(), query);
    EXPECT_EQ(part.cut(), cut);
    EXPECT_EQ(part.whole(), std::ssize(ids(whole)));
    std::map<std::string, std::int64_t> once;
    for (std::size_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part.id(i), whole.id(static_cast<std::size_t>(part.places()[i])));
      EXPECT_TRUE(together.insert(part.id(i)).second);
      std::string id = part.id(i);
      if (const auto arch = id.find("/arch="); arch != std::string::npos) id.erase(arch, id.find('/', arch + 1) - arch);
      EXPECT_EQ(shard_of.try_emplace(id, query.shard).first->second, query.shard) << part.id(i);
      if (const auto time = query.times_ns.find(part.id(i)); time != query.times_ns.end())
        once[id] = std::max(once[id], time->second);
    }
    std::int64_t sum = 0;
    for (const auto& [id, ns] : once) sum += ns;
    EXPECT_NEAR(static_cast<double>(part.size()), static_cast<double>(whole.size()) / 3, 40);
    least = std::min(least, sum), most = std::max(most, sum);
  }
  EXPECT_EQ(together, ids(whole));
  EXPECT_LT(most - least, longest) << all;
  query.shard = 1, query.times_ns.begin()->second += 1'000'000'000;
  EXPECT_NE(select(committed(), query).cut(), cut);
  query.shards = query.shard = 1'000'000'000;  // more than there are cases
  EXPECT_TRUE(select(committed(), query).empty());
}

// A step that is given its part has of each case what it would have selected itself.
TEST(Select, PartsMatchTheirShards) {
  std::vector<Query> queries(5);
  queries[0].suites = {"smoke", "crash"};
  queries[0].times_ns["kv/producer=vllm-fa-nhd"] = 1'000'000'000;
  queries[1].suites = {"drawn"}, queries[1].draw = 60;
  queries[2].suites = {"smoke"}, queries[2].cover = 2;
  queries[3].suites = {"smoke"}, queries[3].ids = {"*ucx*", "faults/*"};
  queries[4].ids = {"seeds/xformers-t4#wrong-inner-order", "kv/producer=vllm-fa-nhd"};
  for (Query& query : queries) {
    const Selection whole = select(committed(), query);
    query.shards = 3;
    SelectionGroup every{{}, 3};
    for (std::size_t i = 0; i < whole.size(); ++i) every.cases.push_back(i);
    const std::vector<Part> parts = parts_of(whole, {every}, query.times_ns);
    std::size_t cases = 0;
    for (query.shard = 1; query.shard <= 3; ++query.shard) {
      Query given = query;
      given.part = parts.at(static_cast<std::size_t>(query.shard) - 1);
      const Selection searched = select(committed(), query), part = select(committed(), given);
      EXPECT_EQ(part.places(), searched.places());
      EXPECT_EQ(std::pair(part.whole(), part.cut()), std::pair(searched.whole(), searched.cut()));
      ASSERT_EQ(part.size(), searched.size());
      cases += part.size();
      for (std::size_t i = 0; i < part.size(); ++i) {
        EXPECT_EQ(part.id(i), searched.id(i));
        EXPECT_EQ(part.facts(i), searched.facts(i));
        EXPECT_EQ(part.spec(i).deadlines_ms, searched.spec(i).deadlines_ms);
        EXPECT_EQ(part.spec(i).declared_by, searched.spec(i).declared_by);
        EXPECT_EQ(part.declared(i).has_value(), searched.declared(i).has_value());
        EXPECT_EQ(part.optional(i, {"ucx"}), searched.optional(i, {"ucx"}));
      }
    }
    EXPECT_EQ(cases, whole.size());
  }
}

TEST(Select, KeepsGroupsInSeparateShards) {
  Query query;
  query.suites = {"smoke"};
  for (const bool timed : {false, true}) {
    if (timed) query.times_ns["kv/producer=vllm-fa-nhd"] = 1'000'000'000;
    const Selection whole = select(committed(), query);
    std::vector<SelectionGroup> groups{{{}, 2}, {{}, 3}};
    for (std::size_t i = 0; i < whole.size(); ++i) groups[i % 3 == 0 ? 0 : 1].cases.push_back(i);
    const std::vector<Part> parts = parts_of(whole, groups, query.times_ns);
    ASSERT_EQ(parts.size(), 5u);
    std::set<std::int64_t> places;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      EXPECT_EQ(std::pair(parts[p].whole, parts[p].cut), std::pair(static_cast<std::int64_t>(whole.size()), parts[0].cut));
      for (const Part::Case& one : parts[p].cases) {
        EXPECT_EQ(one.place % 3 == 0, p < 2) << one.id;
        EXPECT_EQ(one.id, whole.id(static_cast<std::size_t>(one.place)));
        EXPECT_TRUE(places.insert(one.place).second) << one.id;
      }
    }
    EXPECT_EQ(places.size(), whole.size());
  }
}

// Points that run, with many values on every axis; a redraw repeats them, a larger draw includes them, and shards add up.
TEST(Select, DrawsRandomPoints) {
  Query query = suite("drawn");
  query.draw = 400;
  const Selection drawn = select(committed(), query);
  const auto first = ids(drawn);
  ASSERT_EQ(drawn.size(), 400u);
  std::map<std::string, std::set<std::string>> values;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_FALSE(drawn.declared(i)) << drawn.id(i);
    EXPECT_EQ(drawn.suite(i), "drawn");
    const auto facts = drawn.facts(i);
    for (const auto& [axis, value] : facts.at("axes").items()) values[axis].insert(value.get<std::string>());
  }
  for (const auto& [axis, least] : std::map<std::string, std::size_t>{
           {"producer", 30}, {"dtype", 6}, {"geometry", 10}, {"pbs", 5}, {"ptp", 3}, {"ids", 3}, {"op", 2}}) {
    EXPECT_GE(values[axis].size(), least) << axis;
  }
  EXPECT_EQ(ids(select(committed(), query)), first);
  query.draw = 500;
  const auto larger = ids(select(committed(), query));
  EXPECT_TRUE(std::includes(larger.begin(), larger.end(), first.begin(), first.end()));
  std::set<std::string> together;
  for (query.shard = 1, query.shards = 3; query.shard <= 3; ++query.shard) together.merge(ids(select(committed(), query)));
  EXPECT_EQ(together, larger);
  query.shard = query.shards = 1, query.draw = 400, query.draw_seed = 2;
  EXPECT_NE(ids(select(committed(), query)), first);
  query.where = "dtype.bits == 4 && ptp == 4";
  const Selection narrow_codes = select(committed(), query);
  EXPECT_EQ(narrow_codes.size(), 400u);
  query.suites = {"museum"}, query.where.clear();
  EXPECT_NE(error_of([&] { select(committed(), query); }).find("expected a suite with matrix blocks"), std::string::npos);
}

TEST(Select, CombinesFilters) {
  Query query = suite("smoke");
  query.where = "dtype == bf16 && engine != memcpy";
  query.ids = {"*consumer=*", "*op=read*"};
  const Selection selection = select(committed(), query);
  ASSERT_FALSE(selection.empty());
  std::set<std::string> expected;
  const Selection smoke = select(committed(), suite("smoke"));
  for (std::size_t i = 0; i < smoke.size(); ++i) {
    const auto axes_at = smoke.facts(i).at("axes");
    const std::string id = smoke.id(i);
    if (axes_at.at("dtype") == "bf16" && axes_at.at("engine") != "memcpy" &&
        (id.find("consumer=") != std::string::npos || id.find("op=read") != std::string::npos)) {
      expected.insert(id);
    }
  }
  EXPECT_EQ(ids(selection), expected);
  query.cover = 1;
  const Selection covered = select(committed(), query);
  EXPECT_LT(covered.size(), selection.size());
  EXPECT_GT(covered.cover().tuples, 10);
}

TEST(Select, FindsFullIdsWithoutASuite) {
  Query query;
  query.ids = {"kv/engine=shm/producer=vllm-mla/geometry=mla-320"};
  const Selection selection = select(committed(), query);
  ASSERT_EQ(selection.size(), 1u);
  EXPECT_EQ(selection.id(0), "kv/producer=vllm-mla/geometry=mla-320/engine=shm");
  EXPECT_EQ(selection.declared(0)->outcome, Outcome::unsupported);
  query.ids = {"kv/engine=shm/producer=vllm-mla/geometry=mla-320", "kv/producer=vllm-mla"};
  query.suites = {"smoke"};
  EXPECT_TRUE(select(committed(), query).empty());
}

TEST(Select, FailedIdsNarrowASuiteOrSelectAnywhere) {
  const Selection smoke = select(committed(), suite("smoke"));
  const std::string drawn = "kv/producer=vllm-mla/geometry=mla-320";  // not in smoke
  ASSERT_FALSE(ids(smoke).contains(drawn));
  Query query = suite("smoke");
  query.failed = {"runs/night", {smoke.id(7), smoke.id(3), drawn}, false};
  EXPECT_EQ(ids(select(committed(), query)), (std::set{smoke.id(3), smoke.id(7)}));
  query.failed.anywhere = true;
  EXPECT_EQ(ids(select(committed(), query)), (std::set{smoke.id(3), smoke.id(7), drawn}));
  query.ids = {"*mla-320"};
  EXPECT_EQ(ids(select(committed(), query)), std::set{drawn});
  query.suites.clear(), query.ids = {smoke.id(3)};
  EXPECT_EQ(ids(select(committed(), query)), std::set{smoke.id(3)});
  query.where = "dtype == fp16 && dtype == bf16", query.ids.clear();
  EXPECT_TRUE(select(committed(), query).empty());
  query.where.clear(), query.failed.ids = {"faults/gone"};
  EXPECT_TRUE(error_of([&] {
                select(committed(), query);
              }).starts_with("'faults/gone' failed in runs/night, but the catalogue no longer has it: expected the id"));
  query = suite("smoke"), query.failed = {"runs/night", {drawn}, false};
  EXPECT_TRUE(select(committed(), query).why_empty().starts_with("what failed in runs/night removed the last"));
}

TEST(Select, AnEmptySelectionNamesTheFilterThatEmptiedIt) {
  Query query = suite("smoke");
  query.where = "dtype == fp16 && dtype == bf16";
  const Selection selection = select(committed(), query);
  EXPECT_TRUE(selection.empty());
  EXPECT_NE(selection.why_empty().find("the expression 'dtype == fp16 && dtype == bf16' removed the last"),
            std::string::npos)
      << selection.why_empty();
}

TEST(Select, LimitsCasesToATimeBudget) {
  Query query = suite("smoke");
  const Selection all = select(committed(), query);
  double seconds = 0;
  for (std::size_t i = 0; i < all.size(); ++i) seconds += all.seconds(i);
  query.budget_s = seconds / 2;
  const Selection half = select(committed(), query);
  EXPECT_GT(half.size(), all.size() / 10);
  EXPECT_GT(half.left_out(), 20);
  EXPECT_EQ(half.size() + static_cast<std::size_t>(half.left_out()), all.size());
  double spent = 0;
  for (std::size_t i = 0; i < half.size(); ++i) {
    EXPECT_EQ(half.id(i), all.id(i));
    spent += half.seconds(i);
  }
  EXPECT_LE(spent, query.budget_s);
  query.budget_s = 1e-9;
  EXPECT_EQ(select(committed(), query).why_empty(),
            "the first of " + std::to_string(all.size()) + " cases takes longer than the budget");
}

TEST(Select, ReadsOptionalRequirementsOfASuite) {
  const Selection smoke = select(committed(), suite("smoke"));
  EXPECT_TRUE(smoke.optional(0, {"ucx", "ucx-tcp"}));
  EXPECT_FALSE(smoke.optional(0, {"memcpy"}));
  EXPECT_FALSE(smoke.optional(0, {"shm"}));
  Query query;
  query.ids = {"kv/producer=vllm-fa-nhd/engine=ucx-tcp"};
  EXPECT_FALSE(select(committed(), query).optional(0, {"ucx", "ucx-tcp"})) << "no suite holds it";
  // Nothing that always exists is optional, and no list is out of date.
  for (const auto& [id, entry] : committed().suites()) {
    for (const auto& glob : entry.optional) {
      for (const char* always : {"memcpy", "shm", "memory"}) EXPECT_FALSE(catalogue::matches_glob(glob, always)) << id;
    }
  }
  EXPECT_NO_THROW(committed().check());
}

TEST(Select, RefusesBadQueries) {
  const auto error = [&](auto change) {
    Query query = suite("smoke");
    change(query);
    return error_of([&] { select(committed(), query); });
  };
  EXPECT_EQ(error([](Query& q) { q.suites = {"smoek"}; }), "expected a known suite, found 'smoek'; did you mean 'smoke'?");
  EXPECT_NE(error([](Query& q) { q.shard = 4, q.shards = 3; }).find("1 <= i <= n, found 4/3"), std::string::npos);
  EXPECT_NE(error([](Query& q) { q.draw = -1; }).find("expected a draw of 1 to"), std::string::npos);
  EXPECT_NE(error([](Query& q) { q.cover = 7; }).find("found 7"), std::string::npos);
  EXPECT_NE(error([](Query& q) { q.where = "dtpye == bf16"; }).find("did you mean 'dtype'"), std::string::npos);
  EXPECT_NE(error([](Query& q) { q.suites.clear(), q.ids = {"seeds/nothing-like-it"}; }).find("expected the id of a case"),
            std::string::npos);
  EXPECT_NE(error([](Query& q) { q.files = {"/nonexistent.yaml"}; }).find("/nonexistent.yaml:1: expected a readable file"),
            std::string::npos);
}

TEST(Select, RefusesBadSuitesWithOneError) {
  const std::pair<const char*, const char*> table[]{
      {"suite: s\ntitle: t\ninclude: [s]\n", "expected suites that do not include one another in a ring, found 's' again"},
      {"suite: s\ntitle: t\ninclude: [x]\n", "expected a known suite, found 'x'"},
      {"suite: s\ntitle: t\nfiles: [../*.yaml]\n", "expected a glob below cases/"},
      {"suite: s\ntitle: t\nmatrix: [{axes: {dtype: bf16}}]\n", "expected axis 'producer', which has no default"},
      {"suite: s\ntitle: t\nmatrix: [{axes: {producer: vllm-mla, dtpye: bf16}}]\n", "found 'dtpye'; did you mean 'dtype'?"},
      {"suite: s\ntitle: t\nmatrix: [{axes: {producer: nothing-*}}]\n",
       "expected a glob that matches a value of axis 'producer'"},
      {"suite: s\ntitle: t\nmatrix: [{axes: {producer: [vllm-mla, \"!vllm-*\"]}}]\n", "the '!' globs removed everything"},
      {"suite: s\ntitle: t\nmatrix: [{axes: {producer: vllm-mla}, where: dtype = x}]\n", "expected '==' to compare"},
      {"suite: s\ntitle: t\nmatrix: [{axes: {producer: \"*\", consumer: \"*\", dtype: \"*\", geometry: \"*\", pbs: \"*\", "
       "cbs: \"*\"}}]\n",
       "expected a product of at most"},
  };
  for (const auto& [text, expected] : table) {
    const Folder folder;
    folder.write("suites/s.yaml", text);
    const Catalogue catalogue(folder.path());
    const std::string error = error_of([&] { select(catalogue, suite("s")); });
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
}

TEST(Select, SelectsHandWrittenCasesWithTheirControls) {
  const Folder folder;
  folder.write("suites/s.yaml", "suite: s\ntitle: t\nfiles: [mine/*.yaml]\ndeadlines: {transfer: 3s, plan: 1s}\n");
  folder.write("mine/a.yaml",
               "case: mine/a\nlinks: [\"https://example.org\"]\nproducer: {layout: vllm-fa-nhd}\ndtype: fp16\ngeometry: "
               "{base: small, heads: 5}\ndeadlines: {plan: 9s}\n"
               "expected: {outcome: HANG, phase: transfer}\ncontrols: [{name: ok, set: {dtype: bf16}}]\n");
  const Catalogue catalogue(folder.path());
  const Selection selection = select(catalogue, suite("s"));
  ASSERT_EQ(ids(selection), (std::set<std::string>{"mine/a", "mine/a#ok"}));
  EXPECT_EQ(selection.spec(0).deadlines_ms.at("transfer"), 3000);
  EXPECT_EQ(selection.spec(0).deadlines_ms.at("plan"), 9000);
  EXPECT_EQ(selection.facts(0).at("links").at(0), "https://example.org");
  EXPECT_GT(selection.seconds(0), 1.0);  // it is meant to hang

  const auto picked = [&](const std::string& where) {
    Query query = suite("s");
    query.where = where;
    return ids(select(catalogue, query));
  };
  EXPECT_EQ(picked("dtype == fp16"), std::set<std::string>{"mine/a"});
  EXPECT_EQ(picked("geometry.heads == 5").size(), 2u);  // the value that the case replaces
  EXPECT_EQ(picked("geometry.head_dim == 64 && producer.nhd && pbs == 16").size(), 2u);
  EXPECT_EQ(picked("id ~ \"*#ok\""), std::set<std::string>{"mine/a#ok"});
  Query query;
  query.ids = {"mine/a#ok"};
  EXPECT_EQ(select(catalogue, query).size(), 1u);
  query.ids.clear();
  query.files = {folder.path() / "mine" / "a.yaml"};
  EXPECT_EQ(select(catalogue, query).size(), 2u);
}

}  // namespace
}  // namespace kvcts::matrix
