// Stored runs that the user names by their folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "cli/exit.hpp"
#include "cli/verb.hpp"
#include "run/store/reader.hpp"

namespace kvcts::cli {

/// Turns an error of the store into a UsageError: wrong folder, damaged file, another writer are the user's. A full disk is
/// not.
template <class Function>
auto opening(Function&& function) {
  try {
    return function();
  } catch (const store::DiskFull&) {
    throw;  // nothing that the user named is wrong
  } catch (const store::Error& e) {
    throw UsageError(e.what());
  }
}

/// The case `id` as the run in `directory` has it; nothing where `directory` is "". Throws UsageError where the run lacks
/// it.
std::optional<store::Row> stored_case(const std::string& directory, const std::string& id);

/// What the same worker ran before the case of `row`, oldest first, as its run has it.
std::vector<std::string> ran_before(const store::RunReader& reader, const store::Row& row);

/// The case data; a report is also wanted on a machine without it, and says less then. Null, and `verb` says so, where it is
/// not there and was not asked for.
std::unique_ptr<catalogue::Catalogue> catalogue_if_any(const Globals& globals, const char* verb);

}  // namespace kvcts::cli
