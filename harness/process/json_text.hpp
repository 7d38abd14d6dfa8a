// What is wrong with a JSON document, without the library's error number.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvcts {

/// "[json.exception.parse_error.101] parse error at line 1, ..." -> "parse error at line 1, ...".
inline std::string to_string(const nlohmann::json::exception& fault) {
  const std::string text = fault.what();
  const auto end = text.starts_with("[json.exception.") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace kvcts
