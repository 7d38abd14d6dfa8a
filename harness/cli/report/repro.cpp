#include "cli/report/repro.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "case/tries.hpp"
#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

namespace fs = std::filesystem;

// Variables that decide which code runs, or on what. KVCTS_PYTHON also stands for KVCTS_PYTHON_VLLM and so on.
constexpr std::array kept{std::string_view("KVCTS_CASES"),           std::string_view("KVCTS_ENGINE_PATH"),
                          std::string_view("KVCTS_ENGINE_PACKAGES"), std::string_view("KVCTS_CONNECTOR_PATH"),
                          std::string_view("KVCTS_CUDA_DRIVER"),     std::string_view("KVCTS_PRODUCT"),
                          std::string_view("KVCTS_CONNECTOR"),       std::string_view("KVCTS_STORE"),
                          std::string_view("KVCTS_CONNECTOR_EXTRA"), std::string_view("KVCTS_PYTHON")};

bool is_kept(std::string_view name) {
  return std::any_of(kept.begin(), kept.end(), [&](std::string_view one) {
    return name == one || (one == "KVCTS_PYTHON" && name.starts_with("KVCTS_PYTHON_"));
  });
}

/// Each part between colons that names something of this folder, as an absolute path; a bare program or library name stays.
std::string absolute(std::string_view list) {
  std::string out;
  while (true) {
    const auto colon = list.find(':');
    const fs::path part(list.substr(0, colon));
    std::error_code none;
    const bool place =
        part.is_relative() && !part.empty() && (part.string().find('/') != std::string::npos || fs::exists(part, none));
    out += place ? fs::absolute(part).lexically_normal().string() : part.string();
    if (colon == std::string_view::npos) return out;
    out += ':';
    list.remove_prefix(colon + 1);
  }
}

/// A plain word stays as it is, so that common lines read well.
std::string word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("/._-+:,").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain ? text : shell_word(text);
}

}  // namespace

std::string Repro::before(std::string_view verb) const {
  std::string out;
  for (const auto& [name, value] : environment) out += fmt::format("{}={} ", name, word(value));
  out += "kvcts ";
  if (!cases.empty()) out += "--cases " + word(cases) + " ";
  return out + std::string(verb) + " ";
}

std::string Repro::after() const {
  std::string out;
  for (const auto& file : files) out += " --file " + word(file);
  if (seed != 0) out += fmt::format(" --seed {}", seed);
  return out;
}

RepeatOptions repeat_options_of(const CaseResult& result) {
  return {tries_to_see(result.tries), result.facts.is_object() && result.facts.contains("alone")};
}

std::string Repro::line(std::string_view id, const RepeatOptions& again) const {
  std::string out = before() + shell_word(id) + after();
  if (again.tries > 1) out += fmt::format(" --repeat {}", again.tries);
  if (again.as_run) out += as_run();
  return out;
}

std::string Repro::as_run() const { return run.empty() ? "" : fmt::format(" --run {} --as-run", word(run)); }

nlohmann::json to_json(const Repro& repro) {
  nlohmann::json out{{"environment", repro.environment}};
  if (!repro.cases.empty()) out["cases"] = repro.cases;
  if (!repro.files.empty()) out["files"] = repro.files;
  if (repro.seed != 0) out["seed"] = repro.seed;
  return out;
}

Repro repro_from_json(const nlohmann::json& json) {
  Repro out;
  if (!json.is_object()) return out;
  out.environment = json.value("environment", out.environment);
  out.cases = json.value("cases", "");
  out.files = json.value("files", out.files);
  out.seed = json.value("seed", std::uint64_t{0});
  return out;
}

Repro repro_here(const std::string& cases) {
  Repro out;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || equals + 1 == text.size() || !is_kept(text.substr(0, equals))) continue;
    out.environment[std::string(text.substr(0, equals))] = absolute(text.substr(equals + 1));
  }
  if (!cases.empty()) out.cases = absolute(cases), out.environment.erase("KVCTS_CASES");  // --cases wins over it
  return out;
}

}  // namespace kvcts::report
