#include "case/catalogue/catalogue.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/certification.hpp"
#include "case/catalogue/schema.hpp"
#include "testing/checkout.hpp"
#include "testing/temporary_folder.hpp"

namespace kvcts::catalogue {
namespace {

namespace fs = std::filesystem;
const fs::path cases = fs::path(checkout::source()) / "cases";

struct Folder : testing_support::TemporaryFolder {
  Folder() { fs::create_directories(path() / "suites"); }
};

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Catalogue, CommittedCatalogueIsSound) {
  const Catalogue catalogue(cases);
  EXPECT_NO_THROW(catalogue.check());
  EXPECT_GE(catalogue.layouts().size(), 40u);
  for (const char* arch :
       {"cpu", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"}) {
    EXPECT_TRUE(catalogue.archs().contains(arch)) << arch;
  }
  for (const char* suite : {"smoke", "seeds", "golden", "crash", "nightly", "full"})
    EXPECT_TRUE(catalogue.suites().contains(suite)) << suite;
  for (const std::int64_t dim : {40, 64, 80, 96, 128, 192, 256, 512, 576}) {
    EXPECT_TRUE(std::any_of(catalogue.geometries().begin(), catalogue.geometries().end(), [&](const auto& g) {
      return g.second.head_dim == dim;
    })) << dim;
  }
  for (const std::int64_t size : {1, 8, 16, 32, 64, 128}) {
    EXPECT_TRUE(std::any_of(catalogue.geometries().begin(), catalogue.geometries().end(), [&](const auto& g) {
      return g.second.block_size == size;
    })) << size;
  }
}

TEST(Catalogue, FactsOfArchs) {
  const Catalogue catalogue(cases);
  const auto& archs = catalogue.archs();
  EXPECT_FALSE(archs.at("sm_75").bf16);
  EXPECT_TRUE(archs.at("sm_80").bf16);
  EXPECT_FALSE(archs.at("sm_86").fp8_convert);
  EXPECT_TRUE(archs.at("sm_89").fp8_convert);
  EXPECT_EQ(archs.at("sm_120").smem_kib, 99);
  EXPECT_EQ(archs.at("sm_90").smem_kib, 227);
}

TEST(Catalogue, UnknownIdsNameTheNearest) {
  const Catalogue catalogue(cases);
  EXPECT_EQ(error_of([&] { catalogue.engines().at("ucx-tpc"); }),
            "expected a known engine, found 'ucx-tpc'; did you mean 'ucx-tcp'?");
}

TEST(Catalogue, RefusesBadFilesWithOneError) {
  const Folder folder;
  folder.write("layouts/a.yaml", "layout: b\ntitle: t\ntemplate: L x B N H C\n");
  folder.write("engines/a.yaml", "engine: e\ntitle: t\nplugin: p\n---\nengine: e\ntitle: t\nplugin: p\n");
  folder.write("geometries/a.yaml",
               "geometry: g\ntitle: t\nlayers: 1\nblocks: 2\nblock_size: 4\nheads: 1\nhead_dim: 8\ntokens: 9\n");
  folder.write("backends/a.yaml", "backend: x\ntitle: t\nsystem: s\nlayout: nowhere\nsource: []\n");
  const Catalogue catalogue(folder.path());
  EXPECT_EQ(error_of([&] { catalogue.layouts(); }),
            "cases/layouts/a.yaml:1: expected the id 'a' (the file's name), found 'b'; rename one of them");
  EXPECT_EQ(error_of([&] { catalogue.engines(); }),
            "cases/engines/a.yaml:5: expected a new engine id, found 'e' again (first in cases/engines/a.yaml); rename one "
            "of them");
  EXPECT_EQ(error_of([&] { catalogue.geometries(); }),
            "cases/geometries/a.yaml:8: expected tokens that fit in 2 blocks of 4, found '9'; lower tokens or add blocks");
  // An error is not cached as an empty kind.
  EXPECT_NE(error_of([&] { catalogue.layouts(); }), "");
  folder.write("layouts/a.yaml", "layout: a\ntitle: t\ntemplate: L x B N H C\n");
  folder.write("engines/a.yaml", "engine: e\ntitle: t\nplugin: p\n");
  folder.write("geometries/a.yaml",
               "geometry: g\ntitle: t\nlayers: 1\nblocks: 3\nblock_size: 4\nheads: 1\nhead_dim: 8\ntokens: 9\n");
  EXPECT_EQ(error_of([&] { catalogue.check(); }),
            "cases/backends/a.yaml:1: key 'layout': expected a known id, found 'nowhere'; known: a");
}

TEST(Catalogue, IsFoundByPathOrByName) {
  EXPECT_EQ(find_cases(cases.string()), cases);
  EXPECT_NE(error_of([] { find_cases("/nonexistent"); }).find("check --cases"), std::string::npos);
}

constexpr const char* product =
    "product: p\nvendor: v\nversion: '1'\nengine: {engine: acme, title: t, plugin: kvcts_engine_acme}\n"
    "waivers: [{waiver: w, match: {id: 'kv/*'}, reason: r, owner: o, link: l, expires: 2026-12-31}]\n";

TEST(Certification, EveryProfileGivesASuiteForTheProduct) {
  const ProductEntry acme = read_product(product, "p.yaml");
  ASSERT_EQ(profile_ids(cases), (std::vector<std::string>{"core", "disaggregated", "gpu", "quantized"}));
  for (const std::string& id : profile_ids(cases)) {
    const ProfileEntry profile = load_profile(cases, id);
    const Catalogue catalogue(cases, additions_of(profile, acme));
    const SuiteEntry& suite = catalogue.suites().at(suite_of(profile));
    ASSERT_FALSE(suite.matrix.empty());
    for (const MatrixBlock& block : suite.matrix) EXPECT_EQ(block.axes.at("engine"), std::vector<std::string>{"acme"});
    EXPECT_EQ(catalogue.engines().at("acme").plugin, "kvcts_engine_acme");
    EXPECT_EQ(catalogue.waivers().at("w").file, "p.yaml");
    EXPECT_TRUE(catalogue.engines().contains("memcpy"));
  }
}

TEST(Certification, AProductCannotRedefineAnEngine) {
  ProductEntry product_of_shm =
      read_product("product: p\nvendor: v\nversion: '1'\nengine: {engine: shm, title: mine}\n", "p.yaml");
  const Catalogue catalogue(cases, additions_of(load_profile(cases, "core"), product_of_shm));
  EXPECT_NE(error_of([&] { catalogue.engines(); }).find("p.yaml: expected a new engine id, found 'shm'"), std::string::npos);
  const ProductEntry named = read_product("product: p\nvendor: v\nversion: '1'\nengine: shm\n", "p.yaml");
  EXPECT_TRUE(additions_of(load_profile(cases, "core"), named).engines.empty());
}

TEST(Certification, NamesTheDefectOfAProfile) {
  const Folder folder;
  folder.write("profiles/a.yaml", "profile: a\ntitle: t\nversion: 1\nmatrix: [{axes: {producer: x}}]\n");
  folder.write("profiles/b.yaml", "profile: b\ntitle: t\nversion: 1\nmatrix: [{axes: {engine: x}, reason: r}]\n");
  EXPECT_NE(error_of([&] { load_profile(folder.path(), "a"); }).find("a reason in every block"), std::string::npos);
  EXPECT_NE(error_of([&] { load_profile(folder.path(), "b"); }).find("no axis engine"), std::string::npos);
  EXPECT_NE(error_of([&] { load_profile(folder.path(), "c"); }).find("expected a known profile, found 'c'"),
            std::string::npos);
  EXPECT_NE(error_of([] { read_product("product: p\n", "p.yaml"); }).find("p.yaml:1"), std::string::npos);
}

TEST(Schema, ReferenceListsEveryKey) {
  for (const auto& kind : kinds()) {
    const json properties = kind.schema().at("properties");
    EXPECT_EQ(kind.rows().size(), properties.size());
    const std::string text = reference_text(kind);
    for (const auto& [key, value] : properties.items()) EXPECT_NE(text.find("| `" + key + "` |"), std::string::npos) << key;
  }
}

TEST(Schema, CaseReferenceListsEveryTable) {
  for (const auto& kind : kinds()) {
    if (!kind.sections) continue;
    const std::string text = reference_text(kind);
    EXPECT_EQ(text.find("{{"), std::string::npos);
    for (const auto& section : kind.sections()) {
      EXPECT_NE(text.find(table_text(section.rows)), std::string::npos) << section.title;
      const bool step = section.title.starts_with("step ");
      EXPECT_TRUE(!step || text.find("### " + section.title.substr(5) + "\n") != std::string::npos) << section.title;
    }
  }
}

struct Victim {
  const Kind* kind;
  std::string name, text;
};

std::vector<Victim> committed_files_and_a_case() {
  std::vector<Victim> victims;
  for (const auto& kind : kinds()) {
    std::istringstream folders(kind.folder);
    for (std::string folder; folders >> folder;) {
      for (const auto& path : yaml_files(cases / folder))
        victims.push_back({&kind, path.filename().string(), read_text_file(path, path.string())});
    }
  }
  victims.push_back({&kinds()[0], "case.yaml",
                     "case: a/b\nproducer: {layout: vllm-fa-nhd, claim: {tensors: {list: L}}}\nrequests:\n  - {tokens: 9}\n"
                     "expected: {outcome: FAIL, class: axis-permuted}\ncontrols:\n  - {name: c, set: {arch: cpu}}\n"});
  return victims;
}

void damage(std::string& text, std::mt19937_64& random) {
  static constexpr std::string_view splinters[]{":",
                                                "- ",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                "\"",
                                                "'",
                                                "&a ",
                                                "*a",
                                                "!!x ",
                                                "|\n",
                                                ">\n",
                                                "#",
                                                "\t",
                                                "\n\n",
                                                "---\n",
                                                "...\n",
                                                "? ",
                                                "%YAML 9.9\n",
                                                "\xff",
                                                "~",
                                                "null",
                                                "<<: ",
                                                "-9223372036854775809",
                                                "1e999",
                                                "\xE2\x80\xA8",
                                                "@",
                                                "`"};
  const auto below = [&](std::size_t n) { return n == 0 ? std::size_t{0} : random() % n; };
  const std::size_t at = below(text.size() + 1);
  switch (below(6)) {
    case 0:
      text.insert(at, splinters[below(std::size(splinters))]);
      break;
    case 1:
      text.erase(at, 1 + below(12));
      break;
    case 2:
      if (at < text.size()) text[at] = static_cast<char>(below(256));
      break;
    case 3:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 4:
      text.insert(at, text.substr(below(text.size() + 1), below(60)));
      break;
    default:
      text.resize(at);
      break;
  }
}

/// Whether it parses; else the error is one line that names the file and what was expected.
bool parses_or_gives_one_error(const Victim& victim, const std::string& text) {
  try {
    if (victim.kind->name == "case") {
      parse_cases(text, "f.yaml");
    } else {
      for (const auto& document : parse_yaml(text, "f.yaml")) victim.kind->read(document);
    }
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("f.yaml:")) << victim.name << ": " << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 1000u) << message;
    return false;
  }  // anything else fails the test
}

// Random damage to every committed file, and to hand-written cases: parsed, or one clear error; never anything else.
TEST(Strictness, MutatedFilesParseOrGiveOneError) {
  const std::vector<Victim> victims = committed_files_and_a_case();
  std::mt19937_64 random(20261121);
  int parsed = 0, refused = 0;
  for (int round = 0; round < 6000 && !HasFailure(); ++round) {
    const Victim& victim = victims[random() % victims.size()];
    std::string text = victim.text;
    for (auto edits = 1 + random() % 4; edits > 0; --edits) damage(text, random);
    parses_or_gives_one_error(victim, text) ? ++parsed : ++refused;
  }
  EXPECT_GT(parsed, 200);
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace kvcts::catalogue
