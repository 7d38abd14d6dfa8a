#include "tools/museum/museum.hpp"
#include "testing/checkout.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace kvcts::museum {
namespace {

namespace fs = std::filesystem;
const fs::path cases = fs::path(checkout::source()) / "cases";

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const catalogue::Error& error) {
    return error.what();
  }
  return "";
}

// A catalogue with a separate museum; everything else is committed data.
class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() /
              ("kvcts-museum-test-" + std::to_string(::getpid()) + "-" + std::to_string(count_++))) {
    fs::create_directories(path_);
    for (const char* shared : {"archs", "connectors", "dtypes", "engines", "geometries", "layouts"})
      fs::create_directory_symlink(cases / shared, path_ / shared);
    write("museum/index/all.yaml",
          "collection: all\ntitle: t\nentries:\n"
          "  - {id: M1, report: a/b#7, system: A, class: axis-permuted, data: confirmed, date: \"2026\", version: \"1\"}\n"
          "  - {id: M2, report: a/b#8, system: B, class: truncated, data: partial, date: \"2026\", version: \"1\"}\n");
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  std::vector<Exhibit> read() const { return museum::read(catalogue::Catalogue(path_)); }
  const fs::path& path() const { return path_; }

 private:
  inline static int count_ = 0;
  fs::path path_;
};

const std::string told = R"(case: museum/m1-b-7
title: NHD read as HND
links: ["https://github.com/a/b/pull/7"]
geometry: {layers: 1, blocks: 3, block_size: 4, heads: 2, head_dim: 8}
memory: {P: {side: producer, template: "L x K B N H C"}, D: {template: "L x K B N H C"}}
requests: {A: {tokens: 6, blocks: {P: [2, 0], D: [1, 2]}}}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: D, actually: {from: {template: "L x K B H N C"}}}
expected: {outcome: FAIL, class: axis-permuted}
controls: [{name: intended, as_intended: true}]
)";
const std::string given = "# not expressed: M2 a/b#8: no report says which bytes\n";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Museum, EveryPublishedFaultIsToldOrGivenUp) {
  const auto exhibits = read(catalogue::Catalogue(cases));
  ASSERT_EQ(exhibits.size(), 222u);
  const Tally sums = tally(exhibits, {});
  EXPECT_EQ(sums.confirmed.entries, 183);
  EXPECT_EQ(sums.partial.entries, 39);
  EXPECT_GE(sums.confirmed.expressed, least_expressed);
  EXPECT_GE(sums.controls, static_cast<std::int64_t>(sums.confirmed.expressed + sums.partial.expressed));
  EXPECT_EQ(sums.confirmed.ran + sums.partial.ran, 0);
  for (std::size_t i = 0; i < exhibits.size(); ++i) {
    const auto& e = exhibits[i].entry;
    EXPECT_EQ(e.id, "M" + std::string(i + 1 < 10 ? "00" : i + 1 < 100 ? "0" : "") + std::to_string(i + 1));
    EXPECT_NE(e.report.find('#'), std::string::npos) << e.id;
    EXPECT_EQ(exhibits[i].expressed(), exhibits[i].not_expressed.empty()) << e.id;
    EXPECT_EQ(exhibits[i].link().rfind("https://github.com/", 0), 0u) << exhibits[i].link();
  }
}

TEST(Museum, ACaseAndALine) {
  Folder folder;
  folder.write("museum/a.yaml", given + told);
  const auto exhibits = folder.read();
  ASSERT_EQ(exhibits.size(), 2u);
  EXPECT_TRUE(exhibits[0].expressed());
  EXPECT_EQ(exhibits[0].controls.size(), 1u);
  EXPECT_EQ(exhibits[0].link(), "https://github.com/a/b/pull/7");
  EXPECT_EQ(exhibits[1].not_expressed, "no report says which bytes");
  EXPECT_EQ(exhibits[1].link(), "https://github.com/a/b/issues/8");
}

