// A package (X.kvcert): what was planned, one record per case, and a signed statement over all of it.
//
//   statement.json    in-toto Statement in a DSSE envelope: the root of the tree over the records, and the SHA-256 of every
//                     other file
//   key.pem           the public half of the key that signed it
//   rotations.json    the rotations that lead from older keys to that one
//   plan.json         what was to be run
//   records.jsonl     one canonical JSON record per case, in order of ids
//   tree.txt          hash of each record, to identify a changed one
//   (others)          product, machine, claims, logs
//
// JSON is canonical in all of them (form.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "certificate/archive.hpp"
#include "certificate/key.hpp"
#include "certificate/merkle.hpp"

namespace kvcts::certificate {

struct Package {
  std::string product;                    ///< name of what is certified
  nlohmann::json plan;                    ///< {"ids": [...], ...}
  std::vector<nlohmann::json> records;    ///< each with an "id", in order of ids
  Files others;                           ///< by name, none of the above
  std::vector<nlohmann::json> rotations;  ///< key_file.hpp
};

/// The bytes of a package. Throws Error if read_package() would not accept them.
std::string write_package(const Package& package, const PrivateKey& key);

/// The signed statement of a package as a Sigstore bundle (github.com/sigstore/protobuf-specs, sigstore_bundle.proto): for
/// `cosign verify-blob-attestation --key`, `sigstore` and what else verifies DSSE envelopes. No transparency log knows it.
std::string sigstore_bundle(std::string_view package);

/// One check; `wrong` is one sentence, "" = passed.
struct PackageCheck {
  std::string what, wrong;
};

struct PackageReading {
  std::vector<PackageCheck> checks;  ///< in order; checks after the first wrong one may be missing
  Package package;                   ///< complete only if nothing is wrong
  std::string signer;                ///< id of the key
  bool good() const;
};

/// Reads a package and checks everything that follows from its own bytes: form, signature, files, tree, records, and
/// that the planned and the recorded cases are the same. `trusted`: the key that the reader knows. A package signed
/// by another key is wrong unless rotations lead to it; without `trusted`, any key is accepted.
PackageReading read_package(std::string_view bytes, const std::optional<PublicKey>& trusted);

}  // namespace kvcts::certificate
