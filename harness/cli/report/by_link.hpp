// Cases of a run by the report that they express, the first of their links: how each ended, and how its controls did.
#pragma once

#include <string>

#include "run/store/reader.hpp"

namespace kvcts::report {

/// Lines for people, or one JSON document, in plan order. "" where no case of the run links anything.
std::string by_link(const store::RunReader& reader, bool json);

}  // namespace kvcts::report
