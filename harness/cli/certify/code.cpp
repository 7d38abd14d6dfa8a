#include "cli/certify/code.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <tuple>

#include "certificate/merkle.hpp"
#include "cli/certify/challenge.hpp"
#include "cli/exit.hpp"
#include "engines/transport/session.hpp"
#include "process/installation.hpp"

namespace kvcts::cli {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::array system_folders{"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"};

/// Whose file it is. Those of the system are listed only: every machine has its own.
std::string owner_of(const std::string& path, const std::string& name, const std::vector<std::string>& plugins) {
  for (const std::string& plugin : plugins)
    if (name == plugin + ".so") return transport::is_own_plugin(plugin) ? "suite" : "product";
  if (path.starts_with(process::prefix().string() + "/")) return "suite";
  for (const std::string_view folder : system_folders)
    if (path.starts_with(folder)) return "system";
  return "product";
}

}  // namespace

std::string digest_of_code(const std::string& path) {
  static std::map<std::tuple<dev_t, ino_t, off_t, std::int64_t>, std::string> known;
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return "unreadable";
  std::string& digest =
      known[{about.st_dev, about.st_ino, about.st_size, about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec}];
  if (digest.empty()) try {
      digest = certificate::hex(certificate::sha256(bytes_of_file(path)));
    } catch (const UsageError&) {
      digest = "unreadable";
    }
  return digest;
}

ProductCode::ProductCode(const catalogue::EngineEntry& engine) {
  if (!engine.plugin.empty()) plugins_.push_back(engine.plugin);
  if (engine.options.is_object() && engine.options.contains("memory_provider"))
    plugins_.push_back(engine.options.at("memory_provider").get<std::string>());
}

void ProductCode::add(const CaseResult& result) {
  const auto code = result.facts.find("code");
  if (code == result.facts.end()) return;
  for (const auto& [path, digest] : code->items()) {
    const std::string name = fs::path(path).filename().string(), owner = owner_of(path, name, plugins_);
    const auto [at, is_new] = files_[owner].emplace(name, digest.get<std::string>());
    if (!is_new && at->second != digest && owner != "system" && two_.empty()) two_ = name;
  }
}

std::string ProductCode::wrong() const {
  if (!two_.empty()) return "two files " + two_ + " were run";
  for (const std::string& plugin : plugins_) {
    const auto of = files_.find(transport::is_own_plugin(plugin) ? "suite" : "product");
    if (of == files_.end() || !of->second.contains(plugin + ".so"))
      return "no worker had " + plugin + ".so mapped when a transfer was complete";
  }
  return "";
}

json ProductCode::words() const { return files_; }

std::string ProductCode::differs_from(const json& told) const {
  const auto mine = files_.find("product");
  if (mine == files_.end()) return "";
  const json certified = told.value("product", json::object());
  for (const auto& [name, digest] : mine->second) {
    const std::string theirs = certified.value(name, "");
    if (theirs != digest)
      return fmt::format("{} here has the SHA-256 {}, and {}", name, digest,
                         theirs.empty() ? "none was certified" : "the one that was certified " + theirs);
  }
  return "";
}

}  // namespace kvcts::cli
