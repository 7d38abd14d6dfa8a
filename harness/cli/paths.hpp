// Where the program finds its data: relative to itself, so that an installation can be moved. <bin>/../share/kvcts has the
// catalogue and the golden tensors, in the build folder (as links) and in an installation.
#pragma once

#include <filesystem>
#include <string>

namespace kvcts::cli {

/// Folder of the running program.
std::filesystem::path program_folder();
/// <bin>/../share/kvcts
std::filesystem::path data_folder();
std::filesystem::path golden_folder();
/// The Python interpreter of the golden generator: $KVCTS_PYTHON, else the checkout's .venv when the program runs from a
/// build folder in it, else "python3".
std::string find_python();

}  // namespace kvcts::cli
