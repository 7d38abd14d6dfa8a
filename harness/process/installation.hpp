// Where this program is installed, and what code under test needs of it: relative to the running program, so that a build
// folder or an installation can be moved. <bin>/../share/kvcts has the catalogue, the golden tensors and the connector
// programs, in a build folder as links into the checkout.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kvcts::process {

/// Folder of the running program, where the suite's other programs are.
std::filesystem::path program_folder();
/// <bin>/..: an installation, or the build folder.
std::filesystem::path prefix();
/// <prefix>/share/kvcts, and the golden tensors in it.
std::filesystem::path data_folder();
std::filesystem::path golden_folder();
/// The checkout whose build folder the program runs from; "" = an installation elsewhere.
std::filesystem::path checkout();

/// The packages of the Python environment that a wheel was installed into (<site-packages>/kvcts/_suite is the prefix); "" =
/// not from a wheel.
std::filesystem::path site_packages();

/// The folders that a variable names, separated by colons, as absolute paths.
std::vector<std::filesystem::path> folders_of(const char* variable);

/// A tool of the machine: in its own folders first, then in the absolute ones of PATH; "" = not installed. Whoever may write
/// PATH should not choose what judges.
std::string find_tool(const std::string& name);

/// Set by the Python package, whose command starts the program: its own interpreter.
inline constexpr const char* entry_python_variable = "KVCTS_ENTRY_PYTHON";
/// The suite's Python: $KVCTS_PYTHON, else the one that started this program, else .venv of the checkout, else "python3".
std::string find_python();

/// What code under test needs beside the machine's own files, as absolute paths that exist: the prefix, the checkout and its
/// interpreters; what a KVCTS_* variable or a search path (PATH, LD_LIBRARY_PATH, LD_PRELOAD, PYTHONPATH, PYTHONHOME) of
/// this process names; and what `named`, words of a case or of a command line, names. A word may be a path, NAME=path, or
/// several paths with colons between them; a relative one counts if it exists. A file comes with its folder, and one in
/// bin/ with the folder above: its libraries and modules lie there.
std::vector<std::filesystem::path> needed_paths(const std::vector<std::string>& named);

}  // namespace kvcts::process
