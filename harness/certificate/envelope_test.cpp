#include "certificate/envelope.hpp"

#include <gtest/gtest.h>

#include "certificate/error.hpp"
#include "certificate/merkle.hpp"

namespace kvcts::certificate {
namespace {

using nlohmann::json;

TEST(Envelope, SignsTheDssePreAuthenticationEncoding) {
  // The example of the DSSE specification, "protocol.md".
  EXPECT_EQ(pre_authentication("http://example.com/HelloWorld", "hello world"),
            "DSSEv1 29 http://example.com/HelloWorld 11 hello world");
}

TEST(Envelope, ReturnsTheSealedPayload) {
  const PrivateKey key = PrivateKey::generate();
  const std::string digest = hex(sha256("records"));
  const SealedStatement statement =
      open(seal("product", digest, "urn:test:1", {{"n", 3}}, key), "urn:test:1", key.public_key());
  EXPECT_EQ(statement.subject, "product");
  EXPECT_EQ(statement.sha256, digest);
  EXPECT_EQ(statement.predicate, (json{{"n", 3}}));
}

TEST(Envelope, DetectsAChangeOfAnyByte) {
  const PrivateKey key = PrivateKey::generate();
  const std::string sealed = seal("product", hex(sha256("")), "urn:test:1", {{"n", 3}}, key).dump();
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::string spoiled = sealed;
    spoiled[i] = static_cast<char>(spoiled[i] ^ 1);
    const json envelope = json::parse(spoiled, nullptr, false);
    if (envelope.is_discarded()) continue;
    EXPECT_THROW(open(envelope, "urn:test:1", key.public_key()), Error) << "byte " << i << ": " << spoiled;
  }
}

TEST(Envelope, NamesEachDefect) {
  const PrivateKey key = PrivateKey::generate(), other = PrivateKey::generate();
  const json good = seal("product", hex(sha256("")), "urn:test:1", {{"n", 3}}, key);
  const auto error = [&](json envelope, const std::string& type = "urn:test:1") -> std::string {
    try {
      open(envelope, type, key.public_key());
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error(good), "");
  EXPECT_NE(error(seal("product", "", "urn:test:1", {}, other)).find("found one of key " + other.public_key().id()),
            std::string::npos);
  json forged = good;
  forged["payload"] = seal("product", "", "urn:test:1", {}, other)["payload"];
  EXPECT_NE(error(forged).find("not what key " + key.public_key().id() + " has signed"), std::string::npos);
  EXPECT_NE(error(good, "urn:test:2").find("expected 'urn:test:2' as 'predicateType' of the statement, found 'urn:test:1'"),
            std::string::npos);
  json more = good;
  more["signatures"].push_back(more["signatures"][0]);
  EXPECT_NE(error(more).find("one signature"), std::string::npos);
  for (const json& foreign : {json(), json::array(), json::object(), json{{"payloadType", 3}},
                              json{{"payloadType", "application/vnd.in-toto+json"}, {"signatures", {1}}}})
    EXPECT_NE(error(foreign), "") << foreign;
}

}  // namespace
}  // namespace kvcts::certificate