TEST(Museum, FilesThatDoNotAddUpAreRefused) {
  const std::tuple<std::string, const char*> table[]{
      {told, "cases/museum: expected a case or a line '# not expressed: M2 a/b#8: ...', found neither; add one of them"},
      {with(with(with(told, "m1-b-7", "m2-b-8"), "pull/7", "pull/8"), "class: axis-permuted", "class: truncated"),
       "cases/museum: expected a case or a line '# not expressed: M1 a/b#7: ...', found neither; add one of them"},
      {given + "# not expressed: M1 a/b#7: for no reason\n" + told, "found both; remove the line"},
      {given + given + told, "cases/museum/a.yaml:2: expected one line for each entry, found M2 again; remove one"},
      {"# not expressed: M2 a/b#9: why\n" + told,
       "cases/museum/a.yaml:1: expected the report of M2, a/b#8, found a/b#9; correct one of them"},
      {"# not expressed: M3 a/b#9: why\n" + given + told,
       "cases/museum/a.yaml:1: expected an entry of cases/museum/index, found 'M3'; did you mean 'M"},
      {"# not expressed: M2: why\n" + told,
       "cases/museum/a.yaml:1: expected '# not expressed: ID REPOSITORY#NUMBER: REASON', found '# not expressed: M2: why'"},
      {"# not expressed M2 a/b#8: why\n" + told, "cases/museum/a.yaml:1: expected '# not expressed: ID"},
      {given + with(told, "museum/m1-b-7", "museum/first"),
       "expected a case id museum/m<number>-..., found 'museum/first'; rename the case"},
      {given + with(told, "m1-b-7", "m4-b-7"), "expected an entry of cases/museum/index, found 'M4'"},
      {given + with(told, "pull/7", "pull/70"),
       "case 'museum/m1-b-7': expected a link to a/b#7, found 1 others; add it to 'links'"},
      {given + with(told, "class: axis-permuted", "class: truncated"),
       "expected the class of M1, axis-permuted, found truncated; correct the case or the index"},
      {given + with(told, ", class: axis-permuted", ""), "expected the class of M1, axis-permuted, found none"},
      {given + with(told, "controls: [{name: intended, as_intended: true}]\n", ""), "expected a control, found none"},
  };
  for (const auto& [text, wanted] : table) {
    Folder folder;
    folder.write("museum/a.yaml", text);
    const std::string error = error_of([&] { folder.read(); });
    EXPECT_NE(error.find(wanted), std::string::npos) << error << "\n  instead of\n" << wanted;
  }
}

TEST(Museum, RunsEachCaseAndItsControls) {
  Folder folder;
  folder.write("museum/a.yaml", given + told);
  const catalogue::Catalogue catalogue(folder.path());
  const auto endings = run(read(catalogue), catalogue);
  ASSERT_EQ(endings.size(), 2u);
  EXPECT_EQ(endings.at("museum/m1-b-7").outcome, Outcome::fail);
  EXPECT_EQ(endings.at("museum/m1-b-7").fault_class, FaultClass::axis_permuted);
  EXPECT_EQ(endings.at("museum/m1-b-7#intended").outcome, Outcome::pass);
  const Tally sums = tally(read(catalogue), endings);
  EXPECT_EQ(sums.confirmed.named, 1);
  EXPECT_EQ(missed(sums, false), std::vector<std::string>{});
}

TEST(Museum, WhatCannotBeRunIsAnError) {
  Folder folder;
  folder.write("museum/a.yaml", given + with(told, "P: [2, 0]", "P: [2, 9]"));
  const catalogue::Catalogue catalogue(folder.path());
  const auto exhibits = read(catalogue);
  const auto endings = run(exhibits, catalogue);
  EXPECT_EQ(endings.at("museum/m1-b-7").outcome, Outcome::error);
  EXPECT_FALSE(judge(exhibits[0], endings).caught);
  EXPECT_EQ(missed(tally(exhibits, endings), false).front(), "1 of 1 are not caught");
}

