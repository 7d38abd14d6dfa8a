// A package (X.kvcert): what was planned, one record a case, and a signed statement over all of it.
//
//   statement.json    in-toto Statement in a DSSE envelope: the root of the tree over the records, and the SHA-256 of every
//   other file key.pem           the public half of the key that signed it rotations.json    what leads from older keys to
//   that one plan.json         what was to be run records.jsonl     one canonical JSON record a case, in order of ids
//   tree.txt          hash of each record, so that a changed one is found by itself
//   (others)          product, machine, claims, logs
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
  Files others;                           ///< by name, none of those above
  std::vector<nlohmann::json> rotations;  ///< key_file.hpp
};

/// The bytes of a package. Throws Error: records out of order, a name twice.
std::string write_package(const Package& package, const PrivateKey& key);

/// One thing that was looked at; `wrong` is one sentence, "" = as it must be.
struct Check {
  std::string what, wrong;
};

struct Reading {
  std::vector<Check> checks;  ///< in order; those behind the first wrong one may be missing
  Package package;            ///< whole only where nothing is wrong
  std::string signer;         ///< id of the key
  bool good() const;
};

/// Reads a package and checks all that follows from its own bytes: form, signature, files, tree, records, and that what was
/// planned and what is recorded are the same cases. `trusted`: the key that the reader knows; a package signed by another is
/// wrong unless rotations lead to it; none: any key will do.
Reading read_package(std::string_view bytes, const std::optional<PublicKey>& trusted);

}  // namespace kvcts::certificate
