// Tables of many rows as compact JSON: column after column, words as numbers into a dictionary, ids as their difference from
// the one before. reports/templates/data.js reads them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvcts::report {

/// Words that repeat. JSON {"d": [word, ...], "w": digits a row, "v": digits}: row i has word number v[i*w .. i*w+w) in base
/// 64 ('A' = 0, alphabet as in RFC 4648 base64url). w = 0: every row has word 0.
class WordColumn {
 public:
  void add(const std::string& word);
  nlohmann::json json() const;
  std::size_t distinct() const { return words_.size(); }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> words_;
  std::vector<std::uint32_t> rows_;
};

/// Ids: JSON [[characters kept of the one before, the rest], ...]; a plain string keeps none.
class IdColumn {
 public:
  void add(const std::string& id);
  nlohmann::json json() const { return rows_; }

 private:
  std::string last_;
  nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace kvcts::report
