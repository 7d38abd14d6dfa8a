#include "process/installation.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>

extern char** environ;  // NOLINT

namespace kvcts::process {
namespace {

namespace fs = std::filesystem;

/// Where programs and libraries are looked for. The suite's own variables count, too.
constexpr std::array<std::string_view, 5> search_paths{"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME"};

std::vector<std::string_view> between_colons(std::string_view text) {
  std::vector<std::string_view> out;
  for (;;) {
    const auto colon = text.find(':');
    if (const auto part = text.substr(0, colon); !part.empty()) out.push_back(part);
    if (colon == std::string_view::npos) return out;
    text.remove_prefix(colon + 1);
  }
}

class Needed {
 public:
  /// A path, `NAME=path`, or several paths with colons between them.
  void add_word(std::string_view word) {
    if (add(word)) return;
    if (const auto equals = word.find('='); equals != std::string_view::npos && add(word.substr(equals + 1))) return;
    for (const std::string_view part : between_colons(word)) add(part);
  }

  bool add(const fs::path& path) {
    std::error_code none;
    if (path.empty() || !fs::exists(path, none)) return false;
    fs::path whole = fs::absolute(path, none).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();
    paths_.insert(whole);
    if (fs::is_directory(whole, none)) return true;
    // An interpreter of an environment is a link: modules lie beside the link, and beside what it points to.
    for (const fs::path& file : {whole, fs::canonical(whole, none)}) {
      const fs::path folder = file.parent_path();
      paths_.insert(folder);
      if (folder.filename() == "bin") paths_.insert(folder.parent_path());
    }
    return true;
  }

  std::vector<fs::path> paths() const { return {paths_.begin(), paths_.end()}; }

 private:
  std::set<fs::path> paths_;
};

}  // namespace

fs::path program_folder() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).parent_path();
}

fs::path prefix() { return program_folder().parent_path(); }
fs::path data_folder() { return prefix() / "share" / "kvcts"; }
fs::path golden_folder() { return data_folder() / "golden"; }

fs::path checkout() {
  std::error_code none;
  return fs::is_symlink(golden_folder(), none) ? fs::canonical(golden_folder(), none).parent_path() : fs::path();
}

fs::path site_packages() {
  const fs::path all = prefix();
  return all.filename() == "_suite" ? all.parent_path().parent_path() : fs::path();
}

std::vector<fs::path> folders_of(const char* variable) {
  std::vector<fs::path> out;
  if (const char* listed = std::getenv(variable); listed != nullptr)
    for (const std::string_view folder : between_colons(listed)) out.push_back(fs::absolute(folder));
  return out;
}

std::string find_tool(const std::string& name) {
  std::vector<fs::path> folders{"/usr/bin", "/bin", "/usr/sbin", "/sbin"};
  if (const char* path = std::getenv("PATH"); path != nullptr)
    for (const std::string_view folder : between_colons(path))
      if (folder.starts_with('/')) folders.emplace_back(folder);
  for (const fs::path& folder : folders)
    if (const fs::path file = folder / name; ::access(file.c_str(), X_OK) == 0) return file.string();
  return "";
}

std::string find_python() {
  for (const char* variable : {"KVCTS_PYTHON", entry_python_variable})
    if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') return set;
  std::error_code none;
  const fs::path pinned = checkout() / ".venv" / "bin" / "python";
  return pinned.is_absolute() && fs::exists(pinned, none) ? pinned.string() : "python3";
}

std::vector<fs::path> needed_paths(const std::vector<std::string>& named) {
  Needed needed;
  // The prefix as a whole; where that is one of the machine's own folders (/tmp), what lies in it.
  for (const char* part : {"", "bin", "lib", "share/kvcts", "share/kvcts/cases", "share/kvcts/connectors"})
    needed.add(prefix() / part);
  needed.add(site_packages());
  if (const fs::path all = checkout(); !all.empty()) {
    needed.add(all);
    std::error_code none;
    needed.add(all / ".venv" / "bin" / "python");
    for (fs::directory_iterator it(all / ".venv" / "with", none), end; it != end; it.increment(none))
      needed.add(it->path() / "bin" / "python");
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.size() == variable.size()) continue;
    if (name.starts_with("KVCTS_") || std::find(search_paths.begin(), search_paths.end(), name) != search_paths.end())
      needed.add_word(variable.substr(name.size() + 1));
  }
  for (const std::string& word : named) needed.add_word(word);
  return needed.paths();
}

}  // namespace kvcts::process
