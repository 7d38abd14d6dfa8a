#include "certificate/envelope.hpp"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "certificate/error.hpp"
#include "certificate/form.hpp"
#include "certificate/merkle.hpp"

namespace kvcts::certificate {

namespace {

using nlohmann::json;

constexpr const char* payload_type = "application/vnd.in-toto+json";
constexpr const char* statement_type = "https://in-toto.io/Statement/v1";

std::string base64(std::string_view bytes) {
  std::string out(sodium_base64_encoded_len(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(out.data(), out.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    sodium_base64_VARIANT_ORIGINAL);
  out.pop_back();
  return out;
}

std::string from_base64(std::string_view text, const char* what) {
  std::string out(text.size(), '\0');
  std::size_t bytes = 0;
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(), nullptr, &bytes,
                        nullptr, sodium_base64_VARIANT_ORIGINAL) != 0 ||
      base64({out.data(), bytes}) != text)
    throw Error(std::string("expected base64 in the ") + what + " of an envelope, found something else");
  out.resize(bytes);
  return out;
}

/// The text at `key`. Throws Error.
std::string text_at(const json& object, const char* key, const char* what) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_string())
    throw Error(std::string("expected a text '") + key + "' in the " + what + ", found " +
                (at == object.end() ? "none" : at->type_name()));
  return at->get<std::string>();
}

void expect(const json& object, const char* key, const std::string& expected, const char* what) {
  if (const std::string found = text_at(object, key, what); found != expected)
    throw Error(std::string("expected '") + expected + "' as '" + key + "' of the " + what + ", found '" +
                found.substr(0, 80) + "'");
}

/// The only one of the list at `key`. Throws Error.
const json& only(const json& object, const char* key, const char* what) {
  const json& list = object.at(key);
  if (!list.is_array() || list.size() != 1) throw Error(std::string("expected one ") + what);
  return list.front();
}

}  // namespace

std::string pre_authentication(std::string_view type, std::string_view payload) {
  std::string out = "DSSEv1 ";
  out.append(std::to_string(type.size()))
      .append(" ")
      .append(type)
      .append(" ")
      .append(std::to_string(payload.size()))
      .append(" ")
      .append(payload);
  return out;
}

json seal(const std::string& subject, const std::string& sha256, const std::string& predicate_type, const json& predicate,
          const PrivateKey& key) {
  const json statement{{"_type", statement_type},
                       {"subject", {{{"name", subject}, {"digest", {{"sha256", sha256}}}}}},
                       {"predicateType", predicate_type},
                       {"predicate", predicate}};
  const std::string payload = statement.dump();
  const Signature signature = key.sign(pre_authentication(payload_type, payload));
  return {{"payload", base64(payload)},
          {"payloadType", payload_type},
          {"signatures",
           {{{"keyid", key.public_key().id()},
             {"sig", base64({reinterpret_cast<const char*>(signature.data()), signature.size()})}}}}};
}

SealedStatement open(const json& envelope, const std::string& predicate_type, const PublicKey& key) {
  expect_keys(envelope, {"payload", "payloadType", "signatures"}, "envelope");
  expect(envelope, "payloadType", payload_type, "envelope");
  const json& one = only(envelope, "signatures", "signature in the envelope");
  expect_keys(one, {"keyid", "sig"}, "signature");
  if (const std::string id = text_at(one, "keyid", "signature"); id != key.id())
    throw Error("expected a signature of key " + key.id() + ", found one of key " + id.substr(0, 80));
  const std::string payload = from_base64(text_at(envelope, "payload", "envelope"), "payload"),
                    signature = from_base64(text_at(one, "sig", "signature"), "signature");
  Signature bytes{};
  if (signature.size() == bytes.size()) std::copy(signature.begin(), signature.end(), bytes.begin());
  if (signature.size() != bytes.size() || !key.verifies(pre_authentication(payload_type, payload), bytes))
    throw Error("the statement is not what key " + key.id() + " has signed");
  json statement = canonical(payload, "the statement");
  expect_keys(statement, {"_type", "predicate", "predicateType", "subject"}, "statement");
  expect(statement, "_type", statement_type, "statement");
  expect(statement, "predicateType", predicate_type, "statement");
  const json& subject = only(statement, "subject", "subject in the statement");
  expect_keys(subject, {"digest", "name"}, "subject");
  expect_keys(subject.at("digest"), {"sha256"}, "subject's digest");
  const std::string sha256 = text_at(subject.at("digest"), "sha256", "subject's digest");
  digest_from_hex(sha256);
  return {text_at(subject, "name", "subject"), sha256, std::move(statement.at("predicate"))};
}

}  // namespace kvcts::certificate
