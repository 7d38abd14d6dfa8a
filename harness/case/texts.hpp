// Options and environments of a document as text: a number or boolean in JSON form.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace kvcts {

inline std::map<std::string, std::string> texts_of(const nlohmann::json& values) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : values.items()) out[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return out;
}

}  // namespace kvcts
