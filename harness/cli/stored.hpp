// Runs that the user names by their folder.
#pragma once

#include <optional>
#include <string>

#include "cli/exit.hpp"
#include "run/store/reader.hpp"

namespace kvcts::cli {

/// Turns an error of the store into a UsageError: wrong folder, damaged file, another writer are the user's.
template <class Function>
auto opening(Function&& function) {
  try {
    return function();
  } catch (const store::Error& e) {
    throw UsageError(e.what());
  }
}

/// The case `id` as the run in `directory` has it; nothing where `directory` is "". Throws UsageError where the run lacks
/// it.
std::optional<store::Row> stored_case(const std::string& directory, const std::string& id);

}  // namespace kvcts::cli
