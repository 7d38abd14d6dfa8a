#include "cli/paths.hpp"

#include <cstdlib>

namespace kvcts::cli {

std::filesystem::path program_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }
std::filesystem::path data_folder() { return program_folder().parent_path() / "share" / "kvcts"; }
std::filesystem::path golden_folder() { return data_folder() / "golden"; }

std::string find_python() {
  if (const char* set = std::getenv("KVCTS_PYTHON"); set && *set) return set;
  std::error_code error;
  // <checkout>/build/share/kvcts/golden is a link to <checkout>/golden
  const auto checkout = std::filesystem::canonical(golden_folder(), error).parent_path();
  const auto pinned = checkout / ".venv" / "bin" / "python";
  if (!error && std::filesystem::exists(pinned, error)) return pinned.string();
  return "python3";
}

}  // namespace kvcts::cli
