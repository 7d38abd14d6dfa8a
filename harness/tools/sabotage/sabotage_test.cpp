#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "case/catalogue/catalogue.hpp"
#include "case/resolve/resolve.hpp"
#include "connector/misread.hpp"
#include "testing/checkout.hpp"
#include "tools/sabotage/campaign.hpp"
#include "tools/sabotage/matrix.hpp"

namespace kvcts::sabotage {
namespace {

namespace fs = std::filesystem;
using catalogue::Catalogue;
using nlohmann::json;

const fs::path cases = fs::path(checkout::source()) / "cases";

const Catalogue& all_cases() {
  static const Catalogue catalogue(cases);
  return catalogue;
}

FaultInjector injector(const std::string& id) {
  for (auto& s : catalogue::load_fault_injectors(all_cases())) {
    if (s.id == id) return s;
  }
  throw std::runtime_error("there is no saboteur " + id);
}

ResolvedCase plain_case() {
  CaseSpec spec;
  spec.id = "plain";
  spec.producer.layout = "vllm-fa-nhd";
  spec.consumer.layout = "vllm-fa-hnd";
  return resolve(spec, all_cases());
}

TEST(FaultInjectors, CoverEveryKindAndTheKnownBlindSpots) {
  std::map<std::string, int> kinds;
  std::set<std::string> ids;
  int controls = 0;
  for (const auto& s : catalogue::load_fault_injectors(all_cases())) {
    s.harmless ? ++controls : ++kinds[s.kind];
    ids.insert(s.id);
    EXPECT_EQ(s.harmless, s.options["fault"] == "none") << s.id;
    EXPECT_TRUE(s.id.starts_with(s.kind + "/")) << s.id;
  }
  int all = 0;
  for (const auto* kind : {"transport", "writer", "connector", "planner", "reader"}) {
    EXPECT_GE(kinds[kind], 3) << kind;
    all += kinds[kind];
  }
  EXPECT_GE(all, 40);
  EXPECT_GE(controls, 3);
  for (const auto* blind_spot :
       {"transport/no-copy-after-warm-up", "transport/shift-by-2-mib", "connector/head-dim-80-swapped",
        "transport/wrong-peer", "transport/tail-short-by-one", "transport/overrun-by-a-page", "transport/late-write",
        "writer/one-nan", "writer/no-negative-zero", "transport/skips-what-looks-the-same", "transport/early-success",
        "transport/completion-of-another-request"}) {
    EXPECT_TRUE(ids.contains(blind_spot)) << blind_spot;
  }
}

TEST(FaultInjectors, MisreadingsChangeOnlyTheView) {
  const auto rows = connector::misreadings();
  for (const auto& s : catalogue::load_fault_injectors(all_cases())) {
    if (s.kind == "transport" || s.kind == "writer") continue;
    EXPECT_NE(std::find(rows.begin(), rows.end(), s.options.value("fault", "")), rows.end()) << s.id;
    ResolvedCase view = plain_case();
    connector::misread(view, s.options);
    EXPECT_EQ(view.seed, plain_case().seed) << s.id;
  }
}

TEST(FaultInjectors, ReplaceOnePartyAndKeepTheRestOfTheCase) {
  const ResolvedCase right = plain_case();
  ResolvedCase engine = right, connector = right, reader = right;
  put_into(injector("transport/nothing"), engine);
  EXPECT_EQ(engine.engine.plugin, "kvcts_engine_saboteur");
  EXPECT_EQ(engine.engine.options["fault"], "nothing");
  put_into(injector("planner/ids-reversed"), connector);
  EXPECT_EQ(connector.connector.options["sabotage"]["how"], "reversed");
  put_into(injector("reader/ids-reversed"), reader);
  EXPECT_EQ(reader.reader.options["sabotage"]["how"], "reversed");
  engine.engine = right.engine, connector.connector = right.connector, reader.reader = right.reader;
  for (const auto* c : {&engine, &connector, &reader}) EXPECT_EQ(to_json(*c), to_json(right));
}

TEST(FaultInjectors, ProxyAnEngineWithoutChangingIt) {
  ResolvedCase right = plain_case();
  right.engine = {"nixl-tcp", "kvcts_engine_nixl", 2, {{"path", "tcp"}}, {{"UCX_TLS", "tcp"}}};
  ResolvedCase engine = right, connector = right;
  put_proxy_into(injector("transport/late-write"), engine);
  EXPECT_EQ(engine.engine.name, "nixl-tcp");
  EXPECT_EQ(engine.engine.plugin, "kvcts_engine_front");
  EXPECT_EQ(engine.engine.options,
            (json{{"path", "tcp"}, {"front.fault", "late_write"}, {"front.delay_us", 400000}, {"front.dtype", "bf16"}}));
  EXPECT_EQ(engine.engine.environment, (json{{"UCX_TLS", "tcp"}, {"KVCTS_FRONT_OF", "kvcts_engine_nixl"}}));
  EXPECT_EQ(engine.settle_ms, 1200);
  put_proxy_into(injector("planner/ids-reversed"), connector);
  EXPECT_EQ(connector.connector.options["sabotage"]["how"], "reversed");
  engine.engine = right.engine, engine.settle_ms = right.settle_ms, connector.connector = right.connector;
  for (const auto* c : {&engine, &connector}) EXPECT_EQ(to_json(*c), to_json(right));
}

TEST(FaultInjectors, FitOnlyCasesThatCorrectCodePasses) {
  const FaultInjector transport = injector("transport/nothing"), planner = injector("planner/ids-reversed"),
                      reader = injector("reader/ids-reversed");
  ResolvedCase c = plain_case();
  EXPECT_TRUE(fits(transport, c));
  EXPECT_TRUE(fits(planner, c));
  EXPECT_FALSE(fits(reader, c));  // no reader
  ResolvedCase refused = c;
  refused.expected = {Expected{Outcome::refused, FaultClass::none, {}, ""}};
  EXPECT_FALSE(fits(transport, refused));
  ResolvedCase remote = c;
  remote.engine.name = "ucx-shm";
  EXPECT_FALSE(fits(transport, remote));
  EXPECT_FALSE(fits(planner, remote));
}

std::string message_of(const std::string& document) {
  const fs::path folder = fs::path(testing::TempDir()) / "kvcts saboteurs";
  fs::create_directories(folder / "saboteurs");
  std::ofstream(folder / "saboteurs" / "a.yaml") << document;
  try {
    catalogue::load_fault_injectors(Catalogue(folder));
  } catch (const catalogue::Error& e) {
    return e.what();
  }
  return "";
}

TEST(FaultInjectors, RefuseBadDocumentsWithOneError) {
  const std::string good =
      "saboteur: a/b\nkind: planner\ntitle: t\noptions: {fault: ids, how: sorted}\nclass: wrong-block-id\n";
  EXPECT_EQ(message_of(good), "");
  EXPECT_NE(message_of(good + "---\n" + good).find("expected a new saboteur id, found 'a/b' again"), std::string::npos);
  EXPECT_NE(message_of(good + "harmless: true\n").find("expected a class or harmless: true, one of them"),
            std::string::npos);
  EXPECT_NE(message_of("saboteur: a/b\nkind: planner\ntitle: t\noptions: {how: sorted}\nclass: truncated\n")
                .find("options with a fault"),
            std::string::npos);
  EXPECT_NE(message_of("saboteur: a/b\nkind: plan\ntitle: t\noptions: {fault: ids}\n").find("planner"), std::string::npos);
}

CampaignRow row(bool harmless, bool caught, bool named) {
  CampaignRow out;
  out.injector.id = "a/b", out.injector.kind = "planner", out.injector.harmless = harmless, out.tried = 1;
  if (!harmless) out.injector.fault_class = FaultClass::truncated;
  if (caught) out.caught = Catch{"case", "smoke", {"bytes"}, {}, named};
  return out;
}

TEST(Totals, RequireAllCaughtNinetyFivePercentNamedAndNoFalseAlarm) {
  std::vector<CampaignRow> rows(19, row(false, true, true));
  rows.push_back(row(false, true, false));
  rows.push_back(row(true, false, false));
  EXPECT_TRUE(totals_of(rows).good());  // 19 of 20
  rows.push_back(row(false, true, false));
  EXPECT_FALSE(totals_of(rows).good());  // 19 of 21
  rows.pop_back();
  rows.push_back(row(false, false, false));
  EXPECT_FALSE(totals_of(rows).good());
  rows.pop_back();
  rows.push_back(row(true, true, false));
  EXPECT_FALSE(totals_of(rows).good());
  EXPECT_EQ(totals_of(rows).false_alarms, 1u);
  EXPECT_FALSE(totals_of({row(true, false, false)}).good()) << "controls alone show nothing";
}

TEST(Totals, ExcludeSkippedFaultsAndListThem) {
  std::vector<CampaignRow> rows{row(false, true, true), row(false, false, false), row(true, false, false)};
  EXPECT_FALSE(totals_of(rows).good());
  rows[1].silent = rows[1].tried, rows[1].why_silent = "it does not read";
  EXPECT_TRUE(totals_of(rows).good());
  EXPECT_EQ(totals_text({"writes-only", rows}),
            "writes-only: 1 of 2 faults caught, 1 named (50.0 %), 1 skipped; 0 false alarms of 1 control\n");
  EXPECT_NE(matrix_text({"writes-only", rows}).find("SKIPPED"), std::string::npos);
  EXPECT_NE(matrix_text({"writes-only", rows}).find("it does not read"), std::string::npos);
  EXPECT_EQ(matrix_json({"writes-only", rows})["saboteurs"][1]["skipped"], "it does not read");
  rows[1].tried = 2;  // one case ran without noticing
  EXPECT_FALSE(totals_of(rows).good());
  EXPECT_FALSE(totals_of({rows[2]}).good());
}

}  // namespace
}  // namespace kvcts::sabotage
