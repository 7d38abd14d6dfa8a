// The tables of a run store, their version, and the checks that a file must pass before it is trusted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "run/store/db.hpp"

namespace kvcts::store {

/// "KVCT": distinguishes a run store from other SQLite files.
inline constexpr std::int64_t application_id = 0x4B564354;
inline constexpr std::int64_t schema_version = 3;  // 2: results may carry a picture; 3: tries, FLAKY

/// Writes the tables into an empty file.
void create_schema(Db& db);
/// Throws Error unless the file is a sound run store of a version that this program reads.
void check_store(Db& db);

/// XXH3 of the parts, each with its length, so that ("a", "bc") and ("ab", "c") differ. Rows carry it: SQLite detects
/// broken pages, but not a flipped bit inside a text.
std::int64_t seal(std::initializer_list<std::string_view> parts);
/// The 128-bit form, in hex.
std::string digest(std::initializer_list<std::string_view> parts);

}  // namespace kvcts::store
