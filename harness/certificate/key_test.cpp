#include "certificate/key.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "certificate/error.hpp"
#include "certificate/key_file.hpp"
#include "run/store/testing/sample.hpp"

namespace kvcts::certificate {
namespace {

namespace fs = std::filesystem;

// RFC 8410, section 10.
constexpr const char* rfc_private =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE "
    "KEY-----\n";
constexpr const char* rfc_public =
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Key, MatchesTheExampleOfRfc8410) {
  const PrivateKey key = PrivateKey::from_pem(rfc_private);
  EXPECT_EQ(key.pem(), rfc_private);
  EXPECT_EQ(key.public_key().pem(), rfc_public);
  EXPECT_EQ(PublicKey::from_pem(rfc_public), key.public_key());
}

TEST(Key, VerifiesItsOwnSignatures) {
  const PrivateKey key = PrivateKey::generate(), other = PrivateKey::generate();
  Signature signature = key.sign("text");
  EXPECT_TRUE(key.public_key().verifies("text", signature));
  EXPECT_FALSE(key.public_key().verifies("texts", signature));
  EXPECT_FALSE(other.public_key().verifies("text", signature));
  signature[10] ^= 1;
  EXPECT_FALSE(key.public_key().verifies("text", signature));
}

TEST(Key, RefusesOtherTextWithoutRepeatingIt) {
  const std::string damaged = std::string(rfc_private).replace(40, 1, "_");
  for (const std::string& text : {std::string(), std::string("secret"), damaged, std::string(rfc_public),
                                  std::string("-----END PRIVATE KEY----------BEGIN PRIVATE KEY-----")}) {
    const std::string error = error_of([&] { PrivateKey::from_pem(text); });
    EXPECT_NE(error.find("expected an Ed25519 key in PEM"), std::string::npos);
    EXPECT_EQ(error.find("NTuctv5"), std::string::npos);
  }
  // A key of another algorithm (X25519).
  EXPECT_NE(error_of([] {
              PublicKey::from_pem(
                  "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VuAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END "
                  "PUBLIC KEY-----\n");
            }).find("another kind of key"),
            std::string::npos);
  std::array<unsigned char, 32> identity{1};
  EXPECT_NE(error_of([&] { PublicKey::from_pem(PublicKey(identity).pem()); }).find("no safe point"), std::string::npos);
}

class KeyFile : public ::testing::Test {
 protected:
  store::sample::TemporaryDirectory folder_;
  fs::path file_{folder_.path() / "key.pem"};
};

TEST_F(KeyFile, IsReadableOnlyByItsOwner) {
  const PrivateKey key = PrivateKey::generate();
  create_key(file_, key);
  struct stat found{};
  ASSERT_EQ(::stat(file_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  EXPECT_EQ(read_key(file_).public_key(), key.public_key());
  const fs::path half = folder_.path() / "public.pem";
  std::ofstream(half) << key.public_key().pem();
  for (const fs::path& either : {file_, half}) EXPECT_EQ(read_public_key(either), key.public_key());
  EXPECT_NE(error_of([] { read_public_key("/dev/zero"); }).find("expected a file"), std::string::npos);
  EXPECT_NE(error_of([&] { create_key(file_, PrivateKey::generate()); }).find("already exists"), std::string::npos);
  EXPECT_EQ(read_key(file_).public_key(), key.public_key());
  ::chmod(file_.c_str(), 0640);
  EXPECT_NE(error_of([&] { read_key(file_); }).find("chmod 600"), std::string::npos);
  EXPECT_NE(error_of([&] { read_key(folder_.path()); }).find("expected a file"), std::string::npos);
  EXPECT_NE(error_of([&] { read_key(folder_.path() / "none"); }).find("kvcts key new"), std::string::npos);
}

TEST_F(KeyFile, ChainsRotationsFromOlderKeys) {
  create_key(file_, PrivateKey::generate());
  const PublicKey first = read_key(file_).public_key();
  const fs::path kept = rotate_key(file_);
  const PublicKey second = read_key(file_).public_key();
  rotate_key(file_);
  const PublicKey third = read_key(file_).public_key();
  EXPECT_EQ(read_key(kept).public_key(), first);
  std::vector<nlohmann::json> rotations = rotations_of(file_);
  ASSERT_EQ(rotations.size(), 2U);
  EXPECT_TRUE(leads(rotations, first, third));
  EXPECT_TRUE(leads(rotations, second, third));
  EXPECT_TRUE(leads({}, third, third));
  EXPECT_FALSE(leads(rotations, third, first)) << "not backwards";
  EXPECT_FALSE(leads(rotations, PrivateKey::generate().public_key(), third));
  EXPECT_FALSE(leads({rotations[1]}, first, third)) << "one is missing";
  rotations[0]["payload"] = rotations[1]["payload"];
  EXPECT_FALSE(leads(rotations, first, third)) << "unsigned";
}

TEST_F(KeyFile, CompletesAnInterruptedRotation) {
  create_key(file_, PrivateKey::generate());
  const PublicKey first = read_key(file_).public_key();
  // Everything up to the last rename.
  create_key(file_.string() + ".next", PrivateKey::generate());
  std::ofstream(file_.string() + ".rotations.next") << "[";
  fs::create_hard_link(file_, file_.string() + "." + first.id().substr(0, 16));
  rotate_key(file_);
  const PublicKey now = read_key(file_).public_key();
  EXPECT_FALSE(now == first);
  EXPECT_TRUE(leads(rotations_of(file_), first, now));
  EXPECT_FALSE(fs::exists(file_.string() + ".next"));
  std::ofstream(file_.string() + ".rotations.json") << "{}";
  EXPECT_NE(error_of([&] { rotate_key(file_); }).find("expected a list"), std::string::npos);
  EXPECT_EQ(read_key(file_).public_key(), now) << "nothing is lost";
}

}  // namespace
}  // namespace kvcts::certificate
