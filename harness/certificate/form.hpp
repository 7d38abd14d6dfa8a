// The one form of what is in a package. Everything here has a twin in reports/verify/verify.py: whatever one of the two
// readers accepts, so does the other.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kvcts::certificate {

// Checked before memory is taken. The largest profile has some 10,000 cases, of about 1 KiB each.
constexpr std::size_t most_bytes = 256 << 20, most_files = 1000, most_records = 200'000, most_values = 8'000'000,
                      most_rotations = 64;

/// Throws Error if JSON of this text could have more values than that: built, each takes up to 100 times its two bytes.
void expect_few_values(std::string_view text, const std::string& what);

/// JSON of which there is one text per value: sorted keys, no spaces, UTF-8, integers of 64 bits, at most 64 levels.
/// Throws Error, before anything deeper is built.
nlohmann::json canonical(std::string_view text, const std::string& what);

/// Throws Error unless `value` is a mapping of exactly these keys, which are sorted.
void expect_keys(const nlohmann::json& value, std::initializer_list<const char*> keys, const std::string& what);

}  // namespace kvcts::certificate
