#include "certificate/package.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "certificate/envelope.hpp"
#include "certificate/error.hpp"
#include "certificate/key_file.hpp"
#include "run/store/testing/sample.hpp"

namespace kvcts::certificate {
namespace {

using nlohmann::json;

Package sample(int count) {
  Package package;
  package.product = "ACME transport 3";
  package.plan = {{"ids", json::array()}, {"profile", "core"}};
  for (int i = 0; i < count; ++i) {
    const std::string id = "case/" + std::to_string(100000 + i);
    package.plan["ids"].push_back(id);
    package.records.push_back({{"id", id}, {"outcome", i % 7 == 0 ? "REFUSED" : "PASS"}, {"ms", i}});
  }
  package.others = {{"claims.json", "{}"}, {"logs/run.txt", "one\ntwo\n"}};
  return package;
}

std::string wrong(const PackageReading& reading) {
  return reading.good() ? "" : reading.checks.back().what + ": " + reading.checks.back().wrong;
}

class PackageTest : public ::testing::Test {
 protected:
  Files opened() const {
    std::string contradiction;
    return read_archive(good_, contradiction);
  }
  /// The verdict on a package that is signed with the right key, but whose files `change` has spoiled.
  std::string message_of(const std::function<void(Files&)>& change) const {
    Files files = opened();
    change(files);
    return wrong(read_package(archive(files), key_.public_key()));
  }
  const PrivateKey key_ = PrivateKey::generate();
  const Package package_ = sample(50);
  const std::string good_ = write_package(package_, key_);
};

TEST_F(PackageTest, ReadsBackWhatItWrote) {
  const PackageReading reading = read_package(good_, key_.public_key());
  EXPECT_EQ(wrong(reading), "");
  EXPECT_EQ(reading.checks.size(), 7U);
  EXPECT_EQ(reading.signer, key_.public_key().id());
  EXPECT_EQ(reading.package.product, package_.product);
  EXPECT_EQ(reading.package.plan, package_.plan);
  EXPECT_EQ(reading.package.records, package_.records);
  EXPECT_EQ(reading.package.others, package_.others);
}

TEST_F(PackageTest, DetectsAChangeOfAnyByte) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string spoiled = good_;
    const std::size_t at = random() % spoiled.size();
    spoiled[at] = static_cast<char>(spoiled[at] ^ (1 + random() % 255));
    EXPECT_NE(wrong(read_package(spoiled, key_.public_key())), "") << "byte " << at;
  }
}

TEST_F(PackageTest, NamesTheRecordThatChanged) {
  std::string spoiled = good_;
  spoiled[spoiled.find("case/100017", spoiled.find("records.jsonl")) + 20] ^= 1;
  EXPECT_EQ(wrong(read_package(spoiled, key_.public_key())).find("tree: record 18 "), 0U)
      << wrong(read_package(spoiled, key_.public_key()));
}

TEST_F(PackageTest, DetectsAChangedFileInAValidArchive) {
  std::mt19937 random(8);
  const Files files = opened();
  for (const auto& [name, bytes] : files) {
    for (int i = 0; i < 60; ++i) {
      Files spoiled = files;
      std::string& text = spoiled[name];
      const std::size_t at = random() % text.size();
      text[at] = static_cast<char>(text[at] ^ (1 + random() % 255));
      EXPECT_NE(wrong(read_package(archive(spoiled), key_.public_key())), "") << name << ", byte " << at;
    }
  }
}