Exhibit exhibit(FaultClass fault_class) {
  Exhibit out;
  out.entry.fault_class = fault_class, out.entry.data = "confirmed";
  out.cases.resize(1), out.controls.resize(2);
  out.cases[0].id = "x", out.controls[0].id = "x#1", out.controls[1].id = "x#2";
  out.controls[1].expected = {{Outcome::refused, FaultClass::none, {}, ""}};
  return out;
}

TEST(Standing, CaughtNamedAndControls) {
  const Exhibit e = exhibit(FaultClass::truncated);
  const auto standing = [&](Outcome outcome, FaultClass fault_class) {
    return judge(e, {{"x", {outcome, fault_class, ""}}});
  };
  EXPECT_TRUE(standing(Outcome::fail, FaultClass::truncated).named);
  EXPECT_EQ(standing(Outcome::fail, FaultClass::truncated).ending, "FAIL truncated");
  EXPECT_TRUE(standing(Outcome::hang, FaultClass::hang_transfer).caught);
  EXPECT_FALSE(standing(Outcome::hang, FaultClass::hang_transfer).named);
  EXPECT_EQ(standing(Outcome::fail, FaultClass::none).ending, "FAIL, not named");
  EXPECT_FALSE(standing(Outcome::pass, FaultClass::none).caught);
  EXPECT_FALSE(standing(Outcome::pass, FaultClass::truncated).named);
  EXPECT_FALSE(standing(Outcome::error, FaultClass::truncated).caught);
  EXPECT_FALSE(standing(Outcome::skipped, FaultClass::none).caught);
  EXPECT_FALSE(judge(e, {}).ran);
  const Tally misnamed = tally({e}, {{"x", {Outcome::fail, FaultClass::over_read, ""}}});
  EXPECT_EQ(misnamed.confirmed.caught, 1);
  EXPECT_EQ(misnamed.confirmed.named, 0);
  EXPECT_EQ(judge(e, {{"x#1", {Outcome::pass, FaultClass::none, ""}}, {"x#2", {Outcome::pass, FaultClass::none, ""}}})
                .controls_good,
            1);
  EXPECT_EQ(judge(e, {{"x#1", {Outcome::refused, FaultClass::none, ""}}, {"x#2", {Outcome::refused, FaultClass::none, ""}}})
                .controls_good,
            1);
  EXPECT_EQ(judge(e, {{"x#1", {Outcome::pass, FaultClass::none, ""}}, {"x#2", {Outcome::refused, FaultClass::none, ""}}})
                .controls_good,
            2);
}

TEST(Targets, EachIsMissedForItself) {
  Tally good;
  good.confirmed = {183, 170, 170, 170, 162};
  good.partial = {39, 20, 20, 20, 0};
  good.controls = good.controls_good = 300;
  EXPECT_EQ(missed(good, true), std::vector<std::string>{});
  const auto with = [&](auto change) {
    Tally t = good;
    change(t);
    const auto all = missed(t, true);
    return all.size() == 1 ? all.front() : std::to_string(all.size()) + " are missed";
  };
  EXPECT_EQ(with([](Tally& t) { t.confirmed.expressed = t.confirmed.caught = 169; }),
            "169 of 183 confirmed entries are expressed, expected at least 170");
  EXPECT_EQ(with([](Tally& t) { --t.confirmed.caught; }), "1 of 190 are not caught");
  EXPECT_EQ(with([](Tally& t) { --t.partial.caught; }), "1 of 190 are not caught");
  EXPECT_EQ(with([](Tally& t) { t.confirmed.named = 161; }),
            "161 of 170 confirmed entries are named (94.7 %), expected at least 95 %");
  EXPECT_EQ(with([](Tally& t) { --t.controls_good; }), "1 of 300 controls do not end as they must");
  // A part of the museum need not have 170 entries.
  Tally part;
  part.confirmed = {2, 2, 2, 2, 2};
  EXPECT_TRUE(missed(part, false).empty());
  EXPECT_FALSE(missed(part, true).empty());
}

}  // namespace
}  // namespace kvcts::museum
