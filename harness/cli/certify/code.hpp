// What code took part in a run: digests of the files that workers had mapped, seen from outside.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "case/catalogue/entries.hpp"
#include "case/result.hpp"

namespace kvcts::cli {

/// SHA-256 of a file, "unreadable" of what is none; each file is read once.
std::string digest_of_code(const std::string& path);

class ProductCode {
 public:
  explicit ProductCode(const catalogue::EngineEntry& engine);
  /// Adds fact "code" of a result.
  void add(const CaseResult& result);
  /// What is wrong with it: a file of the product of which two were mapped, or none; "": nothing.
  std::string wrong() const;
  /// By name: {"product": {...}, "suite": {...}, "system": {...}}.
  nlohmann::json words() const;
  /// Why this is not the product that `told` (words() of another run) names; "": it is.
  std::string differs_from(const nlohmann::json& told) const;

 private:
  std::vector<std::string> plugins_;  ///< files of the product's own
  std::map<std::string, std::map<std::string, std::string>> files_;
  std::string two_;  ///< name of a file of which two were mapped
};

}  // namespace kvcts::cli