TEST_F(PackageTest, ReportsEachDefectInOneSentence) {
  const auto has = [](const std::string& message, const std::string& words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  has(message_of([](Files& f) { f["records.jsonl"].replace(f["records.jsonl"].find("REFUSED"), 7, "PASS   "); }),
      "tree: record 1 (case 'case/100000') is not the one that was signed");
  has(message_of([](Files& f) { f["records.jsonl"].erase(0, f["records.jsonl"].find('\n') + 1); }),
      "tree: expected 50 records, found 49");
  has(message_of([](Files& f) { f["tree.txt"][3] = f["tree.txt"][3] == '0' ? '1' : '0'; }),
      "tree: tree.txt is not the tree that was signed; the records are");
  has(message_of([](Files& f) { f["claims.json"] = "[]"; }), "files: claims.json is not the one that was signed");
  has(message_of([](Files& f) { f["plan.json"].replace(f["plan.json"].find("core"), 4, "mini"); }),
      "files: plan.json is not the one that was signed");
  has(message_of([](Files& f) { f["more.txt"] = ""; }), "files: more.txt was not signed");
  has(message_of([](Files& f) { f.erase("logs/run.txt"); }), "files: the package has no logs/run.txt, which was signed");
  has(message_of([](Files& f) { f.erase("key.pem"); }), "form: the package has no key.pem");
  has(message_of([](Files& f) { f["key.pem"] = PrivateKey::generate().public_key().pem(); }),
      "signature: expected a signature of key");
  has(message_of([](Files& f) { f["rotations.json"] = std::string(1'000'000, '['); }),
      "signature: rotations.json is nested more than 64 deep");
  has(message_of([](Files& f) { f["statement.json"] += " "; }), "signature: statement.json is not in its canonical form");
  has(wrong(read_package(good_, PrivateKey::generate().public_key())),
      "signature: it is signed by key " + key_.public_key().id() + ", and nothing leads there from the key that is trusted");
  has(wrong(read_package("PK", key_.public_key())), "form: expected a package, found something else");
}

TEST_F(PackageTest, DetectsSwappedRecords) {
  Files files = opened();
  std::string& text = files["records.jsonl"];
  const std::size_t first = text.find('\n') + 1, second = text.find('\n', first) + 1;
  text = text.substr(first, second - first) + text.substr(0, first) + text.substr(second);
  EXPECT_NE(wrong(read_package(archive(files), key_.public_key())).find("tree: record 1 (case 'case/100001')"),
            std::string::npos);
}

TEST_F(PackageTest, RefusesToSignWhatAReaderRejects) {
  const std::vector<std::function<void(Package&)>> spoilers{[](Package& p) { p.records.erase(p.records.begin() + 3); },
                                                            [](Package& p) { p.plan["ids"].erase(3); },
                                                            [](Package& p) { p.records[3] = p.records[4]; },
                                                            [](Package& p) { std::swap(p.records[3], p.records[4]); },
                                                            [](Package& p) { p.plan["ids"].push_back("case/100003"); },
                                                            [](Package& p) { p.others["plan.json"] = ""; },
                                                            [](Package& p) { p.others["claims.json"] = "{ }"; },
                                                            [](Package& p) { p.others["a b"] = ""; },
                                                            [](Package& p) { p.records[3]["ms"] = 0.5; }};
  for (const auto& spoil : spoilers) {
    Package package = sample(50);
    spoil(package);
    EXPECT_THROW(write_package(package, key_), Error);
  }
}

TEST_F(PackageTest, TrustsARotatedKeyThroughTheOldOne) {
  const store::sample::TemporaryDirectory folder;
  const auto file = folder.path() / "key.pem";
  create_key(file, PrivateKey::generate());
  const PublicKey old = read_key(file).public_key();
  rotate_key(file);
  Package package = sample(3);
  EXPECT_NE(wrong(read_package(write_package(package, read_key(file)), old)), "");
  package.rotations = rotations_of(file);
  EXPECT_EQ(wrong(read_package(write_package(package, read_key(file)), old)), "");
}

TEST_F(PackageTest, ContainsNoPrivateKey) {
  EXPECT_EQ(good_.find("PRIVATE"), std::string::npos);
  const std::string pem = key_.pem();
  EXPECT_EQ(good_.find(pem.substr(pem.find('\n') + 23, 30)), std::string::npos);
}

}  // namespace
}  // namespace kvcts::certificate
